"""The checks of what a searcher is given, with which each search and each scoring begins.

Shape legend: B rows, M items a row, N items, U users.
"""

from __future__ import annotations

import numpy as np

from beamwood.errors import InputError
from beamwood.types import BoolArray, IndexArray, ItemLists

__all__ = ["check_histories", "check_items", "check_search", "check_users"]

# Up to this many items a list is faster than a reduction.
_FEW = 256


def check_search(
    num_rows: int,
    num_items: int,
    k: int,
    *,
    excluded: ItemLists | None = None,
    allowed: BoolArray | None = None,
) -> None:
    """Raise `InputError` where the arguments of a search are inconsistent; every searcher calls it first."""
    if k < 1:
        raise InputError(f"k={k} is below 1; ask for at least one item")
    if excluded is not None:
        if len(excluded) != num_rows:
            raise InputError(f"excluded has {len(excluded)} rows for {num_rows} histories; give one row each")
        highest = _highest_of(excluded.items)
        if highest >= num_items:
            raise InputError(
                f"excluded holds item index {highest}; the catalogue has {num_items} items, "
                f"indices end at {num_items - 1}"
            )
    if allowed is not None and (allowed.shape != (num_items,) or allowed.dtype != np.bool_):
        raise InputError(
            f"allowed has shape {allowed.shape} and type {allowed.dtype}; give one bool for each of the "
            f"{num_items} items"
        )


def _highest_of(items: IndexArray) -> int:
    """The highest of some items, -1 of none."""
    return max(items.tolist(), default=-1) if len(items) <= _FEW else int(items.max())


def check_histories(histories: ItemLists, num_items: int) -> None:
    """Errors: an item index beyond the catalogue."""
    highest = _highest_of(histories.items)
    if highest >= num_items:
        raise InputError(f"a history holds item index {highest} of {num_items} items")


def check_items(items_BM: IndexArray, num_rows: int, num_items: int) -> None:
    """Errors: items to score that are not a row for each query, an item index outside -1 .. N - 1."""
    if items_BM.ndim != 2 or len(items_BM) != num_rows:
        raise InputError(f"items has shape {items_BM.shape}; give one row for each of {num_rows} histories")
    if items_BM.size and (items_BM.max() >= num_items or items_BM.min() < -1):
        raise InputError(f"items holds an index outside -1..{num_items - 1}")


def check_users(users_B: IndexArray, num_users: int) -> None:
    """Errors: a user outside -1 .. U - 1."""
    if users_B.size and (users_B.max() >= num_users or users_B.min() < -1):
        raise InputError(f"users holds an index outside -1..{num_users - 1}")
