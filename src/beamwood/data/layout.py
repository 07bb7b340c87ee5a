"""How the columns of a text file lie: what separates them, told or found in the first lines, and what they are called.

Shape legend of the files: one line of names unless names are given, then a row a line.
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
# A file's own separator counts before these; a blank only where nothing else fits.
CANDIDATES = ("\t", ";", "|", "::", ",")
# The share of lines that is enough where no separator divides all of them alike.
_MOST = 0.8
_NO_USE = ("-", "_", "")
_LONGEST = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """What was said of a text file: the separator, and the names of columns where it has no line of them.

    `is_log`: whether it is a log, and no table of items or users.
    """

    separator: str | None = None
    names: tuple[str, ...] | None = None
    is_log: bool = True

    @classmethod
    def of(cls, separator: str | None, header: Sequence[str] | None) -> Self:
        """The layout of what was typed: "tab" and "\\t" are a tab; "-" is a column without use, which gets a name.

        Errors: a separator that cannot be one; names that are repeated, or none.
        """
        if separator is not None:
            separator = _meant(separator) if isinstance(separator, str) else separator
            usable = isinstance(separator, str) and 0 < len(separator) <= _LONGEST
            if not usable or any(mark in separator for mark in '"\n\r'):
                raise InputError(f"--separator {separator!r} separates nothing; give ';', '::', tab or another mark")
        if header is None:
            return cls(separator)
        if isinstance(header, str) or not all(isinstance(name, str) for name in header):
            raise InputError(f"header={header!r} is no list of names; write [{header!r}] or ['user', 'item', 'time']")
        given = [name.strip() for name in header]
        names = [f"unnamed {place}" if name in _NO_USE else name for place, name in enumerate(given, start=1)]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"--columns names '{name}' twice; give each its own name, '-' for one without use")
        if not any(name not in _NO_USE for name in given):
            raise InputError("--columns names no column; write them in their order, such as user,item,rating,time")
        return cls(separator, tuple(names))

    @property
    def is_said(self) -> bool:
        """Whether anything was."""
        return self.separator is not None or self.names is not None


def _meant(separator: str) -> str:
    """The mark of a word, as "tab", or of a sign that no keyboard has, as "\\x01"."""
    code = re.fullmatch(r"\\x([0-9a-fA-F]{2})", separator)
    return chr(int(code[1], 16)) if code else _WORDS.get(separator, separator)


OF_TABLES = Layout(is_log=False)


def fields_of(lines: Sequence[str], separator: str, quote: str | None) -> list[list[str]]:
    """The cells of lines that are not blank; quotes are read where the separator is one character."""
    given = [line for line in lines if line.strip()]
    if len(separator.encode()) > 1 or quote is None:
        return [line.split(separator) for line in given]
    # A quoted cell goes on in the next line. A carriage return within a line ends none, but csv takes it for an end.
    whole = (f"{line}\n".replace("\r", " ") for line in given)
    escape = "\\" if any('\\"' in line for line in given) else None
    return [row for row in csv.reader(whole, delimiter=separator, quotechar=quote, escapechar=escape) if row]


def separator_of(lines: Sequence[str], own: str | None, quote: str | None) -> str | None:
    """What separates the columns of the first lines of a file; None where nothing does so in each.

    `own`: what the file's ending says. Another counts where all lines have as many cells by it, and more than by `own`.
    Where there is none, most lines are enough: of the others it can be said what is wrong with them.
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
    """How many cells the first line has by a separator, 0 where less than a share of the lines has as many."""
    rows = fields_of(lines, mark, quote)
    width = len(rows[0]) if rows else 0
    # A separator may also end each line.
    alike = [len(row) == width or (len(row) == width + 1 and not row[-1]) for row in rows]
    return width if sum(alike) >= share * len(rows) else 0


def check_names(source: str, names: Sequence[str], first: Sequence[str]) -> None:
    """Errors: names that do not fit the first line of a file, or for a file whose first line holds names."""
    if len(names) != len(first):
        raise InputError(
            f"{source}: --columns names {len(names)} columns, its first line has {len(first)} "
            f"({', '.join(first[:8])}); name each, '-' for one without use"
        )
    known = {name for role in ("user", "item", "time", "weight") for name in known_names(role)} | set(names)
    if sum(squashed(cell) in known for cell in first) >= 2 and not seem_values(first):
        raise InputError(
            f"{source}: its first line ({', '.join(first[:8])}) seems to hold names already; leave --columns out"
        )
