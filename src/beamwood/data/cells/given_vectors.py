"""A column of given vectors, such as embeddings of texts or images: lists of numbers of one length.

Shape legend: N rows, F width.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.cells.labels import arrays_as_lists, inner_type
from beamwood.errors import InputError
from beamwood.words import counted

__all__ = ["given_vectors", "holds_vectors"]


_LIST = r"^\[[^\[\]]*\]$"


def holds_vectors(dtype: pl.DataType) -> bool:
    """Whether a type is that of lists of numbers with fractions."""
    inner = dtype.inner if isinstance(dtype, pl.List | pl.Array) else None
    return inner is not None and inner.is_float()


def given_vectors(cells: pl.Series, items: pl.Series) -> NDArray[np.float32]:
    """float32[N, F], zeros where a cell is null or an empty list; `items`: the id of each row, for errors.

    Text cells are JSON lists. Errors: no lists of numbers, different lengths, values that are not finite.
    """
    name = cells.name
    if cells.dtype == pl.String:
        cells = cells.str.strip_chars()
        cells = cells.set(cells.is_in(["", "null"]), None)
        # Before they are decoded, where "1, 2" would be two cells.
        wrong = ~cells.str.contains(_LIST).fill_null(True)
        _refuse(name, items, wrong.arg_true().to_numpy(), "text that is no JSON list of numbers like [0.1, -2]")
        try:
            cells = cells.str.json_decode(pl.List(pl.Float32))
        except pl.exceptions.PolarsError as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"item column '{name}' cannot be read as JSON ({reason}); write lists of numbers, as [0.1, -2]"
            ) from error
    cells = arrays_as_lists(cells)
    inner = inner_type(cells)
    is_numeric = inner is not None and inner.is_numeric()
    there = np.flatnonzero(cells.list.len().fill_null(0).to_numpy()) if is_numeric else np.empty(0, np.int64)
    if len(there) == 0:
        raise InputError(
            f"item column '{name}' of type {cells.dtype} holds no lists of numbers; write vectors of one length, as "
            "[0.1, -2]"
        )
    given = cells.gather(there)
    lengths = given.list.len().to_numpy()
    width = int(lengths[0])
    _refuse(name, items, there[lengths != width], f"a vector of another length than {width}, the first one's")
    values = given.list.explode().cast(pl.Float32, strict=False).fill_null(np.nan).to_numpy().reshape(-1, width)
    _refuse(name, items, there[~np.isfinite(values).all(axis=1)], "null, NaN or infinity in its vector")
    result = np.zeros((len(cells), width), np.float32)
    result[there] = values
    return result


def _refuse(name: str, items: pl.Series, wrong: NDArray[np.int64], what: str) -> None:
    if len(wrong):
        first = items[int(wrong[0])]
        items_have = counted(len(wrong), "item has", "items have")
        raise InputError(
            f"item column '{name}': {items_have} {what}, such as item {first!r}; mend them, or leave such "
            "cells empty (zeros)"
        )
