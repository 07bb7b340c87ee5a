"""In-memory tables of other libraries as a Polars frame."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from scipy import sparse

from beamwood.data.files.offsets import are_offsets, table_with_offsets
from beamwood.errors import InputError
from beamwood.extras import asking_for

__all__ = ["frame_of", "scan_matrix"]

# An array with more columns may be a matrix of users and items.
_WIDE = 20
_UNITS = ("D", "ms", "us", "ns")
_FRAMES = ("pandas", "polars", "pyarrow")
_KNOWN = "a path, a frame of pandas or Polars, an Arrow table, arrays, a sparse matrix, or lists of rows"


def frame_of(source: Any, names: Sequence[str] | None) -> tuple[str, pl.LazyFrame]:
    """The name of the source in messages, and its rows; `names`: columns of arrays and of rows without names.

    A sparse matrix [users, items] gives a row for each non-zero entry, the entry as its `weight`. Errors: an object
    that is not a table; names for a source with its own; rows without names.
    """
    source = _plain(source)
    if _is_bare(source):
        return _named(source, names)
    if names is not None:
        raise InputError("--separator and --columns are about text files and bare rows, and this is neither")
    if isinstance(source, pl.LazyFrame):
        return "the lazy frame", source
    if isinstance(source, pl.DataFrame):
        return "the frame", source.lazy()
    if sparse.issparse(source):
        return "the sparse matrix", _of_matrix(source).lazy()
    kind, library = type(source).__name__, _library(source)
    if isinstance(source, pl.Series) or kind.endswith(("Series", "Array")):
        raise InputError(f"the {kind} is one column; give a frame with users and items")
    name = {"pandas": "the pandas frame", "pyarrow": "the Arrow table"}.get(library, f"the {kind}")
    if library == "pandas" and kind == "DataFrame":
        source = _with_named_index(source)
    try:
        return name, (pl.from_pandas(source) if library == "pandas" else _columns(source)).lazy()
    except MemoryError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # every frame library raises its own
        if are_offsets(error) and library in _FRAMES:
            return name, table_with_offsets(source).lazy()
        mixed = _mixed(source) if library == "pandas" and kind == "DataFrame" else None
        if mixed is not None:
            raise InputError(
                f"{name} cannot be read as a table: column {mixed!r} holds values of several types, such as numbers "
                f"and text; make it text, by frame.astype({{{mixed!r}: str}}), or drop it"
            ) from error
        raise _no_table(name, error) from error


def scan_matrix(path: Path) -> pl.LazyFrame:
    """The entries of a sparse matrix [users, items] saved by scipy, see `frame_of`. Errors: another file."""
    try:
        return _of_matrix(sparse.load_npz(path)).lazy()
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a damaged file fails in zipfile, zlib, NumPy or scipy
        raise InputError(
            f"{path} holds no sparse matrix that scipy.sparse.save_npz wrote; in Python, give read_log its arrays as "
            "a dictionary, such as {'user': .., 'item': ..}"
        ) from error


def _library(source: Any) -> str:
    """The package of an object's type."""
    return type(source).__module__.split(".")[0]


def _plain(source: Any) -> Any:
    """An iterator as a list, a tensor of any library as an array. Errors: None, bytes, an open file."""
    if source is None:
        raise InputError(f"there is no source to read: it is None; give {_KNOWN}")
    if isinstance(source, bytes | bytearray) or hasattr(source, "readable"):
        what = "an open file" if hasattr(source, "readable") else "bytes"
        raise InputError(f"the source is {what}; give its path as text, or a pathlib.Path")
    if isinstance(source, Iterator) and _library(source) != "pyarrow":  # its reader of batches is a table
        return list(source)
    if _library(source) not in ("numpy", *_FRAMES) and "__array__" in dir(type(source)):
        return np.asarray(source)
    return source


def _with_named_index(frame: Any) -> Any:
    """A pandas frame whose named index levels are columns too. Errors: pyarrow is not installed."""
    with asking_for("read_log of a pandas frame"):
        import pyarrow  # noqa: F401
    levels = [level for level in frame.index.names if level is not None]
    return frame if not levels or {*levels} & {*frame.columns} else frame.reset_index()


