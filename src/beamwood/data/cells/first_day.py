"""Notes on times as which an empty one is often written: the start of 1970, and 1900 or before."""

from __future__ import annotations

import polars as pl

from beamwood.data.cells.time_text import ReadTimes
from beamwood.data.cells.times import PARTS_OF_UNIT, parts_of_second
from beamwood.data.files.source import Source
from beamwood.words import counted

__all__ = ["first_day_notes"]

_DAY = 86_400
_PARTS = (1, 10**3, 10**6, 10**9)
# Seconds from 1900-01-02 to 1970.
_OLD = 2_208_902_400


def first_day_notes(table: Source, name: str, times: ReadTimes) -> list[str]:
    """Notes where the last time is a date after 1972, and some are within a day of 1970-01-01 or not after 1900-01-01.

    Such a row (0, -1, a cut number, a null date of a database) counts as the oldest of its user, so that a missing time
    would silently reorder histories.
    """
    if times.time is None or times.unit == "order":
        return []
    near, old = ([each[kind].sum() for each in _empty(times.time)] for kind in (0, 1))
    last, *counts = table.measured(times.time.max(), *near, *old)
    # Dates are in a known unit; numbers in the one that the last one is in.
    parts = parts_of_second(last) if times.unit is None else PARTS_OF_UNIT[times.unit]
    if parts is None or last < 10**8 * parts:
        return []
    notes, unit = list[str](), _PARTS.index(parts)
    for kind, when in enumerate(("1970-01-01 or the day before", "1900-01-01 or before")):
        count = counts[kind * len(_PARTS) + unit]
        if count:
            row, value = table.first(name, _empty(times.time)[unit][kind])
            notes.append(
                f"'{name}': {counted(count, 'row has', 'rows have')} a time of {when}, the first {value!s} in row "
                f"{row}, and so the first place in a history. If it means a missing time, leave it empty and use "
                "--missing drop"
            )
    return notes


def _empty(time: pl.Expr) -> list[tuple[pl.Expr, pl.Expr]]:
    """By unit, whether a time is near the start of 1970, and whether it is old."""
    return [(time.abs() < _DAY * parts, time < -_OLD * parts) for parts in _PARTS]
