"""Nested rows, as in JSON and Parquet: their fields become columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

__all__ = ["unnested_columns", "rows_within"]

_READERS = {".jsonl": "scan_ndjson", ".ndjson": "scan_ndjson", ".json": "scan_ndjson", ".parquet": "scan_parquet"}


def unnested_columns(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Each field of a nested row as a column named by its path: `reader.id` of {"reader": {"id": 7}}.

    A value within its type, as MongoDB exports it, is a column of its own name: `_id` of {"_id": {"$oid": "5f"}}.
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
    """The advice for a table whose rows hold lists of rows, or which pandas wrote by columns; "" for others."""
    form = _form_of_pandas(schema) if ".json" in name.lower() else None
    if form is not None:
        made = f"{Path(name).name.split('.')[0]}.rows.jsonl"
        # Ids such as "007" stay text.
        code = (
            f'import pandas as pd; pd.read_json("{name}", orient="{form}", dtype=False)'
            f'.to_json("{made}", orient="records", lines=True)'
        )
        return f"; it seems a frame that pandas wrote by columns: write it by rows, as with: python3 -c '{code}'"
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


def _form_of_pandas(schema: Mapping[str, Any]) -> str | None:
    """The orientation in which pandas wrote such columns as JSON: all cells of a frame in one row."""
    if {*schema} == {"columns", "index", "data"}:
        return "split"
    by_row = len(schema) > 1 and all(re.fullmatch(r".+\.\d+", column) for column in schema)
    return "columns" if by_row else None


def _fields(column: pl.Expr, path: str, dtype: Any) -> list[tuple[str, pl.Expr]]:
    """The path and expression of each leaf field of a column."""
    if not isinstance(dtype, pl.Struct) or not dtype.fields:
        return [(path, column.alias(path))]
    of_type = len(dtype.fields) == 1 and dtype.fields[0].name.startswith("$")
    return [
        found
        for field in dtype.fields
        for found in _fields(column.struct.field(field.name), path if of_type else f"{path}.{field.name}", field.dtype)
    ]
