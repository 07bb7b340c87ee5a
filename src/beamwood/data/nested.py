"""Rows that hold rows, as JSON and Parquet allow: their fields as columns of their own."""

from __future__ import annotations

from typing import Any

import polars as pl

__all__ = ["flat"]


def flat(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Each field of a nested row as a column that is called by its path: `reader.id` of {"reader": {"id": 7}}.

    What has no fields stays as it is, and so does a nested row one of whose paths is the name of another column.
    """
    schema = frame.collect_schema()
    columns, taken = list[pl.Expr](), set(schema)
    for place, (name, dtype) in enumerate(schema.items()):
        fields = _fields(pl.nth(place), name, dtype)
        paths = [path for path, _ in fields]
        clear = len({*paths}) == len(paths) and taken.isdisjoint(set(paths) - {name})
        taken.update(paths)
        columns += [field for _, field in fields] if clear else [pl.nth(place)]
    return frame.select(columns) if any(isinstance(dtype, pl.Struct) for dtype in schema.values()) else frame


def _fields(column: pl.Expr, path: str, dtype: Any) -> list[tuple[str, pl.Expr]]:
    """The paths of all that lies in a column, and the expression of each."""
    if not isinstance(dtype, pl.Struct) or not dtype.fields:
        return [(path, column.alias(path))]
    return [
        found
        for field in dtype.fields
        for found in _fields(column.struct.field(field.name), f"{path}.{field.name}", field.dtype)
    ]
