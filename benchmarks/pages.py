"""Pages with tables between markers: rendered from the lines, and checked.

A table stands between `<!-- table NAME -->` and `<!-- end NAME -->`, each on a line of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from beamwood.errors import InputError, nearest
from beamwood.methods import METHODS
from benchmarks.bench import Bench
from benchmarks.recipes import RECIPES
from benchmarks.tables import rendered
from benchmarks.typed import typed_figures

__all__ = ["faults", "pages", "render"]

_MARKER = re.compile(r"^<!-- (\w+) (\S+) -->$")
# The pages that may describe the project's history.
_EXEMPT = ("docs/lab",)


def pages(root: Path) -> list[Path]:
    """README, documentation and results, without the log of experiments."""
    found = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    found += sorted((root / "benchmarks").rglob("*.md"))
    return [page for page in found if page.is_file() and not page.relative_to(root).as_posix().startswith(_EXEMPT)]


def render(bench: Bench) -> list[Path]:
    """Render every table; return the pages that changed."""
    changed, made = [], _Tables(bench)
    for page in pages(bench.place.root):
        text = page.read_text()
        new = made.into(page, text)
        if new != text:
            page.write_text(new)
            changed.append(page)
    return changed


def faults(bench: Bench) -> list[str]:
    """Errors: outdated tables, figures typed by hand, and lines that could not be repeated."""
    return [*_wrong_pages(bench), *_wrong_lines(bench)]


class _Tables:
    """Each table, rendered once."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self._found = bench, dict[str, str]()

    def into(self, page: Path, text: str) -> str:
        """The text with every table filled in; text between other kinds of markers is kept.

        Errors: a marker without its pair, an unknown table.
        """
        kept: list[str] = []
        inside: tuple[str, str] | None = None
        for number, line in enumerate(text.split("\n"), start=1):
            marker = _MARKER.match(line)
            if marker is None:
                kept += [] if inside is not None and inside[0] == "table" else [line]
                continue
            kind, name = marker.groups()
            if (kind == "end") != (inside is not None) or (inside is not None and name != inside[1]):
                raise InputError(
                    f"{page}:{number}: '{line}' has no pair; write <!-- table NAME --> and <!-- end NAME -->"
                )
            inside = None if kind == "end" else (kind, name)
            kept += [line, "", self._table(name), ""] if kind == "table" else [line]
        if inside is not None:
            raise InputError(f"{page}: {' '.join(inside)} has no end; write <!-- end {inside[1]} --> below it")
        return "\n".join(kept)

    def _table(self, name: str) -> str:
        if name not in self._found:
            self._found[name] = rendered(self.bench, name)
        return self._found[name]


def _wrong_pages(bench: Bench) -> Iterator[str]:
    made = _Tables(bench)
    for page in pages(bench.place.root):
        text, where = page.read_text(), page.relative_to(bench.place.root).as_posix()
        if made.into(page, text) != text:
            yield f"{where}: a table does not match its lines; run `python -m benchmarks report`"
        for number, figures in groupby(typed_figures(text), key=itemgetter(0)):
            named = ", ".join(figure for _, figure in figures)
            yield f"{where}:{number}: typed by hand: {named}; put it in a rendered table, or remove it"


def _wrong_lines(bench: Bench) -> Iterator[str]:
    known = {run.name for run in bench.suite}
    for line in bench.lines:
        if line.recipe not in RECIPES:
            yield f"{line.name}: its recipe '{line.recipe}' does not exist{nearest(line.recipe, RECIPES)}"
        elif line.arguments.get("method") not in (None, *METHODS):
            yield f"{line.name}: its method '{line.arguments['method']}' does not exist"
        elif line.name not in known:
            yield f"{line.name}: the suite has no such run; restore its row, or remove the line"
        elif line.commit is None:
            yield f"{line.name}: it names no commit; repeat the run in a checkout"
        if line.values is not None and not (bench.lines.folder / line.values).is_file():
            yield f"{line.name}: {line.values} is missing; restore it from git, or repeat the run"
