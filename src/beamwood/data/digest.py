"""Digests of columns: equal for equal content, whatever the file format and the library that read it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import polars as pl

__all__ = ["column_digest", "frame_digest", "text_bytes"]


def column_digest(column: pl.Series) -> str:
    """sha256 of the cells in order; integers, floats and booleans are compared as numbers."""
    digest = hashlib.sha256()
    for part in _parts(column):
        digest.update(part)
    return digest.hexdigest()


def frame_digest(frame: pl.DataFrame) -> str:
    """sha256 of the columns with their names, whatever their order."""
    named = sorted((name, column_digest(frame[name])) for name in frame.columns)
    return hashlib.sha256(repr(named).encode()).hexdigest()


def text_bytes(texts: pl.Series) -> bytes:
    """Non-null strings or bytes as one byte string: the lengths, then the contents."""
    cells = (texts if texts.dtype == pl.Binary else texts.cast(pl.String)).cast(pl.Binary)
    return cells.bin.size().cast(pl.Int64).to_numpy().tobytes() + b"".join(cells.to_list())


def _parts(column: pl.Series) -> Iterator[bytes]:
    # Series methods select by column name, which might be read as a regular expression.
    column = column.alias("column")
    yield column.is_null().to_numpy().tobytes()
    column = column.drop_nulls()
    kind = column.dtype
    if isinstance(kind, pl.List | pl.Array):
        cells = column.cast(pl.List(kind.inner))
        yield cells.list.len().cast(pl.Int64).to_numpy().tobytes()
        yield from _parts(cells.filter(cells.list.len() > 0).explode())
    elif kind.is_numeric() or kind == pl.Boolean:
        floats = column.cast(pl.Float64)
        # From 2^53 on a float may stand for several integers.
        exact = floats.cast(kind, strict=False).eq_missing(column).all()
        yield floats.to_numpy().tobytes() if exact else text_bytes(column)
    elif kind.is_temporal():
        column = column.dt.cast_time_unit("us") if kind in (pl.Datetime, pl.Duration) else column
        yield column.to_physical().cast(pl.Int64).to_numpy().tobytes()
    elif kind in (pl.String, pl.Binary, pl.Categorical, pl.Enum):
        yield text_bytes(column)
    else:
        yield repr(column.to_list()).encode()
