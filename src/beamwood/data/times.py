"""Times of any kind as Int64: only their order matters."""

from __future__ import annotations

import polars as pl

from beamwood.data.source import Source, reading
from beamwood.errors import InputError

__all__ = ["time_expression"]

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WHOLE = r"^\s*[+-]?\d{1,19}(\.0*)?\s*$"
_EXPONENT = r"[\d.][eE][+-]?\d"
_BASIC = r"^(\d{4})(\d{2})(\d{2}) (\d{2})(\d{2})"  # 20240131 1030, the hyphens and colons left out
_ISO_FORMATS = ("%Y-%m-%d %H:%M:%S%.f%#z", "%Y-%m-%d %H:%M%#z", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M")
_LARGEST = 2.0**62
_EXACT = 2.0**53  # a float above it may stand for several whole numbers


def time_expression(table: Source, name: str) -> tuple[pl.Expr | None, str]:
    """The expression for the column `time` (Int64), None where the order is unknown, and its kind in words.

    Whole numbers stay; numbers with fractions are scaled by a power of ten; dates, times with a zone (or taken as UTC)
    and ISO 8601 text become microseconds, nanoseconds where the column has them. Decimals, and text that says one, are
    read without floats. A column that is null throughout means that the order is unknown. Errors: null in part; values
    that do not parse, with their count and the first one; floats, and text with an exponent, above 2^53.
    """
    with reading(table.name):
        rows, nulls = table.frame.select(pl.len(), table.column(name).is_null().sum().alias("n")).collect().row(0)
    if nulls == rows:
        return None, f"'{name}' is empty; the order of a user's rows is their order"
    time, kind = _by_type(table, name)
    _check(table, name, time, rows, nulls)
    return time.alias("time"), f"'{name}', {kind}"


def _by_type(table: Source, name: str) -> tuple[pl.Expr, str]:
    dtype, column = table.schema[name], table.column(name)
    if dtype.is_integer():
        return column.cast(pl.Int64, strict=False), "whole numbers"
    if dtype.is_float():
        time, kind = _from_floats(table, name, column.cast(pl.Float64))
        return time, f"{kind} of 32 bits, rounded above 2^24" if dtype == pl.Float32 else kind
    if dtype.is_decimal():
        return _from_decimals(table, column)
    if isinstance(dtype, pl.Datetime):
        return column.dt.timestamp("ns" if dtype.time_unit == "ns" else "us"), "date and time"
    if dtype == pl.Date:
        return column.cast(pl.Datetime("us")).dt.timestamp("us"), "date"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return _from_text(table, name, column.cast(pl.String))
    raise InputError(f"{table.name}: the time column {name} is of type {dtype}; use numbers, dates or ISO 8601 text")


def _from_floats(table: Source, name: str, column: pl.Expr) -> tuple[pl.Expr, str]:
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
        return finite.cast(pl.Int64, strict=False), "whole numbers"
    return (finite * 10.0 ** _digits(largest)).round().cast(pl.Int64, strict=False), "numbers"


def _from_decimals(table: Source, column: pl.Expr) -> tuple[pl.Expr, str]:
    fractions, largest, _ = _measures(table, column, column.is_null())
    if not fractions:
        return column.cast(pl.Int64, strict=False), "whole numbers"
    return _scaled(column, _digits(largest)), "numbers"


def _measures(table: Source, column: pl.Expr, bad: pl.Expr) -> tuple[bool, float, int]:
    """Whether any number has a fraction, the largest magnitude, and how many are `bad`."""
    asked = (column != column.floor()).any().alias("f"), column.abs().max().alias("m"), bad.sum().alias("b")
    with reading(table.name):
        fractions, largest, count = table.frame.select(asked).collect(engine="streaming").row(0)
    return fractions, float(largest or 0), count


def _digits(largest: float) -> int:
    """How many digits of a fraction count: six, fewer where the numbers are too large for that."""
    return next((digits for digits in (6, 3) if largest * 10**digits < _LARGEST), 0)


def _scaled(column: pl.Expr, digits: int) -> pl.Expr:
    """Decimals, or text that says some, times a power of ten and rounded."""
    return column.cast(pl.Decimal(38, digits), strict=False).to_physical().cast(pl.Int64, strict=False)


def _from_text(table: Source, name: str, column: pl.Expr) -> tuple[pl.Expr, str]:
    given, text = column.drop_nulls(), column.str.strip_chars()
    with reading(table.name):
        whole, number, exponent, largest = (
            table.frame.select(
                given.str.contains(_WHOLE).all().alias("whole"),
                (given.str.contains(_NUMBER).mean() >= 0.5).alias("number"),
                given.str.contains(_EXPONENT).any().alias("exponent"),
                text.cast(pl.Float64, strict=False).abs().max().alias("largest"),
            )
            .collect(engine="streaming")
            .row(0)
        )
    if whole:
        return text.str.replace(r"\.0*$", "").cast(pl.Int64, strict=False), "whole numbers"
    if number and exponent:
        return _from_floats(table, name, text.cast(pl.Float64, strict=False))
    if number:
        return _scaled(text, _digits(largest or 0)), "numbers"
    # One spelling before parsing: a blank between date and time, an offset in place of Z, a time behind a bare date.
    text = text.str.replace(r"[Tt]", " ").str.replace(r"\s*[Zz]$", "+00:00")
    text = text.str.replace(_BASIC, "${1}-${2}-${3} ${4}:${5}").str.replace(r"^(.{10} \d{2}:\d{2})(\d{2})", "${1}:${2}")
    text = text.str.replace(r"^(\d{4}-\d{2}-\d{2})$", "${1} 00:00")
    times = (
        text.str.to_datetime(pattern, time_unit="us", strict=False, time_zone="UTC" if "%#z" in pattern else None)
        for pattern in _ISO_FORMATS
    )
    return pl.coalesce(time.dt.timestamp("us") for time in times), "ISO 8601 text"


def _check(table: Source, name: str, time: pl.Expr, rows: int, nulls: int) -> None:
    column = table.column(name)
    unparsed = time.is_null() & column.is_not_null()
    with reading(table.name):
        bad = table.frame.select(unparsed.sum()).collect(engine="streaming").item()
    if not bad and not nulls:
        return
    row, value = table.first(name, unparsed if bad else column.is_null())
    if bad:
        raise InputError(
            f"{table.name}: column '{name}' has {bad} of {rows} times that cannot be read, the first {value!r} in row "
            f"{row}; give numbers or ISO 8601 dates, or name another with --time-column"
        )
    raise InputError(
        f"{table.name}: column '{name}' has {nulls} of {rows} times that are missing, the first in row {row}; fill "
        "them, leave these rows out with --missing drop, or drop the column so that the order of rows counts"
    )
