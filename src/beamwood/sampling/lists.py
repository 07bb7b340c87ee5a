"""Lists to rank: some of a user's items, and items that the user has not seen.

Shape legend: B lists, K items a list, N items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from beamwood.data.examples import windows
from beamwood.data.unseen import UnseenItems
from beamwood.errors import InputError
from beamwood.types import IndexArray, ItemLists, Query

__all__ = ["FutureListSampler", "LabelledLists", "ListSampler"]


@dataclass(frozen=True, slots=True)
class LabelledLists:
    """Users or histories, `items_BK` int64 (the positives first) and `labels_BK` float32."""

    query: Query
    items_BK: NDArray[np.int64]
    labels_BK: NDArray[np.float32]


class ListSampler:
    """For each user, lists of `num_positives` seen items and `num_negatives` others, both drawn with replacement.

    Users with some items but not all take turns. An epoch has at least one list for each of them, and at least as many
    positives as there are interactions, on which the study's schedule by epochs depends. Source: GuidedRec, section
    5.3: 5 and 5.
    """

    def __init__(self, histories: ItemLists, num_items: int, *, num_positives: int, num_negatives: int) -> None:
        self.histories, self.num_positives, self.num_negatives = histories, num_positives, num_negatives
        self.unseen = UnseenItems(histories, num_items)
        lengths = self.unseen.lengths
        self.users = np.flatnonzero((lengths > 0) & (lengths < num_items))
        if len(self.users) == 0:
            raise InputError(
                "no training user has seen some items but not all, so there is no list to rank; give a longer log"
            )
        self._num_lists = max(len(self.users), -(-len(histories.items) // num_positives))

    def __len__(self) -> int:
        return self._num_lists

    def sample(self, rows_B: IndexArray, generator: torch.Generator) -> LabelledLists:
        """A list for the user of each given row; the queries have no histories."""
        users = self.users[np.asarray(rows_B) % len(self.users)]
        start, length = self.histories.indptr[users], self.histories.lengths[users]
        query = Query(users, ItemLists.empty(len(users)))
        return _drawn_lists(self, query, self.histories.items, start, length, generator)


class FutureListSampler:
    """For each position of each history `num_positives` of the next `horizon` items (0: of all) and `num_negatives`
    others.

    The query's history is the `length` items before the position; the negatives are none of the user's items.
    """

    def __init__(
        self, histories: ItemLists, num_items: int, *, length: int, horizon: int, num_positives: int, num_negatives: int
    ) -> None:
        self.num_positives, self.num_negatives, self.horizon = num_positives, num_negatives, horizon
        self.unseen = UnseenItems(histories, num_items)
        examples = windows(histories, length=length + 1, min_history=1)
        kept = np.flatnonzero(self.unseen.lengths[examples.users] < num_items)
        if len(kept) == 0:
            raise InputError("no user has two interactions to train on and lacks an item; give a longer log")
        self.histories = histories
        self.examples = examples.take(kept)

    def __len__(self) -> int:
        return len(self.examples)

    def sample(self, rows_B: IndexArray, generator: torch.Generator) -> LabelledLists:
        """A list at each given position."""
        users, stop = self.examples.users[rows_B], self.examples.stop[rows_B]
        ahead = self.examples.ahead(rows_B, self.horizon)
        query = Query(users, self.examples.histories(rows_B))
        return _drawn_lists(self, query, self.histories.items, stop, ahead, generator)


def _drawn_lists(
    sampler: ListSampler | FutureListSampler,
    query: Query,
    items: NDArray[np.int32],
    start: NDArray[np.int64],
    length: NDArray[np.int64],
    generator: torch.Generator,
) -> LabelledLists:
    """Lists whose positives are among `items[start:start + length]`."""
    num_positives, num_negatives = sampler.num_positives, sampler.num_negatives
    # float32 has only 2^24 uniform numbers: of 20 million items a sixth would never be drawn.
    shape = (len(query), num_positives + num_negatives)
    draws = torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
    place = np.minimum((draws[:, :num_positives] * length[:, None]).astype(np.int64), length[:, None] - 1)
    positives = items[start[:, None] + place].astype(np.int64)
    negatives = sampler.unseen.draw(query.users, draws[:, num_positives:])
    labels = np.repeat(np.array([1, 0], np.float32), [num_positives, num_negatives])
    return LabelledLists(query, np.concatenate([positives, negatives], axis=1), np.tile(labels, (len(query), 1)))
