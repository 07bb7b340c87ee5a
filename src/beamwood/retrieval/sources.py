"""What a new item is a mixture of: known items, by what little is known of the new one.

Shape legend: N known items.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beamwood.types import IndexArray

__all__ = ["FEWEST_EVENTS", "REFRESHED_AT", "WITHIN", "Source", "Sources", "items_near"]

Source = Literal["similar", "events", "category", "none"]
"""Where a mixture comes from: items said to be like it, its first events, its category, or nothing."""

WITHIN = 10
"""Places of a history in which another item is near."""
FEWEST_EVENTS = 3
REFRESHED_AT = (3, 10, 30)
"""Events of an item at which its mixture is made anew."""

# Of what stands near its events, and of its category, so many items.
_NEAR, _CATEGORY = 10, 30

Mixture = dict[int, float]


def items_near(history: IndexArray, place: int) -> NDArray[Any]:
    """[at most 2 WITHIN], what stands within `WITHIN` places of one in a history, that place left out."""
    history = np.asarray(history)
    return np.concatenate([history[max(0, place - WITHIN) : place], history[place + 1 : place + 1 + WITHIN]])


@dataclass(frozen=True, slots=True)
class Sources:
    """Mixtures by source; `counts` float[N]: how often each known item was taken."""

    counts: NDArray[Any]

    def similar(self, items: Iterable[int]) -> Mixture:
        """Items that it is said to be like, all alike."""
        return dict.fromkeys(items, 1.0)

    def events(self, near: Iterable[IndexArray]) -> Mixture:
        """The known items that stand most often near its events, by how often; see `items_near`."""
        parts = [np.asarray(each) for each in near]
        items, times = np.unique(np.concatenate([np.empty(0, np.int64), *parts]), return_counts=True)
        known = (items >= 0) & (items < len(self.counts))
        items, times = items[known].astype(np.int64), times[known]
        # Of equal ones the more popular: from few events nearly all counts are equal, and chance neighbours are rare.
        best = np.lexsort((items, -self.counts[items], -times))[:_NEAR]
        return {int(items[at]): float(times[at]) for at in best}

    def category(self, items: IndexArray) -> Mixture:
        """The most popular items of its categories, all alike."""
        items = np.unique(np.asarray(items, np.int64))
        best = np.lexsort((items, -self.counts[items]))[:_CATEGORY]
        return {int(items[at]): 1.0 for at in best}
