"""Export of a store's new items as rows of an item table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from beamwood.artefact.replace import PARQUET_MARK, whole_file
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import CATEGORY
from beamwood.serve.items.learned import Learned

__all__ = ["export_new_items"]


def export_new_items(learned: Learned, out: Path) -> int:
    """Write the columns item and category, and one for each field, those without any value left out; return the count.

    Erased items are left out. Values of several types in a column, and lists, are written as text. Errors: `InputError`
    if the file cannot be written.
    """
    rows: list[dict[str, Any]] = [
        {CATEGORY: each.category} | each.fields | {"item": each.item}
        for each in learned.items.values()
        if not each.gone
    ]
    names = dict.fromkeys(["item", *(name for row in rows for name, value in row.items() if value is not None)])
    frame = pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])
    try:
        with whole_file(out) as fresh:
            frame.write_parquet(fresh, metadata=PARQUET_MARK)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"--new-items {out} could not be written ({error})") from error
    return len(rows)


def _column(name: str, values: list[Any]) -> pl.Series:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {str}:
        return pl.Series(name, values, pl.String)
    if kinds <= {bool} or (kinds <= {int, float} and all(abs(value) < 2**63 for value in values if value is not None)):
        return pl.Series(name, values, strict=False, dtype=pl.Float64 if float in kinds else None)
    if kinds <= {int} and all(0 <= value < 2**64 for value in values if value is not None):
        return pl.Series(name, values, pl.UInt64)
    return pl.Series(name, [None if value is None else _text(value) for value in values], pl.String)


def _text(value: Any) -> str:
    """As the cell of a text file; several labels have "|" between them."""
    if isinstance(value, list) and value and all(isinstance(label, str) for label in value):
        return "|".join(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
