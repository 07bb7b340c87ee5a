"""The most popular items, the same for every user."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.ragged import is_in
from beamwood.retrieval.search_checks import check_items, check_search
from beamwood.retrieval.stored import StoredConfig
from beamwood.retrieval.top_k import descending, in_order, no_hits
from beamwood.types import BoolArray, Hits, IndexArray, Query, QueryNeeds, SearchOptions

__all__ = ["PopularitySearcher"]


class PopularitySearcher:
    """Scores each item by its training interactions; `counts` [N], 0 or more."""

    kind: ClassVar[str] = "popularity"
    needs: ClassVar[QueryNeeds] = QueryNeeds()

    def __init__(self, counts: NDArray[Any]) -> None:
        self.counts = np.ascontiguousarray(counts, dtype=np.float32)
        if self.counts.ndim != 1 or not np.isfinite(self.counts).all() or (self.counts < 0).any():
            raise InputError("counts must be one finite number, 0 or more, for each item")

    @property
    def num_items(self) -> int:
        return len(self.counts)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k most popular allowed items; see `types.Searcher`.

        The items are sorted once: `Hits.scored` counts those examined until k were found.
        """
        num_rows, excluded = len(query), options.excluded
        check_search(num_rows, self.num_items, k, excluded=excluded, allowed=options.allowed)
        order = self._order if options.allowed is None else options.of_filter(self, self._allowed)
        hits = no_hits(num_rows, k)
        hits.scored[:] = min(k, len(order))
        for row in range(num_rows):
            best = order[:k]
            if excluded is not None and len(excluded[row]):
                # Enough for k that are not excluded.
                best = order[: k + len(excluded[row])]
                hits.scored[row] = len(best)
                best = best[~is_in(best, excluded[row])][:k]
            hits.items[row, : len(best)] = best
            hits.scores[row, : len(best)] = self.counts[best]
        return hits

    @cached_property
    def _order(self) -> NDArray[np.int32]:
        """int32[N], the items by count, ties by the lower index."""
        return descending(self.counts)

    def _allowed(self, allowed: BoolArray) -> NDArray[np.int32]:
        return in_order(self._order, self.counts, allowed)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the count of each given item; -inf where the item index is -1."""
        check_items(np.asarray(items_BM), len(query), self.num_items)
        return np.where(items_BM < 0, np.float32(-np.inf), self.counts[items_BM])

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"counts": self.counts}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Self:  # noqa: ARG003
        StoredConfig.model_validate(config)
        check_floats(arrays, {"counts": shape_of(arrays, "counts", 1)})
        return cls(arrays["counts"])
