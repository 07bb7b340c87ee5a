"""Text files without a header line: detection, and a guess of their columns."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from beamwood.data.columns import ALIASES, USUAL_EVENTS, known_names, squashed
from beamwood.data.files.text_shapes import OtherShapeError
from beamwood.data.header import is_time
from beamwood.errors import InputError

__all__ = ["column_guess", "refuse_without_names", "seems_headless"]

_NAMES = {name for role in ALIASES for name in known_names(role)}
_NAMES |= {"category", "categories", "genre", "genres", "id", "index", "label", "name", "price", "title", "url"}
_HASH = r"(?=.*\d)(?=.*[a-fA-F])[0-9a-fA-F-]{16,}"
_WHOLE = r"\d{1,18}"
_FRACTION = r"[+-]?\d*[.,]\d*[1-9]\d*"
_RATING = r"(10|\d)([.,][05]0*)?"
_LIST = r"[A-Za-z]*\d+(-[01])?( [A-Za-z]*\d+(-[01])?)*"
_PRODUCT, _SURELY = r"B0[0-9A-Z]{8}|\d{9}[\dX]", r"B0[0-9A-Z]{8}|\d{9}X"
_LEAST_ROWS, _MOST_KINDS, _LIKE_NUMBERED = 5, 30, 3
# A row with more values is not a row of a log.
_MOST_COLUMNS = 20


def seems_headless(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of cells holds values: no common name, but numbers as below it, a time, a hash, or a value
    that the next rows repeat."""
    first, others = rows[0], rows[1:]
    if list(first) in [list(row) for row in others]:
        return False
    again = [bool(cell.strip()) and any(row[at : at + 1] == [cell] for row in others) for at, cell in enumerate(first)]
    if any(squashed(cell) in _NAMES and not twice for cell, twice in zip(first, again, strict=True)):
        return False
    bare = [cell for cell in first if cell]
    if len(first) >= _LIKE_NUMBERED and bare == [str(number) for number in range(len(bare))]:
        return False
    counts = all(re.fullmatch(_WHOLE, row[0].strip()) for row in rows if row)
    return counts or any(again) or any(is_time(cell) or re.fullmatch(_HASH, cell.strip()) for cell in first)


def column_guess(rows: Sequence[Sequence[str]]) -> list[str]:
    """A guessed name for each column: user, item, rating, event or time, "-" for an unused one.

    Coordinates, lists and row numbers are not ids; product codes are items.
    """
    columns = _columns(rows)
    names = ["-"] * len(columns)
    time = max((at for at, cells in enumerate(columns) if cells and all(map(is_time, cells))), default=None)
    kinds = [at for at, cells in enumerate(columns) if at != time and _are_kinds(cells)]
    ids = [at for at, cells in enumerate(columns) if at != time and at not in kinds[:1] and _may_be_ids(cells)]
    others = len(ids) - 1 + any(map(_are_lists, columns))
    if others > 1 and _number_rows(columns[ids[0]]):
        ids = ids[1:]
    taken = ids[:1] + [at for at in ids[1:] if len(rows) < _LEAST_ROWS or len({*columns[at]}) > 1][:1]
    if len(taken) == 2 and _are_products(columns[taken[0]]) and not _are_products(columns[taken[1]]):
        taken.reverse()
    free = [at for at in range(max(taken, default=0) + 1, len(columns)) if at != time and at not in kinds[:1]]
    rated = [at for at in free if _are_ratings(columns[at])]
    places = {"user": taken[:1], "item": taken[1:], "event": kinds[:1], "rating": rated[:1]}
    for name, found in (places | {"time": [] if time is None else [time]}).items():
        for at in found:
            names[at] = name
    return names


def refuse_without_names(path: Path, rows: Sequence[Sequence[str]], separator: str, *, is_log: bool) -> NoReturn:
    """Errors: always, with the problem of a file with these rows, and the fix."""
    first = rows[0]
    shown = ", ".join(cell[:40] for cell in first[:6]) + (", .." if len(first) > 6 else "")
    found = f"{path}: its first line seems to hold values ({shown})"
    if not is_log:
        command = _named_table(path, rows, separator)
        raise InputError(f"{found}: add a header line, as with: {command}")
    guess, columns = column_guess(rows), _columns(rows)
    lists = [at for at, cells in enumerate(columns) if _are_lists(cells)]
    if lists and "item" not in guess:
        place = next((at for at in lists if _are_marked(columns[at])), lists[0])
        command = _split_of(path, columns, separator, guess, place)
        raise OtherShapeError(
            f"{path}: column {place + 1} holds several items in a row; write a row for each, as with: {command}"
        )
    if not {"user", "item"} <= {*guess} or len(guess) > _MOST_COLUMNS:
        raise InputError(f"{found}: name its columns in order with --columns, '-' for an unused one, as user,item,-")
    taken = ", ".join(f"{name} {first[guess.index(name)][:40]!r}" for name in ("user", "item"))
    raise InputError(
        f"{found}: name its columns in order, such as --columns {','.join(guess)} for {taken}; choose other names "
        "if this guess is wrong"
    )


