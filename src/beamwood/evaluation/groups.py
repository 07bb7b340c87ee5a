"""Groups of queries and of labels: by length of history, and by popularity.

Shape legend: Q queries, N items, G groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.split import Split
from beamwood.types import IndexArray

__all__ = ["Groups", "by_history", "by_popularity", "grouped"]

MOST_GROUPS = 5


@dataclass(frozen=True, slots=True)
class Groups:
    """`group_of` int64[..], the group 0..G-1 of each; `bounds`: the least and the largest value of each group."""

    group_of: NDArray[np.int64]
    bounds: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.bounds)

    def as_dicts(self, counts_G: IndexArray, what: str) -> list[dict[str, Any]]:
        """Bounds and counts, as JSON can hold them."""
        return [
            {"low": low, "high": high, what: int(count)}
            for (low, high), count in zip(self.bounds, counts_G, strict=True)
        ]


def grouped(values: IndexArray, weighed: IndexArray | None = None) -> Groups:
    """At most five groups of values, ascending, with about equally many of `weighed` (default: the values) in each.

    Fewer where values repeat, so that one value is never in two groups.
    """
    values = np.asarray(values, np.int64)
    judged = values if weighed is None or len(weighed) == 0 else np.asarray(weighed, np.int64)
    steps = np.arange(1, MOST_GROUPS) / MOST_GROUPS
    cuts = np.unique(np.quantile(judged, steps, method="lower")) if len(judged) else judged
    # A value equal to a cut is in the group below it.
    place = np.searchsorted(cuts, values, side="left")
    _, group_of = np.unique(place, return_inverse=True)
    bounds = tuple(
        (int(values[group_of == group].min()), int(values[group_of == group].max()))
        for group in range(int(group_of.max(initial=-1)) + 1)
    )
    return Groups(group_of.astype(np.int64), bounds)


def by_history(split: Split, users_Q: IndexArray) -> Groups:
    """The groups of these test users by the length of their history."""
    length_of_user = np.zeros(len(split.dataset.users), np.int64)
    length_of_user[split.test.users] = split.test.histories.lengths
    return grouped(length_of_user[users_Q])


def by_popularity(split: Split) -> Groups:
    """The groups of all items by training interactions, with about equally many test labels in each."""
    counts_N = split.train.item_counts
    return grouped(counts_N, counts_N[split.test.labels.items])
