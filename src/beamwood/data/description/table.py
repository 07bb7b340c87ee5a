"""A description of an item table."""

from __future__ import annotations

from typing import Any

import polars as pl

from beamwood.data.cells.labels import SEPARATOR
from beamwood.data.dataset import ItemTable

__all__ = ["describe_table"]

_MOST_CATEGORIES = 5


def describe_table(table: ItemTable, report: dict[str, Any]) -> dict[str, Any]:
    """Counts of items in the log and in the table, and of each column the type and the share of items with a value.

    `report`: that of the data set, with the counts.
    """
    frame = table.frame
    labels = table.category_labels
    told = {
        "items_not_in_table": report["items_not_in_table"],
        "items_without_rows": report["items_without_interactions"],
        "items_of_another_type": report["items_of_another_type"],
        "columns": [
            {"name": name, "type": str(frame[name].dtype), "filled": 1 - frame[name].null_count() / len(frame)}
            for name in frame.columns[1:]
        ],
    }
    return told if labels is None else told | {"categories": _categories(labels)}


def _categories(labels: pl.Series) -> dict[str, Any]:
    counts = labels.drop_nulls().str.split(SEPARATOR).explode().alias("name").value_counts(sort=True)
    most = counts.sort(["count", "name"], descending=[True, False]).head(_MOST_CATEGORIES)
    return {"number": len(counts), "items_without": labels.null_count(), "most": most.to_dicts()}
