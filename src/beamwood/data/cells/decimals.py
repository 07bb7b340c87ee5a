"""Decimal numbers as they were written: with a comma, as 3,5 for 3.5, or as floats of 32 bits."""

from __future__ import annotations

import polars as pl

__all__ = ["COMMA", "as_float64", "pointed", "with_points"]

COMMA = r"^[+-]?\d*,\d+$"
_THOUSANDS = r"^[+-]?[1-9]\d{0,2},\d{3}$"


def with_points(frame: pl.LazyFrame, text: pl.Expr) -> tuple[pl.Expr, bool]:
    """A column of stripped text with its decimal commas replaced by points, and whether it was replaced.

    Commas are decimal where no cell has a point and some comma cannot separate thousands: 1,234 alone is ambiguous.
    """
    asked = (
        text.str.contains(".", literal=True).any().alias("points"),
        (text.str.contains(COMMA) & ~text.str.contains(_THOUSANDS)).any().alias("sure"),
    )
    points, sure = frame.select(asked).collect(engine="streaming").row(0)
    if points or not sure:
        return text, False
    pointed = text.str.replace(",", ".", literal=True)
    return pl.when(text.str.contains(COMMA)).then(pointed).otherwise(text), True


def pointed(cells: pl.Series) -> pl.Series:
    """Stripped text with its decimal commas replaced by points, if they are decimal."""
    frame = pl.LazyFrame([cells.alias("cell")])
    return frame.select(with_points(frame, pl.col("cell"))[0]).collect().to_series()


def as_float64(numbers: pl.Series) -> pl.Series:
    """Numbers as float64; those of 32 bits by their shortest decimal, as 5.1 of 32 bits is not 5.1 of 64."""
    text = numbers.cast(pl.String) if numbers.dtype.is_float() and numbers.dtype != pl.Float64 else numbers
    return text.cast(pl.Float64)
