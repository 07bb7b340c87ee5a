"""The occurrences of items in the training histories, and a fitted encoder's vectors of the histories before them.

Shape legend: B items of a batch, P places, D width, L history length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from beamwood.models.plain_encoder import PlainEncoder
from beamwood.ragged import indptr_of, places_in_rows, ranges
from beamwood.retrieval.searchers.queries import EncodedHistory, UserBranch
from beamwood.retrieval.searchers.vectors import VectorSearcher, sequence_searcher
from beamwood.types import IndexArray, ItemLists

__all__ = ["Occurrences", "encoded_histories", "replaced_vectors"]


@dataclass(frozen=True, slots=True)
class Occurrences:
    """The occurrences of item n are `histories.items[positions[indptr[n]:indptr[n + 1]]]`, in the order of
    histories.
    """

    histories: ItemLists
    indptr: NDArray[np.int64]
    positions: NDArray[np.int64]

    @classmethod
    def of(cls, histories: ItemLists, num_items: int, *, after_others: bool = False) -> Self:
        """The occurrences of every item; `after_others` omits those at the start of a history."""
        positions = np.argsort(histories.items, kind="stable")
        if after_others:
            positions = positions[positions > histories.indptr[histories.rows[positions]]]
        counts = np.bincount(histories.items[positions], minlength=num_items)
        return cls(histories, indptr_of(counts), positions)

    @property
    def counts(self) -> NDArray[np.int64]:
        """int64[N]."""
        return np.diff(self.indptr)

    def draw(
        self, items_B: IndexArray, most_B: IndexArray, generator: torch.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows int64[P] of the batch and positions int64[P] in `positions`: up to `most` random ones of each item."""
        starts, counts = self.indptr[items_B], self.counts[items_B]
        rows = np.repeat(np.arange(len(items_B)), counts)
        places = ranges(starts, counts)
        order = np.lexsort((torch.rand(len(rows), generator=generator).numpy(), rows))
        kept = places_in_rows(counts) < np.repeat(most_B, counts)
        return rows[kept], places[order][kept]

    def thinned(self, most: int, generator: torch.Generator) -> Occurrences:
        """Up to `most` random occurrences of each item."""
        every = np.arange(len(self.indptr) - 1)
        rows, places = self.draw(every, np.full(len(every), most), generator)
        indptr = indptr_of(np.bincount(rows, minlength=len(every)))
        return Occurrences(self.histories, indptr, self.positions[places])


def encoded_histories(
    encoder: PlainEncoder, histories: ItemLists, starts: IndexArray, stops: IndexArray
) -> NDArray[np.float32]:
    """float32[P, D], the vectors of the histories `histories.items[start:stop]`."""
    starts = np.maximum(starts, stops - encoder.length)
    result = np.zeros((len(starts), encoder.vectors.shape[1]), np.float32)
    # Sorted by length, as the encoder skips columns that are padding in a whole block.
    for rows in np.array_split(np.argsort(stops - starts, kind="stable"), -(-len(starts) // 1024)):
        result[rows] = encoder.encode(histories.slices(starts[rows], stops[rows]).padded(encoder.length))
    return result


def replaced_vectors(
    before: EncodedHistory, items: IndexArray, vectors: NDArray[np.float32], branch: UserBranch | None = None
) -> VectorSearcher:
    """A searcher with the encoder of `before` in which the given items have other vectors, as input and in search.

    `branch` replaces its own; None keeps that. The encoder is one of `tied_sequence`.
    """
    arrays = dict(before.encoder.arrays)
    arrays["items.weight"] = arrays["items.weight"].copy()
    arrays["items.weight"][items] = vectors
    return sequence_searcher(before.encoder.replaced(arrays), before.branch if branch is None else branch)
