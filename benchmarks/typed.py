"""Finds figures typed by hand: decimals and powers of ten in prose and tables, outside markers and code.

Code may have decimals, because settings do, but a code span with only a number counts as prose. Numbers of versions,
sections, theorems, equations and the like are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["typed_figures"]

_FIGURE = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*)?\.\d+(?:e-?\d+)?(?![\w]|\.\d)|(?<![\w.])\d+e-?\d+(?!\w)")
_SPAN = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\]\([^)]*\)|https?://\S+")
_NUMBERED = re.compile(
    r"\b(?:sections?|chapters?|theorems?|lemmas?|corollary|corollaries|propositions?|equations?|algorithms?|appendix|"
    r"figures?|tables?|versions?|Python|CMake|torch|numpy|PyTorch|Debian|glibc|GCC|manylinux|CUDA|Apache)"
    r"[ -]\d+(?:\.\d+)+(?:(?:,| and| to| or|-) ?\d+(?:\.\d+)+)*\+?",
    re.IGNORECASE,
)
# Text between such comments is generated: tables, or the output of a program.
_BEGIN, _END = re.compile(r"^<!-- (?!end )(\w+ \S+) -->$"), re.compile(r"^<!-- end \S+ -->$")


def typed_figures(text: str) -> Iterator[tuple[int, str]]:
    """The line number and the text of each typed figure in a Markdown page."""
    fence, marked = "", False
    for number, line in enumerate(text.splitlines(), start=1):
        opened = re.match(r"\s*(```+|~~~+)", line)
        if fence:
            fence = "" if line.strip().startswith(fence) else fence
        elif opened:
            fence = opened[1]
        elif _END.match(line):
            marked = False
        elif _BEGIN.match(line):
            marked = True
        elif not marked:
            yield from ((number, figure[0]) for figure in _FIGURE.finditer(_prose(line)))


def _prose(line: str) -> str:
    """The line without code, links and numbered references."""
    line = _SPAN.sub(lambda span: span[2] if _FIGURE.fullmatch(span[2].strip()) else " ", line)
    return _NUMBERED.sub(" ", _LINK.sub(" ", line))
