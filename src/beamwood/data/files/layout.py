"""The layout of a text file: its separator, given or detected from the first lines, and its column names.

A file has one header line, unless names are given, then a row a line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from beamwood.data.columns import known_names, squashed
from beamwood.data.header import seem_values
from beamwood.errors import InputError

__all__ = ["CANDIDATES", "OF_TABLES", "Layout", "check_names", "fields_of", "separator_of"]

_WORDS = {
    "tab": "\t",
    "\\t": "\t",
    "comma": ",",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
    "blank": " ",
}
# Tried after the separator of the file's suffix; a blank is tried last.
CANDIDATES = ("\t", ";", "|", "::", ",")
# Cells of text, such as descriptions, may be longer than the 131,072 characters that csv allows at first.
csv.field_size_limit(2**31 - 1)
# The share of lines with the same number of cells that suffices where no separator splits all of them alike.
_MOST = 0.8
_NO_USE = ("-", "_", "")
_LONGEST = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """The given layout of a text file: the separator, and the column names where it has no header line.

    `is_log`: whether it is a log, rather than a table of items or users.
    """

    separator: str | None = None
    names: tuple[str, ...] | None = None
    is_log: bool = True

    @classmethod
    def of(cls, separator: str | None, header: Sequence[str] | None) -> Self:
        """The layout of given options: "tab" and "\\t" are a tab; "-" is an unused column, which gets a name.

        Errors: an invalid separator; repeated names, or no names.
        """
        if separator is not None:
            separator = _meant(separator) if isinstance(separator, str) else separator
            usable = isinstance(separator, str) and 0 < len(separator) <= _LONGEST
            if not usable or any(mark in separator for mark in '"\n\r'):
                raise InputError(f"--separator {separator!r} separates nothing; give ';', '::', tab or another mark")
        if header is None:
            return cls(separator)
        if isinstance(header, str) or not all(isinstance(name, str) for name in header):
            raise InputError(f"header={header!r} is not a list of names; write [{header!r}] or ['user', 'item']")
        given = [name.strip() for name in header]
        names = [f"unnamed {place}" if name in _NO_USE else name for place, name in enumerate(given, start=1)]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"--columns names '{name}' twice; give each its own name, '-' for an unused one")
        if not any(name not in _NO_USE for name in given):
            raise InputError("--columns names no column; write them in their order, such as user,item,rating,time")
        return cls(separator, tuple(names))

    @property
    def is_given(self) -> bool:
        """Whether anything was given."""
        return self.separator is not None or self.names is not None


def _meant(separator: str) -> str:
    """The separator of a word, as "tab", or of a code, as "\\x01"."""
    code = re.fullmatch(r"\\x([0-9a-fA-F]{2})", separator)
    return chr(int(code[1], 16)) if code else _WORDS.get(separator, separator)


OF_TABLES = Layout(is_log=False)


def fields_of(lines: Sequence[str], separator: str, quote: str | None) -> list[list[str]]:
    """The cells of the non-blank lines; quotes are parsed where the separator is one character."""
    given = [line for line in lines if line.strip()]
    if len(separator.encode()) > 1 or quote is None:
        return [line.split(separator) for line in given]
    # A quoted cell may continue in the next line. csv would end a row at a carriage return within a line.
    whole = (f"{line}\n".replace("\r", " ") for line in given)
    escape = "\\" if any('\\"' in line for line in given) else None
    return [row for row in csv.reader(whole, delimiter=separator, quotechar=quote, escapechar=escape) if row]


def separator_of(lines: Sequence[str], own: str | None, quote: str | None) -> str | None:
    """The separator of a file's first lines; None where none is found.

    `own`: the separator of the file's suffix. Another is preferred where it splits all lines into equally many cells,
    and into more than `own`. Without `own`, most lines suffice, so that an error can name the others.
    """
    first = fields_of(lines[:1], own, quote) if own is not None else []
    best, most = own, len(first[0]) if first else 1
    for mark in CANDIDATES:
        count = _width(lines, mark, quote)
        if count > most:
            best, most = mark, count
    if most < 2 and _width(lines, " ", quote) > 1:
        return " "
    if best is not None:
        return best
    widths = {mark: _width(lines, mark, quote, _MOST) for mark in CANDIDATES}
    likely = max(CANDIDATES, key=widths.__getitem__)
    return likely if widths[likely] > 1 else None


def _width(lines: Sequence[str], mark: str, quote: str | None, share: float = 1.0) -> int:
    """The number of cells of the first line, 0 where less than `share` of the lines have as many."""
    rows = fields_of(lines, mark, quote)
    width = len(rows[0]) if rows else 0
    # A separator may also end each line.
    alike = [len(row) == width or (len(row) == width + 1 and not row[-1]) for row in rows]
    return width if sum(alike) >= share * len(rows) else 0


def check_names(source: str, names: Sequence[str], first: Sequence[str]) -> None:
    """Errors: another number of names than cells in the first line, or a first line that holds names itself."""
    if len(names) != len(first):
        raise InputError(
            f"{source}: --columns names {len(names)} columns, its first line has {len(first)} "
            f"({', '.join(first[:8])}); name each, '-' for an unused one"
        )
    known = {name for role in ("user", "item", "time", "weight") for name in known_names(role)} | set(names)
    if sum(squashed(cell) in known for cell in first) >= 2 and not seem_values(first):
        raise InputError(
            f"{source}: its first line ({', '.join(first[:8])}) seems to hold names already; leave --columns out"
        )
