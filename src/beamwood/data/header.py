"""Whether the first line of a text file seems to hold column names or values."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["UNITS", "header_hint", "is_time", "seem_values"]

UNITS = {
    "seconds": (3e8, 1e10),
    "milliseconds": (3e11, 1e13),
    "microseconds": (3e14, 1e16),
    "nanoseconds": (3e17, 1e19),
}
"""Units of integer times since 1970, with the bounds of such times in the years 1979 to 2286."""

_NUMBER = r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*"
_DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([ T].*)?"
_NAMED_DATE = r"\s*[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d{2}:\d{2}:\d{2} .*\d{4}\s*"
# A line with more values is not a row of a log.
_MOST_CELLS = 40
_REPEATED = r"_duplicated_\d+$"


def header_hint(names: Sequence[str]) -> str:
    """The advice for a text file whose first line gave these column names, "" where they seem sound."""
    mark = _mark_within(names[0]) if len(names) == 1 else None
    if mark is not None:
        return f"; its columns seem to be separated by {mark!r}: use --separator {mark!r}"
    cells = [re.sub(_REPEATED, "", name) for name in names]
    if seem_values(cells) and len(cells) <= _MOST_CELLS:
        return (
            f"; its first line seems to hold values ({', '.join(cells[:6])}): name its columns in their order, such as "
            f"--columns {','.join(['user', 'item', 'time', *'-' * len(cells)][: len(cells)])}"
        )
    return ""


def _mark_within(line: str) -> str | None:
    """The likely separator in a line that was read as one name, or None."""
    usual = next((mark for mark in ("::", ";", "\t", "|", ",") if mark in line), None)
    if usual is not None:
        return usual
    marks = dict.fromkeys(re.findall(r"[^\w\s.'\"-]+|[\x00-\x08\x0e-\x1f]", line))
    return next((mark for mark in marks if all(re.fullmatch(r"[\w .-]+", part) for part in line.split(mark))), None)


def seem_values(cells: Sequence[str]) -> bool:
    """Whether the cells of a line seem to be values rather than names: two numbers, or a date."""
    numbers = sum(re.fullmatch(_NUMBER, cell) is not None for cell in cells)
    return numbers >= 2 or any(re.fullmatch(_DATE, cell) or re.fullmatch(_NAMED_DATE, cell) for cell in cells)


def is_time(cell: str) -> bool:
    """Whether a cell is a date, or a number in the bounds of `UNITS`."""
    if re.fullmatch(_DATE, cell) or re.fullmatch(_NAMED_DATE, cell):
        return True
    return re.fullmatch(_NUMBER, cell) is not None and any(
        least <= float(cell) < most for least, most in UNITS.values()
    )
