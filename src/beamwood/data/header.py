"""What the first line of a text file seems to be: names, or values for which names have to be given."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["column_guess", "header_hint", "seem_values"]

_NUMBER = r"\s*[+-]?(\d+\.?\d*|\.\d+)\s*"
_DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([ T].*)?"
_RATING = r"\s*(10|\d)([.,]\d)?\s*"
# A line of so many values is no row of a log.
_MOST_CELLS = 40
_REPEATED = r"_duplicated_\d+$"


def header_hint(names: Sequence[str]) -> str:
    """What seems wrong with a text file whose first line gave these names; empty where nothing does."""
    mark = next((mark for mark in ("::", ";", "\t", "|", ",") if len(names) == 1 and mark in names[0]), None)
    if mark is not None:
        return f"; its columns seem to be separated by {mark!r}: say --separator '{mark}'"
    cells = [re.sub(_REPEATED, "", name) for name in names]
    if seem_values(cells) and len(cells) <= _MOST_CELLS:
        guess = column_guess(cells)
        return (
            f"; its first line seems to hold values ({', '.join(cells[:6])}): name its columns in their order, such as "
            f"--columns {','.join(guess)}"
        )
    return ""


def seem_values(cells: Sequence[str]) -> bool:
    """Whether the cells of a line seem to be values rather than names: two numbers, or a date."""
    numbers = sum(re.fullmatch(_NUMBER, cell) is not None for cell in cells)
    return numbers >= 2 or any(re.fullmatch(_DATE, cell) for cell in cells)


def column_guess(cells: Sequence[str]) -> list[str]:
    """Names for the columns of a line of values, "-" for what is of no use: the user, the item, a rating, a time."""
    names = ["-"] * len(cells)
    times = [place for place, cell in enumerate(cells) if re.fullmatch(_DATE, cell) or _is_moment(cell)]
    others = [place for place in range(len(cells)) if place not in times[-1:]]
    for name, place in zip(("user", "item"), others, strict=False):
        names[place] = name
    for place in times[-1:]:
        names[place] = "time"
    ratings = [place for place in others[2:] if re.fullmatch(_RATING, cells[place])]
    for place in ratings[:1]:
        names[place] = "rating"
    return names


def _is_moment(cell: str) -> bool:
    """Whether a number counts seconds, or parts of them, from 1979 on."""
    return re.fullmatch(_NUMBER, cell) is not None and float(cell) >= 3e8
