"""The tail: the rule by which items are rare, and the queries whose labels are.

Shape legend: N items.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from beamwood.arguments import is_number
from beamwood.data.dataset import Dataset
from beamwood.data.queries import Queries
from beamwood.errors import InputError, nearest
from beamwood.types import BoolArray, IndexArray

__all__ = ["Tail", "TailOf", "TailRule", "tail_queries"]


@dataclass(frozen=True, slots=True)
class Tail:
    """The rare items: `mask` bool[N], true for the tail, and its `rule` in words."""

    mask: BoolArray
    rule: str


TailOf = Literal["items", "interactions", "prefixes"]


@dataclass(frozen=True, slots=True)
class TailRule:
    """Which items are the tail, by how often training holds them.

    of "items": the `share` of item types with the fewest interactions, rounded (halves up), which is the words of the
    paper of LPO4Rec. of "interactions": the largest set of items with the fewest interactions that holds no more than
    `share` of all. Ties of both by item index ascending. of "prefixes": the `share` of item types, rounded up, that
    stand least often in the prefixes of two items or more of the training histories, of equal ones those that appear
    last; this is LPO4Rec's program, and the rule of its figures. Errors: an unknown word, a share outside 0..1.
    """

    of: TailOf = "items"
    share: float = 0.2

    def __post_init__(self) -> None:
        if self.of not in get_args(TailOf):
            raise InputError(f"of={self.of!r} is unknown{nearest(str(self.of), get_args(TailOf))}")
        if not (is_number(self.share) and 0 <= self.share <= 1):
            raise InputError(f"share={self.share!r} is outside 0..1; give the share that forms the tail, such as 0.2")

    def tail(self, train: Dataset) -> Tail:
        """The tail of a training data set."""
        order, mask = self._rarest_first(train), np.zeros(train.num_items, np.bool_)
        mask[order[: self._size(train.item_counts[order])]] = True
        return Tail(mask, self.describe())

    def _rarest_first(self, train: Dataset) -> IndexArray:
        if self.of != "prefixes":
            return np.argsort(train.item_counts, kind="stable")
        items = train.histories.items
        seen, first = np.unique(items, return_index=True)
        first_N = np.full(train.num_items, len(items))
        first_N[seen] = first
        return np.lexsort((-first_N, train.prefix_counts))

    def _size(self, ordered_counts: IndexArray) -> int:
        # Rounded to six places first, as binary fractions may fall just below an integer.
        if self.of == "interactions":
            held = np.cumsum(ordered_counts)
            return int(np.searchsorted(held, round(self.share * held[-1], 6), side="right"))
        if self.of == "prefixes":
            return math.ceil(round(self.share * len(ordered_counts), 6))
        return math.floor(round(self.share * len(ordered_counts), 6) + 0.5)

    def describe(self) -> str:
        """The rule in words, for every output with a tail metric."""
        if self.of == "items":
            return f"tail = the {_percent(self.share)} of the items with the fewest training interactions"
        if self.of == "prefixes":
            return (
                f"tail = the {_percent(self.share)} of the items that stand least often in the training histories' "
                "prefixes of two items or more"
            )
        return (
            f"tail = the least interacted items that together hold {_percent(self.share)} of the training interactions"
        )


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def tail_queries(queries: Queries, rare: Tail) -> Queries:
    """The queries that have a tail label, with their tail labels alone. Errors: none has any."""
    tail = queries.labels.keeping(rare.mask[queries.labels.items])
    rows = np.flatnonzero(tail.lengths > 0)
    if len(rows) == 0:
        raise InputError(f"no query has a tail label ({rare.rule}); raise the share of the tail")
    return replace(queries, labels=tail).take(rows)