def _mixed(frame: Any) -> Any:
    """The first column of a pandas frame with values of several types, which Arrow refuses; None without one."""
    for place, name in enumerate(frame.columns):
        cells = frame.iloc[:, place].dropna()
        if cells.dtype == object and len({*map(type, cells)}) > 1:
            return name
    return None


def _is_bare(source: Any) -> bool:
    """Whether it is an array, or a list of rows that are not mappings, and so has no column names."""
    if isinstance(source, np.ndarray):
        return source.dtype.names is None
    if not isinstance(source, list | tuple) or not source:
        return False
    return not any(isinstance(row, Mapping | str | bytes) or not isinstance(row, Sized) for row in source)


def _named(source: Any, names: Sequence[str] | None) -> tuple[str, pl.LazyFrame]:
    if isinstance(source, np.ndarray):
        what = "the array"
        if source.ndim != 2:
            raise InputError(f"the array has {source.ndim} dimensions; give a 2-d array of rows and columns")
        widths = {source.shape[1]}
    else:
        what, widths = "the list of rows", {len(row) for row in source}
    if len(widths) > 1:
        raise InputError(f"{what} has rows of {min(widths)} to {max(widths)} cells; give each row as many")
    width = widths.pop()
    if names is None:
        if width > _WIDE and what == "the array":
            raise InputError(
                f"the array has {width} columns without names; if its rows are users and its columns items, give "
                "scipy.sparse.csr_matrix of it"
            )
        if width > _WIDE:
            raise InputError(f"{what} has {width} columns without names; give rows of a user, an item and a time each")
        such = ["user", "item", "time", *["-"] * width][:width]
        raise InputError(f"{what} has no names; name its {width} columns, such as header={such!r}")
    if len(names) != width:
        raise InputError(f"header names {len(names)} columns, {what} has {width}; name each, '-' for an unused one")
    try:
        if isinstance(source, np.ndarray) and source.dtype != object:
            return what, pl.DataFrame(source, schema=list(names), orient="row").lazy()
        columns = zip(*(list(row) for row in source), strict=True)
        return what, pl.DataFrame({name: _cells(each) for name, each in zip(names, columns, strict=True)}).lazy()
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise _no_table(what, error) from error


def _of_matrix(matrix: Any) -> pl.DataFrame:
    if matrix.ndim != 2:
        raise InputError(f"the sparse matrix has {matrix.ndim} dimension; give one of users and items")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"the sparse matrix holds {matrix.dtype} entries; give numbers, which are weights")
    entries = matrix.tocoo()
    rows = {"user": entries.row, "item": entries.col, "weight": entries.data}
    return pl.DataFrame({name: np.asarray(cells) for name, cells in rows.items()}).filter(pl.col("weight") != 0)


def _columns(source: Any) -> pl.DataFrame:
    if isinstance(source, np.ndarray):
        source = {name: source[name] for name in source.dtype.names or ()}
    if isinstance(source, Mapping):
        unnamed = next((name for name in source if not isinstance(name, str)), None)
        if unnamed is not None:
            raise TypeError(f"its key {unnamed!r} is not a column name")
        return pl.DataFrame({name: _cells(each) for name, each in source.items()})
    if isinstance(source, list | tuple):
        if source and all(isinstance(each, str | PathLike) for each in source):
            raise TypeError("it holds texts; for several files, name their folder or a pattern such as 'logs/*.csv'")
        return pl.DataFrame(list(source), infer_schema_length=None)
    return pl.DataFrame(source)


def _cells(cells: Any) -> Any:
    """The cells of a column as Polars takes them under any name.

    Those of a list are made a series without one, as a name of dates may be taken for a pattern. NumPy times are in a
    unit that Polars supports; it lacks seconds and hours.
    """
    if isinstance(cells, list | tuple):
        return pl.Series(cells)
    if isinstance(cells, np.ndarray) and cells.dtype.kind == "M" and np.datetime_data(cells.dtype)[0] not in _UNITS:
        return cells.astype("datetime64[us]")
    return cells


def _no_table(name: str, error: BaseException) -> InputError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return InputError(
        f"{name} cannot be read as a table ({reason}); give {_KNOWN}, with ids as whole numbers or strings"
    )
