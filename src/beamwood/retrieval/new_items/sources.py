"""The mixture of a new item: of known items, from what is known about the new one.

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

Source = Literal["similar", "events", "vector", "category", "none"]
"""The source of a mixture: given similar items, its first events, its content vector, its category, or none."""

WITHIN = 10
"""The distance in a history within which another item counts as near."""
FEWEST_EVENTS = 3
REFRESHED_AT = (3, 10, 30)
"""Numbers of events after which a mixture is recomputed."""

# The items of a mixture.
_MIXED = 10

Mixture = dict[int, float]


def items_near(history: IndexArray, place: int) -> NDArray[Any]:
    """[at most 2 WITHIN], the items within `WITHIN` places of one place in a history, without that place."""
    history = np.asarray(history)
    return np.concatenate([history[max(0, place - WITHIN) : place], history[place + 1 : place + 1 + WITHIN]])


@dataclass(frozen=True, slots=True)
class Sources:
    """Mixtures by source; `counts` float[N]: the interactions of each known item."""

    counts: NDArray[Any]

    def similar(self, items: Iterable[int]) -> Mixture:
        """The given similar items, equally weighted."""
        return dict.fromkeys(items, 1.0)

    def events(self, near: Iterable[IndexArray]) -> Mixture:
        """The known items most often near its events, weighted by count; see `items_near`."""
        parts = [np.asarray(each) for each in near]
        items, times = np.unique(np.concatenate([np.empty(0, np.int64), *parts]), return_counts=True)
        known = (items >= 0) & (items < len(self.counts))
        items, times = items[known].astype(np.int64), times[known]
        # Ties go to the more popular: with few events nearly all counts are equal, and popular neighbours are less
        # likely chance.
        best = np.lexsort((items, -self.counts[items], -times))[:_MIXED]
        return {int(items[at]): float(times[at]) for at in best}

    def vector(self, items: IndexArray) -> Mixture:
        """The most popular of the items with the most similar content vectors, equally weighted; `items`: best first.

        Where no interactions are known, the most similar.
        """
        best = self._most_popular(items) if np.any(self.counts) else np.asarray(items)[:_MIXED].tolist()
        return dict.fromkeys(best, 1.0)

    def category(self, items: IndexArray) -> Mixture:
        """The most popular items of its categories, equally weighted."""
        return dict.fromkeys(self._most_popular(items), 1.0)

    def _most_popular(self, items: IndexArray) -> list[int]:
        items = np.unique(np.asarray(items, np.int64))
        best: list[int] = items[np.lexsort((items, -self.counts[items]))[:_MIXED]].tolist()
        return best
