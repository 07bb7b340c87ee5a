"""Cells that hold labels: text with "|" between several, a single value, or a list of them."""

from __future__ import annotations

from typing import Any

import polars as pl

from beamwood.errors import InputError

__all__ = ["SEPARATOR", "arrays_as_lists", "inner_type", "label_lists", "unnamed"]

SEPARATOR = "|"
_LABELS = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Date, pl.Datetime, pl.Time, pl.Null)


def label_lists(series: pl.Series) -> pl.Series:
    """Each cell's labels as a list of text without blanks around, null where there is none, `unnamed`.

    Text without a character is no label: "a|" has one.

    Errors: a column whose type holds no labels.
    """
    dtype = series.dtype
    inner: Any = dtype.inner if isinstance(dtype, pl.List | pl.Array) else dtype
    if not (inner.is_numeric() or inner in _LABELS):
        raise InputError(
            f"column '{series.name}' of type {dtype} holds no categories; make them text, numbers or lists of these, "
            "or leave the column out"
        )
    if inner == pl.Null:
        return pl.Series([None] * len(series), dtype=pl.List(pl.String))
    if isinstance(dtype, pl.List | pl.Array):
        lists = arrays_as_lists(series).cast(pl.List(pl.String))
    else:
        lists = unnamed(series).cast(pl.String).str.split(SEPARATOR)
    label = pl.element().str.strip_chars()
    lists = lists.list.eval(label.filter(label.str.len_bytes() > 0))
    return pl.select(pl.when(lists.list.len() > 0).then(lists)).to_series()


def arrays_as_lists(series: pl.Series) -> pl.Series:
    """A column of arrays as one of lists, others as they are, all `unnamed`."""
    cells = unnamed(series)
    return cells.arr.to_list() if isinstance(series.dtype, pl.Array) else cells


def unnamed(series: pl.Series) -> pl.Series:
    """The cells without the column's name, by which the methods of a series look for it: "*" and "^u.*$" are patterns
    to them."""
    return series.alias("")


def inner_type(series: pl.Series) -> Any:
    """The type of what the cells are lists of; None where they are no lists."""
    dtype = series.dtype
    return dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
