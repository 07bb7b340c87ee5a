"""A description of a log's times: unit, zone, range, and days without rows."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from beamwood.data.cells.times import as_in_log, moments, numbers_of, parts_of_second, shared_parts
from beamwood.data.files.source import Source, reading
from beamwood.data.log import CheckedLog

__all__ = ["describe_times"]

_DAY = 86_400
_BARS = 12
_UNITS = {1: "seconds", 10**3: "milliseconds", 10**6: "microseconds", 10**9: "nanoseconds"}
# A zone at the end, also with its name in parentheses, or before the year, as Unix, Java and Twitter print it.
_ZONE = (
    r"([Zz]|[+-]\d{2}:?\d{2}(\s*\([A-Za-z ]+\))?|[A-Z]{2,5}|[A-Za-z]+/[A-Za-z_]+)\]?\s*$"
    r"|:\d{2} ([A-Z]{1,5}|[+-]\d{4}) \d{4}\s*$"
)
# Endings that only look like a zone: a negative number, am and pm.
_CLOCK = r"(?i)^[\d.+-]+$|[ap]m\s*$"


def describe_times(checked: CheckedLog) -> dict[str, Any] | None:
    """Unit, zone, first and last time, days without rows and rows by time; None where the log has no times.

    Times that only order rows, such as positions, have no days.
    """
    if "time" not in checked.rows.collect_schema().names():
        return None
    time, name, unit = pl.col("time"), checked.report.columns["time"], checked.report.time_unit
    with reading(checked.report.source):
        first, last = checked.rows.select(time.min().alias("a"), time.max()).collect(engine="streaming").row(0)
    span = moments(unit, first, last)
    told: dict[str, Any] = {
        "column": name,
        "kind": checked.report.time,
        "unit": _unit(checked, name) if unit in (None, "order") else "dates",
        "zone": _zone(checked.table, name),
        "first": span[0] or as_in_log(first, checked.report.time_scale),
        "last": span[1] or as_in_log(last, checked.report.time_scale),
    }
    parts = shared_parts(unit, first, last)
    return told if parts is None else told | _days(checked, parts)


def _unit(checked: CheckedLog, name: str) -> str:
    """The unit of numeric times."""
    number = numbers_of(checked.table, name)
    (largest,) = checked.table.measured(number.max())
    parts = parts_of_second(int(largest))
    return "numbers that only order" if parts is None else _UNITS[parts]


def _zone(table: Source, name: str) -> str:
    """The time zone, written or assumed."""
    dtype = table.schema[name]
    if isinstance(dtype, pl.Datetime):
        return dtype.time_zone or "none written, taken as UTC"
    if not table.holds_text(name):
        return "none written, taken as UTC"
    text = table.column(name).cast(pl.String)
    zoned, rows = table.measured((text.str.contains(_ZONE) & ~text.str.contains(_CLOCK)).sum(), text.count())
    if not zoned:
        return "none written, taken as UTC"
    return "written in each" if zoned == rows else f"written in {zoned:,} of {rows:,}, the others taken as UTC"


def _days(checked: CheckedLog, parts: int) -> dict[str, Any]:
    """The days from first to last, those without rows, their longest gap from row to row, and rows by time."""
    day = (pl.col("time") // (_DAY * parts)).alias("day")
    with reading(checked.report.source):
        counted = checked.rows.group_by(day).len().collect(engine="streaming").sort("day")
    days, rows = counted["day"].to_numpy(), counted["len"].to_numpy().astype(np.int64)
    gaps = np.diff(days)
    # A day after the other is no gap.
    longest = int(gaps.argmax()) if gaps.max(initial=1) > 1 else None
    edges = np.linspace(days[0], days[-1] + 1, min(_BARS, int(days[-1] - days[0]) + 1) + 1).astype(np.int64)
    return {
        "days": int(days[-1] - days[0] + 1),
        "days_without_rows": int(days[-1] - days[0] + 1 - len(days)),
        "longest_gap": None
        if longest is None
        else {"days": int(gaps[longest]), "from": _date(days[longest]), "to": _date(days[longest + 1])},
        "rows_by_time": [
            {"from": _date(low), "rows": int(rows[(days >= low) & (days < high)].sum())}
            for low, high in pairwise(edges)
        ],
    }


def _date(day: np.int64) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=int(day))).isoformat()
