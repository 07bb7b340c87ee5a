"""The rows of a log in the order of histories: by user, oldest first, ties in a stated order."""

from __future__ import annotations

import numpy as np
import polars as pl

from beamwood.types import ItemLists

__all__ = ["by_user_and_time", "notes_of_sorted"]

# So many steps from an item to the next, and this share of them in one direction, come of sorting and not of users.
_FEWEST_STEPS, _SORTED = 200, 0.99


def by_user_and_time(rows: pl.DataFrame) -> tuple[pl.DataFrame, int, str]:
    """The rows, the columns user, item and, where known, time and history, sorted.

    Also how many of them share their time with another row of their user, and what orders these, in words. A log whose
    users' rows are in time order orders ties by its own order. Any other goes by item, what is history first, so that a
    shuffled log gives the same. Without times the log's order counts.
    """
    if "time" not in rows.columns:
        return rows.sort("user", maintain_order=True), 0, ""
    told = rows["time"].is_sorted()
    found = _sorted(rows if told else rows.with_row_index("row"), ["time", "user"])
    same = found["user"] == found["user"].shift(-1)
    pairs = (same & (found["time"] == found["time"].shift(-1))).fill_null(False)
    ties = int((pairs | pairs.shift(1, fill_value=False)).sum())
    if told:
        return found, ties, "the log's own order"
    in_order = not (same & (found["row"] > found["row"].shift(-1))).any()
    found = found.drop("row")
    if in_order or not ties:
        return found, ties, "the log's own order"
    first = ["history"] if "history" in rows.columns else []
    return _sorted(found, ["item", *first, "time", "user"]), ties, "the items, as the log is not in time order"


def notes_of_sorted(histories: ItemLists) -> list[str]:
    """What is to be said of a log without times whose rows of a user stand in the order of their items."""
    steps = np.diff(histories.items)
    ends = histories.indptr[1:-1]
    steps[ends[(ends > 0) & (ends < len(histories.items))] - 1] = 0
    up, down = int((steps > 0).sum()), int((steps < 0).sum())
    if up + down < _FEWEST_STEPS or max(up, down) < _SORTED * (up + down):
        return []
    return [
        f"the rows of each user {'ascend' if up > down else 'descend'} by item, as sorting leaves them, so what comes "
        "next can be guessed and figures are too good; give times with --time-column, or shuffle the rows"
    ]


def _sorted(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sorted by the last key first. Stable sorts of one key take a quarter of the time of one sort of two keys."""
    for key in keys:
        rows = rows.sort(key, maintain_order=True, descending=key == "history")
    return rows
