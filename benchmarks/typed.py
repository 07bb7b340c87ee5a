"""Figures that were typed by hand: decimals and powers of ten in prose and tables, outside markers and code.

Code may hold decimals, as settings have them, but a code span that is nothing but a number counts as prose. So may
numbers of versions, sections, theorems, equations and the like.
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
# Between such comments others put what a program says, as they do tables.
_BEGIN, _END = re.compile(r"^<!-- (?!end )(\w+ \S+) -->$"), re.compile(r"^<!-- end \S+ -->$")


def typed_figures(text: str) -> Iterator[tuple[int, str]]:
    """The number of the line and the figure, of each that stands in a page of Markdown."""
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
    """The line without code, links and numbered things."""
    line = _SPAN.sub(lambda span: span[2] if _FIGURE.fullmatch(span[2].strip()) else " ", line)
    return _NUMBERED.sub(" ", _LINK.sub(" ", line))
