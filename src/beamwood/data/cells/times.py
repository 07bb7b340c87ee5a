"""Times of any kind as Int64: only their order matters."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import polars as pl

from beamwood.data.cells.ids import missing_cells
from beamwood.data.cells.time_text import UNREAD, ReadTimes, by_format, by_shape, looks_like_time, numeric_date
from beamwood.data.columns import DATES, ColumnNames, plain_name, squashed
from beamwood.data.files.source import Source, reading
from beamwood.data.header import UNITS
from beamwood.errors import InputError

__all__ = [
    "PARTS_OF_UNIT",
    "as_in_log",
    "moments",
    "notes_of_times",
    "numbers_of",
    "parts_of_second",
    "read_times",
    "seems_time",
    "shared_parts",
]

PARTS_OF_UNIT = {"us": 10**6, "ns": 10**9}
"""The units a second of times read from dates, by `ReadReport.time_unit`."""
_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WHOLE = r"^\s*[+-]?\d{1,19}(\.0*)?\s*$"
_EXPONENT = r"[\d.][eE][+-]?\d"
# Dates written as one integer.
_DATES = (
    ("%Y%m%d", 19_700_101, 21_001_231),
    ("%Y%m%d%H%M", 19_700_101_0000, 21_001_231_2359),
    ("%Y%m%d%H%M%S", 19_700_101_000_000, 21_001_231_235_959),
)
_OF_DAY = r"^\s*\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([AaPp][Mm])?\s*$"
_NAMED = re.compile(r"time|date|stamp|created|(^|_)(at|ts|dat|datum|epoch|when)$")
_SAMPLE, _MOST_TEXTS = 1000, 100_000
# Numbers of any name may be seconds since 1970 in these years; other numbers of that size, as of telephones, are rarer.
_LIKELY = tuple(dt.datetime(year, 1, 1, tzinfo=dt.UTC).timestamp() for year in (2000, 2040))
_LARGEST = 2.0**62
_EXACT = 2.0**53  # a float above it may stand for several whole numbers


def read_times(table: Source, name: str, time_format: str | None) -> ReadTimes:
    """The expression `time` that reads a time column, its unit, and a description.

    Integers are kept, unless all are dates such as 20240131; numbers with fractions are scaled by a power of ten;
    dates, times with a zone (UTC without one) and text with the year first or the month by name become microseconds, or
    nanoseconds where the column has them. Other text needs a `time_format`, such as "%d.%m.%Y %H:%M". Decimals, also in
    text, are read without floats. A column of missing cells only (null, NaN, blank or a null word, as "NaT") means that
    the order of rows counts. Errors: some cells missing; values that do not parse, with their count and the first one;
    times of day without a date; numbers in two units; floats, and text with an exponent, above 2^53.
    """
    rows, lacking = table.measured(pl.len(), missing_cells(table, name, words=True).sum())
    if lacking == rows:
        return ReadTimes(None, f"'{name}' is empty; the order of a user's rows is their order")
    found = _by_type(table, name) if time_format is None else by_format(table, name, time_format)
    if found is None:
        _refuse_of_day(table, name)
        row, value = table.first(name, ~missing_cells(table, name, words=True))
        raise InputError(
            f"{table.name}: column '{name}' is {UNREAD}, such as {value!r} in row {row}; "
            f"{_advice(table, name, time_format)}"
        )
    assert found.time is not None
    _check(table, name, found.time, rows, lacking, time_format)
    if found.unit is None:
        _refuse_two_units(table, name)
    return replace(found, time=found.time.alias("time"), words=f"'{name}', {found.words}")


def parts_of_second(time: int) -> int | None:
    """The units a second (1, 10^3, 10^6 or 10^9) of a time since 1970, by its size, in the years 1973 to 5138.

    None for other numbers, such as positions.
    """
    every = (1, 10**3, 10**6, 10**9)
    return next((parts for parts in every if 10**8 * parts <= time < 10**11 * parts), None)


def moments(unit: str | None, first: int, last: int) -> tuple[str, str] | tuple[None, None]:
    """Two times of a log in a `ReadReport.time_unit` as ISO 8601 text in UTC; None where they only order rows."""
    parts = shared_parts(unit, first, last)
    if parts is None:
        return None, None
    start = dt.datetime(1970, 1, 1)
    early, late = (start + dt.timedelta(microseconds=time * 10**6 // parts) for time in (first, last))
    return early.isoformat(sep=" "), late.isoformat(sep=" ")


def as_in_log(time: int, scale: int) -> str:
    """A time that only orders rows, as the log has it; `scale`: its `ReadReport.time_scale`."""
    return str(time) if scale == 1 else f"{time / scale:.15g}"


def shared_parts(unit: str | None, first: int, last: int) -> int | None:
    """The units a second of both times; None where they are no dates in the years 1 to 9999."""
    if unit == "order":
        return None
    if unit is not None:
        parts = PARTS_OF_UNIT[unit]
        return parts if first // parts >= -62_135_596_800 and last // parts < 253_402_300_800 else None
    counted = parts_of_second(last)
    return counted if counted == parts_of_second(first) else None


def _by_type(table: Source, name: str) -> ReadTimes | None:
    dtype, column = table.schema[name], table.column(name)
    if dtype.is_integer():
        return _from_whole(table, column.cast(pl.Int64, strict=False))
    if dtype.is_float():
        found = _from_floats(table, name, column.cast(pl.Float64))
        rounded = " of 32 bits, rounded above 2^24" if dtype == pl.Float32 else ""
        return replace(found, words=found.words + rounded)
    if dtype.is_decimal():
        return _from_decimals(table, column)
    if isinstance(dtype, pl.Datetime):
        unit: Literal["us", "ns"] = "ns" if dtype.time_unit == "ns" else "us"
        return ReadTimes(column.dt.timestamp(unit), "date and time", unit)
    if dtype == pl.Date:
        return ReadTimes(column.cast(pl.Datetime("us")).dt.timestamp("us"), "date", "us")
    if table.holds_text(name):
        return _from_text(table, name, column.cast(pl.String))
    if dtype == pl.Time:
        _refuse_of_day(table, name)
    raise InputError(f"{table.name}: the time column {name} is of type {dtype}; use numbers, dates or ISO 8601 text")


def _from_whole(table: Source, number: pl.Expr) -> ReadTimes:
    """Integers unchanged, or as microseconds since 1970 where all are dates."""
    low, high = table.measured(number.min(), number.max())
    for pattern, least, most in _DATES:
        if low is None or not least <= low <= high <= most:
            continue
        text = number.cast(pl.String)
        moment = text.str.to_datetime(pattern, time_unit="us", strict=False)
        if "%H" not in pattern:
            moment = text.str.to_date(pattern, strict=False).cast(pl.Datetime("us"))
        (lost,) = table.measured((moment.is_null() & number.is_not_null()).any())
        if not lost:
            return ReadTimes(moment.dt.timestamp("us"), f"dates as whole numbers, such as {low}", "us")
    return ReadTimes(number, "whole numbers")


def _refuse_of_day(table: Source, name: str) -> None:
    """Errors: times of day without a date."""
    if table.schema[name] != pl.Time:
        if not table.holds_text(name):
            return
        text = table.column(name).cast(pl.String).alias("text")
        with reading(table.name):
            texts = table.frame.select(text).drop_nulls().head(_SAMPLE).collect()["text"]
        if not len(texts) or not texts.str.contains(_OF_DAY).all():
            return
    day = seems_time(table, [other for other in table.column_names if other != name])
    such = "" if day is None else f" with '{day[0]}', or use --time-column '{day[0]}'"
    raise InputError(f"{table.name}: column '{name}' holds times of day without a date; write both in one column{such}")


def _from_floats(table: Source, name: str, column: pl.Expr) -> ReadTimes:
    finite = pl.when(column.is_finite()).then(column)
    beyond = (finite.abs() > _EXACT) & (finite.abs() < 2.0**63)
    fractions, largest, inexact = _measures(table, finite, beyond)
    if inexact:
        row, value = table.first(name, beyond)
        raise InputError(
            f"{table.name}: column '{name}' has {inexact} times above 2^53 as floats, which are not exact there, the "
            f"first {value!r} in row {row}; write them as whole numbers"
        )
    if not fractions:
        return ReadTimes(finite.cast(pl.Int64, strict=False), "whole numbers")
    return _scaled_up((finite * 10.0 ** _digits(largest)).round().cast(pl.Int64, strict=False), largest)


def _from_decimals(table: Source, column: pl.Expr) -> ReadTimes:
    fractions, largest, _ = _measures(table, column, column.is_null())
    if not fractions:
        return ReadTimes(column.cast(pl.Int64, strict=False), "whole numbers")
    return _scaled_up(_scaled(column, _digits(largest)), largest)


def _measures(table: Source, column: pl.Expr, bad: pl.Expr) -> tuple[bool, float, int]:
    """Whether any number has a fraction, the largest magnitude, and the count of `bad` ones."""
    fractions, largest, count = table.measured((column != column.floor()).any(), column.abs().max(), bad.sum())
    return fractions, float(largest or 0), count


def _scaled_up(number: pl.Expr, largest: float) -> ReadTimes:
    """Scaled numbers; "order" where they are no seconds, as scaled day numbers would otherwise pass for seconds."""
    unit: Literal["order"] | None = "order" if parts_of_second(int(largest)) is None else None
    return ReadTimes(number, "numbers", unit, 10 ** _digits(largest))


def _digits(largest: float) -> int:
    """The digits of a fraction that are kept: six, fewer where the numbers are too large."""
    return next((digits for digits in (6, 3) if largest * 10**digits < _LARGEST), 0)


def _scaled(column: pl.Expr, digits: int) -> pl.Expr:
    """Decimals, also in text, times 10^digits, rounded."""
    return column.cast(pl.Decimal(38, digits), strict=False).to_physical().cast(pl.Int64, strict=False)


def _from_text(table: Source, name: str, column: pl.Expr) -> ReadTimes | None:
    given, text = column.filter(~missing_cells(table, name, words=True)), column.str.strip_chars()
    value = text.cast(pl.Float64, strict=False)
    whole, number, exponent, largest = table.measured(
        given.str.contains(_WHOLE).all(),
        given.str.contains(_NUMBER).mean() >= 0.5,
        given.str.contains(_EXPONENT).any(),
        value.filter(value.is_finite()).abs().max(),
    )
    if whole:
        return _from_whole(table, text.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False))
    if number and exponent:
        return _from_floats(table, name, value)
    if number:
        return _scaled_up(_scaled(text, _digits(largest or 0)), largest or 0)
    return by_shape(table, name)


def _check(table: Source, name: str, time: pl.Expr, rows: int, lacking: int, time_format: str | None) -> None:
    missing = missing_cells(table, name, words=True)
    unparsed = time.is_null() & ~missing
    (bad,) = table.measured(unparsed.sum())
    if not bad and not lacking:
        return
    if bad and time_format is None:
        _refuse_of_day(table, name)
    row, value = table.first(name, unparsed if bad else missing)
    if bad:
        raise InputError(
            f"{table.name}: column '{name}' has {bad} of {rows} times that cannot be read, the first {value!r} in row "
            f"{row}; {_advice(table, name, time_format)}"
        )
    raise InputError(
        f"{table.name}: column '{name}' has {lacking} of {rows} times that are missing, the first in row {row}; fill "
        "them, leave these rows out with --missing drop, or use --time-column none so that the order of rows counts"
    )


def _advice(table: Source, name: str, time_format: str | None) -> str:
    """The advice for unreadable times; a suggested format reads all of them."""
    if time_format is not None:
        return f"mend them or --time-format {time_format!r}"
    otherwise = "give numbers or ISO 8601 dates, or name another with --time-column"
    if not table.holds_text(name):
        return otherwise
    text = table.column(name).cast(pl.String).alias("text")
    with reading(table.name):
        texts = table.frame.select(text).drop_nulls().unique().head(_MOST_TEXTS).collect(engine="streaming")["text"]
    order, formats = numeric_date(texts)
    if not order:
        return f"{otherwise}, or give their format with --time-format, such as '%d.%m.%Y %H:%M'"
    known = " or ".join(f"--time-format {each!r}" for each in formats)
    return f"they are dates {order}" + (f": use {known}" if known else "; write them in one order")


def numbers_of(table: Source, name: str) -> pl.Expr:
    """The cells of a column as Float64, text stripped; null where a cell is not a number."""
    column = table.column(name)
    text = table.holds_text(name)
    return (column.cast(pl.String).str.strip_chars() if text else column).cast(pl.Float64, strict=False)


def _refuse_two_units(table: Source, name: str) -> None:
    """Errors: times in mixed units, as seconds and milliseconds."""
    number = numbers_of(table, name)
    within = {unit: (number >= least) & (number < most) for unit, (least, most) in UNITS.items()}
    neither = (number >= 3e8) & ~pl.any_horizontal(within.values())
    others, *counts = table.measured(neither.sum(), *(there.sum() for there in within.values()))
    found = {unit: count for unit, count in zip(within, counts, strict=True) if count}
    # Counters also have values between the ranges of two units; times since 1970 do not.
    if len(found) < 2 or others:
        return
    examples = []
    for unit, count in found.items():
        row, value = table.first(name, within[unit])
        examples.append(f"{count} of {unit}, such as {value} in row {row}")
    raise InputError(
        f"{table.name}: column '{name}' mixes units of time: {', '.join(examples)}; convert them to one unit, or "
        "histories are in a wrong order"
    )


def seems_time(table: Source, others: Sequence[str]) -> tuple[str, Any] | None:
    """The first of the columns that seems to hold times, and an example; None where none does."""
    for name in others:
        dtype, named = table.schema[name], _NAMED.search(plain_name(name)) is not None
        if not (dtype.is_temporal() or dtype == pl.String or (named and dtype.is_numeric())) or dtype == pl.Duration:
            continue
        cells = _sampled(table, name)
        if len(cells) and (isinstance(dtype, pl.Date | pl.Datetime) or _are_times(cells, named=named)):
            return name, cells[0]
    return None


def _are_times(cells: pl.Series, *, named: bool) -> bool:
    """Whether sampled cells are times in text or, if the column is `named` like one, numbers in one of `UNITS`."""
    numbers = cells.cast(pl.Float64, strict=False) if cells.dtype != pl.Time else pl.Series([None], dtype=pl.Float64)
    if numbers.null_count() == 0:
        return named and any(((numbers >= least) & (numbers < most)).all() for least, most in UNITS.values())
    return cells.dtype == pl.String and looks_like_time(cells)


def notes_of_times(table: Source, columns: ColumnNames, chosen: Mapping[str, str]) -> list[str]:
    """A note where another column seems to hold times: beside a date found by its name, as of a folder day=.., or
    numbers where no column was found.
    """
    others = [name for name in table.column_names if name not in (*chosen.values(), *columns.context)]
    if columns.time is not None or ("time" in chosen and squashed(chosen["time"]) not in DATES):
        return []
    if "time" in chosen:
        found = seems_time(table, others)
        said, fix = f"'{chosen['time']}' is read as the time, but '{{}}' seems to hold times too", "chooses it"
    else:
        found = _numbers_like_times(table, others)
        said, fix = "no column is read as the time, but '{}' may hold times", "reads it as such"
    if found is None:
        return []
    return [f"{said.format(found[0])}, such as {found[1]!s}: --time-column '{found[0]}' {fix}"]


def _numbers_like_times(table: Source, others: Sequence[str]) -> tuple[str, str] | None:
    """The first column of numbers that are all likely times since 1970, and an example with its date."""
    for name in others:
        if not (table.schema[name].is_numeric() or table.schema[name] == pl.String):
            continue
        cells = _sampled(table, name)
        numbers = cells.cast(pl.Float64, strict=False)
        if len(cells) < 2 or numbers.null_count() or numbers.n_unique() < 2:
            continue
        for scale in (1, 10**3, 10**6, 10**9):
            if ((numbers >= scale * _LIKELY[0]) & (numbers < scale * _LIKELY[1])).all():
                date = dt.datetime.fromtimestamp(numbers[0] / scale, dt.UTC).date()
                return name, f"{cells[0]} ({date})"
    return None


def _sampled(table: Source, name: str) -> pl.Series:
    """The filled ones of the first cells of a column."""
    with reading(table.name):
        return table.frame.select(table.column(name).alias("cell")).head(_SAMPLE).collect()["cell"].drop_nulls()
