"""Cells with labels: text separated by "|", a single value, or a list."""

from __future__ import annotations

from typing import Any

import polars as pl

from beamwood.errors import InputError

__all__ = ["SEPARATOR", "TEXTS", "arrays_as_lists", "inner_type", "label_lists", "unnamed", "without_categories"]

SEPARATOR = "|"
TEXTS = (pl.String, pl.Categorical, pl.Enum)
"""The types of text cells."""
_LABELS = (*TEXTS, pl.Boolean, pl.Date, pl.Datetime, pl.Time, pl.Null)


def label_lists(series: pl.Series) -> pl.Series:
    """Each cell's labels as a list of stripped text, null where there is none; the series is `unnamed`.

    Empty text is not a label: "a|" has one. Errors: a column of another type.
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
    """A column of arrays as one of lists, others unchanged; all `unnamed`."""
    cells = unnamed(series)
    return cells.arr.to_list() if isinstance(series.dtype, pl.Array) else cells


def unnamed(series: pl.Series) -> pl.Series:
    """The series without its name: some methods of a series select by name, and read "*" and "^u.*$" as patterns."""
    return series.alias("")


def without_categories(series: pl.Series) -> pl.Series:
    """The series, categories as the text that they are."""
    return series.cast(pl.String) if series.dtype in TEXTS else series


def inner_type(series: pl.Series) -> Any:
    """The element type of list cells; None where they are not lists."""
    dtype = series.dtype
    return dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
