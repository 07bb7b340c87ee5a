"""Rows that are in memory already, of whatever library, as a Polars frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from beamwood.errors import InputError

__all__ = ["frame_of"]

_KNOWN = "a path, a frame of pandas or Polars, an Arrow table, arrays, a sparse matrix, or lists of rows"


def frame_of(source: Any, names: Sequence[str] | None) -> tuple[str, pl.LazyFrame]:
    """What messages call the source, and its rows; `names` are for arrays and rows that have none.

    A sparse matrix [users, items] has a row for each entry that is not 0, the entry as its `weight`. Errors: what is no
    table; names for what has its own; rows without names.
    """
    if source is None:
        raise InputError(f"there is no source to read: it is None; give {_KNOWN}")
    if _is_bare(source):
        return _named(source, names)
    if names is not None:
        raise InputError("--separator and --columns are about text files and bare rows, and this is neither")
    if isinstance(source, bytes | bytearray) or hasattr(source, "readable"):
        what = "an open file" if hasattr(source, "readable") else "bytes"
        raise InputError(f"the source is {what}; give its path as text, or a pathlib.Path")
    if isinstance(source, pl.LazyFrame):
        return "the lazy frame", source
    if isinstance(source, pl.DataFrame):
        return "the frame", source.lazy()
    if sparse.issparse(source):
        return "the sparse matrix", _of_matrix(source).lazy()
    module = type(source).__module__.split(".")[0]
    name = {"pandas": "the pandas frame", "pyarrow": "the Arrow table"}.get(module, f"the {type(source).__name__}")
    try:
        return name, (pl.from_pandas(source) if module == "pandas" else _columns(source)).lazy()
    except (Exception, pl.exceptions.PanicException) as error:  # every frame library raises its own
        raise _no_table(name, error) from error


def _is_bare(source: Any) -> bool:
    """Whether it is an array of two dimensions, or a list of rows that are no mappings: nothing in it has a name."""
    if isinstance(source, np.ndarray):
        return source.dtype.names is None
    if not isinstance(source, list | tuple) or not source:
        return False
    return not any(isinstance(row, Mapping | str | bytes) or not isinstance(row, Sized) for row in source)


def _named(source: Any, names: Sequence[str] | None) -> tuple[str, pl.LazyFrame]:
    if isinstance(source, np.ndarray):
        what = "the array"
        if source.ndim != 2:
            raise InputError(f"the array has {source.ndim} dimensions; give one of rows and columns")
        widths = {source.shape[1]}
    else:
        what, widths = "the list of rows", {len(row) for row in source}
    if len(widths) > 1:
        raise InputError(f"{what} has rows of {min(widths)} to {max(widths)} cells; give each row as many")
    width = widths.pop()
    if names is None:
        such = ["user", "item", "time", *["-"] * width][:width]
        raise InputError(f"{what} has no names; say what its {width} columns are, such as header={such!r}")
    if len(names) != width:
        raise InputError(f"header names {len(names)} columns, {what} has {width}; name each, '-' for one without use")
    try:
        if isinstance(source, np.ndarray) and source.dtype != object:
            return what, pl.DataFrame(source, schema=list(names), orient="row").lazy()
        columns = zip(*(list(row) for row in source), strict=True)
        return what, pl.DataFrame([pl.Series(name, cells) for name, cells in zip(names, columns, strict=True)]).lazy()
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _no_table(what, error) from error


def _of_matrix(matrix: Any) -> pl.DataFrame:
    entries = matrix.tocoo()
    rows = {"user": entries.row, "item": entries.col, "weight": entries.data}
    return pl.DataFrame({name: np.asarray(cells) for name, cells in rows.items()}).filter(pl.col("weight") != 0)


def _columns(source: Any) -> pl.DataFrame:
    if isinstance(source, np.ndarray):
        return pl.DataFrame({name: source[name] for name in source.dtype.names or ()})
    if isinstance(source, list | tuple):
        return pl.DataFrame(list(source), infer_schema_length=None)
    return pl.DataFrame(source)


def _no_table(name: str, error: BaseException) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(
        f"{name} cannot be read as a table ({reason}); give {_KNOWN}, with ids as whole numbers or strings"
    )
