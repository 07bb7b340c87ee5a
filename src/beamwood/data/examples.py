"""Training examples as positions in the histories; items are copied only into batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.types import IndexArray, ItemLists

__all__ = ["WINDOWS_OF_USERS", "Examples", "WindowsOfUsers", "last_window", "windows"]

WindowsOfUsers = Literal["all", "last"]


@dataclass(frozen=True, slots=True)
class Examples:
    """E examples: the history `source.items[start:stop]` of user `users` and the target at `stop`, all int64[E]."""

    source: ItemLists
    users: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.stop)

    def histories(self, rows: IndexArray) -> ItemLists:
        """The histories of the given examples."""
        return self.source.slices(self.start[rows], self.stop[rows])

    def targets(self, rows: IndexArray) -> NDArray[np.int32]:
        """int32[len(rows)], the target item of each given example."""
        return self.source.items[self.stop[rows]]

    def ahead(self, rows: IndexArray, horizon: int) -> NDArray[np.int64]:
        """int64[len(rows)], how many of the user's next `horizon` items there are from the target on; 0: of all."""
        left = self.source.indptr[self.users[rows] + 1] - self.stop[rows]
        return np.minimum(left, horizon) if horizon else left

    def take(self, rows: IndexArray) -> Examples:
        """The given examples alone."""
        return Examples(self.source, self.users[rows], self.start[rows], self.stop[rows])


def windows(histories: ItemLists, *, length: int, min_history: int) -> Examples:
    """Every window of `length` consecutive interactions: all but the last are history, the last is the target.

    A window at the start of a user is shorter; it counts when it has at least `min_history` history items. Source: the
    sliding windows of DTR's training data. Errors: lengths that leave no history.
    """
    if length < 2 or not 1 <= min_history < length:
        raise InputError(f"length={length} and min_history={min_history}; need 1 <= min_history < length")
    position = np.arange(len(histories.items), dtype=np.int64)
    begin = np.repeat(histories.indptr[:-1], histories.lengths)
    stop = position[position - begin >= min_history]
    users = np.searchsorted(histories.indptr, stop, side="right") - 1
    return Examples(histories, users, np.maximum(histories.indptr[users], stop - (length - 1)), stop)


def last_window(histories: ItemLists, *, length: int, min_history: int) -> Examples:
    """Only the last window of each user, as described in DTR, section 6.1."""
    every = windows(histories, length=length, min_history=min_history)
    return every.take(np.flatnonzero(every.stop == histories.indptr[every.users + 1] - 1))


WINDOWS_OF_USERS = {"all": windows, "last": last_window}
"""Which windows of a user's history are examples."""
