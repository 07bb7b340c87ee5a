"""Items scored individually beside the results of a search.

Shape legend: B rows, M new items, O items beside the search, k results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamwood.retrieval.top_k import of_columns, sort_candidates, top_k
from beamwood.types import Hits, IndexArray, SearchOptions

__all__ = ["Beside"]


@dataclass(frozen=True, slots=True)
class Beside:
    """Items `first + rows_O` of a catalogue whose new items are `first`, `first + 1`, ..: `num_new` of them."""

    first: int
    num_new: int
    rows_O: NDArray[np.int32]

    @property
    def items_O(self) -> NDArray[np.int32]:
        """int32[O], their indices in the catalogue."""
        return self.rows_O + np.int32(self.first)

    def places(self, items: IndexArray) -> NDArray[np.int32]:
        """int32 of the shape of `items`, the position of each among them; -1 for another item."""
        place_M = np.full(max(1, self.num_new), -1, np.int32)
        place_M[self.rows_O] = np.arange(len(self.rows_O))
        new = np.asarray(items) >= self.first
        return np.where(new, place_M[np.where(new, np.asarray(items) - self.first, 0)], np.int32(-1))

    def joined(self, hits: Hits, scores_BO: NDArray[np.float32], k: int, options: SearchOptions) -> Hits:
        """The k best of `hits` and of these items by score; each once, within the options."""
        if len(self.rows_O) == 0:
            return hits
        scores_BO = scores_BO.astype(np.float32)
        if options.allowed is not None:
            scores_BO[:, ~options.allowed[self.items_O]] = -np.inf
        if options.excluded is not None:
            places = self.places(options.excluded.items)
            scores_BO[options.excluded.rows[places >= 0], places[places >= 0]] = -np.inf
        rows, columns = np.nonzero(hits.items >= self.first)
        places = self.places(hits.items[rows, columns])
        scores_BO[rows[places >= 0], places[places >= 0]] = -np.inf
        best = of_columns(top_k(scores_BO, k), self.items_O)
        both = np.concatenate([hits.items, best.items], axis=1), np.concatenate([hits.scores, best.scores], axis=1)
        joined = sort_candidates(*both, k)
        return Hits(joined.items, joined.scores, hits.scored + best.scored)