def _named_table(path: Path, rows: Sequence[Sequence[str]], separator: str) -> str:
    """The command that adds a header line to an item table."""
    line = separator.join(_table_names(rows)).replace("\t", "\\t")
    named = path.with_name(f"named.{path.name}")
    shows = "iconv -f WINDOWS-1252 -t UTF-8" if any("\ufffd" in cell for row in rows for cell in row) else "cat"
    return f"(printf '{line}\\n'; {shows} {shlex.quote(str(path))}) > {shlex.quote(str(named))}"


def _split_of(path: Path, columns: Sequence[Sequence[str]], separator: str, guess: list[str], at: int) -> str:
    """The command that writes a row for each item of a list column, for lists with click marks of the clicked ones."""
    told = [
        (name, "a[i]" if name == "item" else f"${guess.index(name) + 1}")
        for name in ("user", "item", "time")
        if name == "item" or name in guess
    ]
    head = "\\t".join(name for name, _ in told)
    show = "print " + ' "\\t" '.join(cell for _, cell in told)
    if _are_marked(columns[at]):
        show = f'if (sub(/-1$/, "", a[i])) {show}'
    mark = {"\t": "\\t"}.get(separator, separator)
    loop = f'n = split(${at + 1}, a, " "); for (i = 1; i <= n; i++) {show}'
    return f"awk -F'{mark}' 'BEGIN {{print \"{head}\"}} {{{loop}}}' {shlex.quote(str(path))} > log.tsv"


def _table_names(rows: Sequence[Sequence[str]]) -> list[str]:
    """Names for the columns of an item table: first the id; text with blanks is a title, "a|b" are categories."""
    names, free = ["item_id"], ["title"]
    for at in range(1, len(rows[0])):
        cells = [row[at] for row in rows if at < len(row)]
        words = sum(" " in cell.strip() for cell in cells) * 2 > len(cells)
        if free and words:
            names.append(free.pop())
        elif "category" not in names and any("|" in cell for cell in cells):
            names.append("category")
        else:
            names.append(f"column_{at + 1}")
    return names


def _columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The non-blank cells of each column."""
    return [[row[at].strip() for row in rows if at < len(row) and row[at].strip()] for at in range(len(rows[0]))]


def _are_kinds(cells: Sequence[str]) -> bool:
    kinds = {squashed(cell) for cell in cells}
    return len(kinds) <= _MOST_KINDS and bool(kinds & USUAL_EVENTS)


def _may_be_ids(cells: Sequence[str]) -> bool:
    return bool(cells) and not any(re.fullmatch(_FRACTION, cell) for cell in cells) and not _are_lists(cells)


def _are_ratings(cells: Sequence[str]) -> bool:
    """Whether all are small numbers with more than one distinct value."""
    several = len(cells) < _LEAST_ROWS or len({*cells}) > 1
    return bool(cells) and several and all(re.fullmatch(_RATING, cell) for cell in cells)


def _are_lists(cells: Sequence[str]) -> bool:
    """Whether all cells are blank-separated ids, and many hold several."""
    several = sum(" " in cell for cell in cells)
    return 5 * several > len(cells) and all(re.fullmatch(_LIST, cell) for cell in cells)


def _are_marked(cells: Sequence[str]) -> bool:
    """Whether each id in the lists has a click mark, as "N7-1 N9-0"."""
    return all(re.search(r"-[01]$", part) for cell in cells for part in cell.split())


def _number_rows(cells: Sequence[str]) -> bool:
    """Whether the cells are consecutive numbers, as row numbers are."""
    if len(cells) < _LEAST_ROWS or not all(re.fullmatch(r"\d{1,18}", cell) for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return all(later == number + 1 for number, later in pairwise(numbers))


def _are_products(cells: Sequence[str]) -> bool:
    """Whether all are product codes or ISBNs, and at least one is not a number."""
    return all(re.fullmatch(_PRODUCT, cell) for cell in cells) and any(re.fullmatch(_SURELY, cell) for cell in cells)
