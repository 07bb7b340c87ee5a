"""A note on times at the start of 1970, as which an empty time is often written."""

from __future__ import annotations

from beamwood.data.cells.time_text import ReadTimes
from beamwood.data.cells.times import parts_of_second
from beamwood.data.files.source import Source
from beamwood.words import counted

__all__ = ["first_day_notes"]

_DAY = 86_400
_PARTS = (1, 10**3, 10**6, 10**9)


def first_day_notes(table: Source, name: str, times: ReadTimes) -> list[str]:
    """A note where some times are within a day of 1970-01-01 (0, -1, a cut number) and the last is a date after 1972.

    Such a row counts as the oldest of its user, so that a missing time would silently reorder histories.
    """
    if times.time is None or times.unit == "order":
        return []
    time = times.time
    last, *counts = table.measured(time.max(), *((time.abs() < _DAY * parts).sum() for parts in _PARTS))
    # Dates are in a known unit; numbers in the one that the last one is in.
    parts = parts_of_second(last) if times.unit is None else {"us": 10**6, "ns": 10**9}[times.unit]
    if parts is None or last < 10**8 * parts:
        return []
    count = counts[_PARTS.index(parts)]
    if not count:
        return []
    row, value = table.first(name, time.abs() < _DAY * parts)
    return [
        f"'{name}': {counted(count, 'row has', 'rows have')} a time of 1970-01-01 or the day before, the first "
        f"{value!s} in row {row}, and so the first place in a history. If it means a missing time, leave it empty and "
        "use --missing drop"
    ]
