"""Nested rows, as in JSON and Parquet: their fields become columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

__all__ = ["unnested_columns", "rows_within"]

_READERS = {".jsonl": "scan_ndjson", ".ndjson": "scan_ndjson", ".json": "scan_ndjson", ".parquet": "scan_parquet"}


def unnested_columns(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Each field of a nested row as a column named by its path: `reader.id` of {"reader": {"id": 7}}.

    Columns without fields stay, and so does a nested row with a path that is the name of another column.
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


def rows_within(name: str, schema: Mapping[str, Any]) -> str:
    """The advice for a table whose rows hold lists of rows, "" for others."""
    lists: dict[str, Any] = {column: dtype.inner for column, dtype in schema.items() if isinstance(dtype, pl.List)}
    held = next((column for column, inner in lists.items() if isinstance(inner, pl.Struct)), None)
    if held is None:
        return ""
    apart = ({*schema} - {held}).isdisjoint(field.name for field in lists[held].fields)
    steps = f".explode({held!r})" + (f".unnest({held!r})" if apart else "")
    base = next((ending for ending in _READERS if ending in name.lower()), None)
    says = f"; each of its rows holds several in '{held}': write a row for each"
    if base is None:
        return f"{says}, as Polars does by {steps}"
    all_lines = ", infer_schema_length=None" if base != ".parquet" else ""
    made = f"{Path(name).name.split('.')[0]}.rows.parquet"
    code = (
        f'import polars as pl; pl.{_READERS[base]}("{name}"{all_lines}){steps}.collect().write_parquet("{made}")'
    ).replace("'", '"')
    return f"{says}, as with: python3 -c '{code}'"


def _fields(column: pl.Expr, path: str, dtype: Any) -> list[tuple[str, pl.Expr]]:
    """The path and expression of each leaf field of a column."""
    if not isinstance(dtype, pl.Struct) or not dtype.fields:
        return [(path, column.alias(path))]
    return [
        found
        for field in dtype.fields
        for found in _fields(column.struct.field(field.name), f"{path}.{field.name}", field.dtype)
    ]
