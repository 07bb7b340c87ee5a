"""Uniform draws of items that users have not seen, without rejection.

Shape legend: B users, K items a draw, N items, d items of a user.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.ragged import places_in_rows
from beamwood.types import IndexArray, ItemLists

__all__ = ["UnseenItems"]


class UnseenItems:
    """Uniform draws from the items that are not in a user's list, without rejection.

    With the d distinct items c_0 < c_1 < .. of a user, the r-th other item is r + #{i: c_i - i <= r}.
    """

    def __init__(self, lists: ItemLists, num_items: int) -> None:
        distinct = lists.distinct()
        self.num_items, self.lengths, self._indptr = num_items, distinct.lengths, distinct.indptr
        if len(distinct.items) and int(distinct.items.max()) >= num_items:
            raise InputError(f"a list holds item {int(distinct.items.max())} of {num_items} items")
        shifted = distinct.items - places_in_rows(distinct.lengths)
        self._keys = distinct.rows * np.int64(num_items + 1) + shifted

    def draw(self, users_B: IndexArray, uniform_BK: NDArray[np.float64]) -> NDArray[np.int64]:
        """int64[B, K], an item for each uniform number in [0, 1). Errors: a user whose list has every item."""
        free = self.num_items - self.lengths[users_B]
        if len(free) and free.min() < 1:
            full = int(np.asarray(users_B)[free.argmin()])
            raise InputError(f"user {full} has all {self.num_items} items, so there is no negative; leave the user out")
        return self.at(users_B, np.minimum((uniform_BK * free[:, None]).astype(np.int64), free[:, None] - 1))

    def distinct(self, users_B: IndexArray, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """int64[B, count], distinct items for each user. Errors: a user with fewer items left."""
        free = self.num_items - self.lengths[users_B]
        if len(free) and free.min() < count:
            poor = int(np.asarray(users_B)[free.argmin()])
            raise InputError(f"row {poor} has only {free.min()} of {self.num_items} items left, below count={count}")
        ranks = [rng.choice(int(size), count, replace=False, shuffle=False) for size in free]
        return self.at(users_B, np.array(ranks, np.int64).reshape(len(free), count))

    def at(self, users_B: IndexArray, rank_BK: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[B, K], the items of the given ranks among a user's unseen ones, in ascending order."""
        users_B = np.asarray(users_B, np.int64)
        below = np.searchsorted(self._keys, users_B[:, None] * np.int64(self.num_items + 1) + rank_BK, side="right")
        return rank_BK + below - self._indptr[users_B][:, None]
