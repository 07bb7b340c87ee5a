"""The rows of a log in the order of histories: by user, oldest first, ties in a stated order."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

__all__ = ["by_user_and_time"]

# At least this many steps from one item index to the next, with this share of them in one direction, mean sorted rows.
_FEWEST_STEPS, _SORTED = 200, 0.99
_OWN, _DRAWN = "the log's own order", "a draw for each user and item"


def by_user_and_time(rows: pl.DataFrame) -> tuple[pl.DataFrame, int, str]:
    """Sort rows with columns user, item (indices) and, where known, time and history.

    Returns also the number of rows that share their time with another row of their user, and a note on the order, "" if
    there is none. Ties keep the log's own order if each user's rows are in time order, unless they are sorted by item,
    which would leak the next item. Otherwise ties are ordered by a hash of user and item, independent of the order of
    rows, history first. Without times all rows of a user are ties.
    """
    if "time" not in rows.columns:
        return _without_times(rows)
    told = rows["time"].is_sorted()
    found = _sorted(rows if told else rows.with_row_index("row"), ["time", "user"])
    same = found["user"] == found["user"].shift(-1)
    pairs = (same & (found["time"] == found["time"].shift(-1))).fill_null(False)
    ties = int((pairs | pairs.shift(1, fill_value=False)).sum())
    if not ties:
        return found if told else found.drop("row"), 0, ""
    shared = f"{ties:,} of {len(found):,} rows share their time with another row of their user; among these counts"
    in_order = told or not (same & (found["row"] > found["row"].shift(-1))).any()
    found = found if told else found.drop("row")
    if in_order and _direction(found, pairs) is None:
        return found, ties, f"{shared} {_OWN}"
    why = "its own order is that of the items" if in_order else "the log is not in time order"
    return _drawn(found, ["time", "user"]), ties, f"{shared} {_DRAWN}, as {why}"


def _without_times(rows: pl.DataFrame) -> tuple[pl.DataFrame, int, str]:
    """By user, in the log's order or, where that is sorted by item, by the hash."""
    found = rows.sort("user", maintain_order=True)
    pairs = found["user"] == found["user"].shift(-1)
    if "history" in rows.columns:
        pairs &= found["history"] == found["history"].shift(-1)
    direction = _direction(found, pairs.fill_null(False))
    if direction is None:
        return found, 0, ""
    said = (
        f"the rows of each user {direction} by item, so the log was sorted and their order tells nothing: "
        f"{_DRAWN} counts in its place; if the log has times, name them with --time-column"
    )
    return _drawn(found, ["user"]), 0, said


def _direction(rows: pl.DataFrame, pairs: pl.Series) -> str | None:
    """Whether nearly all steps from an item index to the next "ascend" or "descend", over rows paired with the next.

    None where they go both ways, or are few.
    """
    steps = np.diff(rows["item"].to_numpy())[pairs.to_numpy()[:-1]]
    up, down = int((steps > 0).sum()), int((steps < 0).sum())
    if up + down < _FEWEST_STEPS or max(up, down) < _SORTED * (up + down):
        return None
    return "ascend" if up > down else "descend"


def _drawn(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sorted by the keys, the last one first; ties by the hash, history first."""
    first = ["history"] if "history" in rows.columns else []
    return _sorted(rows.with_columns(drawn=_draw(rows)), ["drawn", *first, *keys]).drop("drawn")


def _draw(rows: pl.DataFrame) -> NDArray[np.uint64]:
    """A hash of each user and item (the finaliser of SplitMix64)."""
    users, items = (rows[name].to_numpy().astype(np.uint64) for name in ("user", "item"))
    mixed = (users << np.uint64(32)) + items + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _sorted(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Sorted by the last key first; stable sorts by one key take a quarter of the time of one sort by two keys."""
    for key in keys:
        rows = rows.sort(key, maintain_order=True, descending=key == "history")
    return rows
