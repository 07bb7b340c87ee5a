"""Search by a sparse item-to-item matrix, with history items weighted by recency.

Shape legend: B rows, L history length, N items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from beamwood.errors import InputError, nearest
from beamwood.kernels.arrays import check_floats, check_integers, shape_of
from beamwood.kernels.dispatch import native
from beamwood.kernels.rows import sum_of_rows
from beamwood.ragged import is_in, sorted_distinct
from beamwood.retrieval.search_checks import check_histories, check_items, check_search
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import descending, in_order, no_hits
from beamwood.types import BoolArray, Hits, IndexArray, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = ["NeighbourSearcher", "SeenPlace"]

SeenPlace = Literal["counted", "first", "last"]
"""Seen items: scored like all others, before all others (the newest first), or behind all with a score above 0."""

Row = tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.integer[Any]]]
"""Items in any order, their sums, and the positions of given columns among them; other items have no sum."""


class _Stored(StoredConfig):
    decay: float
    length: int = Field(ge=1, le=MOST)
    seen: SeenPlace


class NeighbourSearcher:
    """`score(n) = sum over the history of decay^age * similarity(i, n)`, age 0 for the newest of `length` items.

    `similarity` is a sparse [N, N] matrix, row i the neighbours of i. Items that are no neighbour follow those with a
    score above 0, by `popularity` [N], with score `-1 / (1 + popularity)`.
    """

    kind: ClassVar[str] = "neighbours"
    needs: ClassVar[QueryNeeds] = QueryNeeds()

    def __init__(
        self,
        similarity: sparse.csr_matrix,
        popularity: NDArray[Any],
        *,
        decay: float = 1.0,
        length: int = 69,
        seen: SeenPlace = "counted",
    ) -> None:
        if not 0 < decay <= 1:
            raise InputError(f"decay={decay} is outside (0, 1]; 1 weights old and new alike")
        if length < 1:
            raise InputError(f"length={length} is below 1")
        if seen not in get_args(SeenPlace):
            raise InputError(f"seen='{seen}' is unknown{nearest(seen, get_args(SeenPlace))}")
        if similarity.shape != (len(popularity), len(popularity)):
            raise InputError(f"similarity has shape {similarity.shape} for {len(popularity)} items")
        self.similarity = sparse.csr_matrix(similarity, dtype=np.float32)
        try:
            # Out-of-range indices fail here rather than in a later search.
            self.similarity.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"similarity is not a matrix in compressed rows: {error}") from None
        # scipy misses this where the last row ends at 0.
        if (np.diff(self.similarity.indptr) < 0).any():
            raise InputError("similarity is not a matrix in compressed rows: a row ends before it begins")
        self.popularity = np.ascontiguousarray(popularity, dtype=np.float32)
        if not np.isfinite(self.similarity.data).all():
            raise InputError("similarity must hold finite numbers")
        if not np.isfinite(self.popularity).all() or (self.popularity < 0).any():
            raise InputError("popularity must hold finite numbers of 0 or more")
        self.decay, self.length, self.seen = decay, length, seen
        # Below every positive score, so that it only orders items without one.
        self._filler = -1 / (1 + self.popularity)
        # Whole numbers below 2^16, which are sorted fast, have a filler each; of others several may share one.
        whole = self.popularity.max(initial=0) < 2**16 and not (self.popularity % 1).any()
        self._by_filler = descending(self.popularity if whole else self._filler)

    @property
    def num_items(self) -> int:
        return len(self.popularity)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row, among the history's neighbours and the most popular; see `types.Searcher`.

        Only neighbours are scored; a filter is ordered by popularity once, where neighbours are too few.
        """
        histories, excluded, allowed = query.histories, options.excluded, options.allowed
        check_search(len(histories), self.num_items, k, excluded=excluded, allowed=allowed)
        hits = no_hits(len(histories), k)
        hits.scored[:] = self.num_items if allowed is None else options.num_allowed
        for row, (near, sums, places) in enumerate(self._sums(histories, excluded)):
            banned = np.empty(0, np.int32) if excluded is None else sorted_distinct(excluded[row])
            banned = banned if allowed is None else banned[allowed[banned]]
            hits.scored[row] -= len(banned)
            sums[places] = 0
            known = sums != 0
            if allowed is not None:
                known &= allowed[near]
            items, scores = self._best(near[known], sums[known], banned, k, options)
            hits.items[row, : len(items)], hits.scores[row, : len(items)] = items, scores
        return hits

    def _best(
        self,
        items: NDArray[np.int32],
        sums: NDArray[np.float32],
        banned: NDArray[np.int32],
        k: int,
        options: SearchOptions,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """At most k items and their scores, best first: of the given neighbours and of the most popular."""
        if np.count_nonzero(sums > 0) < k:
            allowed = options.allowed
            order = self._by_filler if allowed is None else options.of_filter(self, self._allowed)
            # Enough for k that are neither banned nor neighbours.
            others = order[: k + len(banned) + len(items)]
            others = others[~is_in(others, np.concatenate([banned, items]))][:k]
            items, sums = np.concatenate([items, others]), np.concatenate([sums, self._filler[others]])
        if len(items) > k:
            reached = sums >= np.partition(sums, len(sums) - k)[len(sums) - k]
            items, sums = items[reached], sums[reached]
        best = np.lexsort((items, -sums))[:k]
        return items[best], sums[best]

    def _allowed(self, allowed: BoolArray) -> NDArray[np.int32]:
        return in_order(self._by_filler, self._filler, allowed)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        items_BM = np.asarray(items_BM)
        check_items(items_BM, len(query), self.num_items)
        columns_BM = np.maximum(items_BM, 0).astype(np.int32)
        sums_BM = np.empty(columns_BM.shape, np.float32)
        for row, (_, sums, places) in enumerate(self._sums(query.histories, [*columns_BM])):
            sums_BM[row] = sums[places]
        return np.where(items_BM < 0, np.float32(-np.inf), np.where(sums_BM != 0, sums_BM, self._filler[columns_BM]))

    def by_popularity(self, hits: Hits) -> BoolArray:
        """bool[B, k], which results of a search are no neighbours of the history, but follow by popularity."""
        known = (hits.items >= 0) & (hits.items < self.num_items)
        filled: BoolArray = known & (hits.scores == self._filler[np.where(known, hits.items, 0)])
        return filled

    def shares(self, history: ItemLists, item: int) -> list[tuple[int, float]]:
        """The contributions of one history's places to an item's score, by place, without zeros.

        Empty for an item in the history unless `seen` is "counted".
        """
        recent, _, weights = self._recent(history)
        if self.seen != "counted" and item in recent.items:
            return []
        first = len(history.items) - len(recent.items)
        # By row, as a column of compressed rows takes a pass over all entries.
        rows, near = self.similarity[recent.items].tocoo(), np.zeros(len(recent.items), np.float32)
        np.add.at(near, rows.row[rows.col == item], rows.data[rows.col == item])
        return [(first + at, score) for at, score in enumerate((weights * near).tolist()) if score]

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        config = {"decay": self.decay, "length": self.length, "seen": self.seen}
        matrix = {"data": self.similarity.data, "indices": self.similarity.indices, "indptr": self.similarity.indptr}
        return config, matrix | {"popularity": self.popularity}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Self:  # noqa: ARG003
        settings = _Stored.model_validate(config)
        (size,) = shape_of(arrays, "popularity", 1)
        check_floats(arrays, {"popularity": (size,), "data": arrays["indices"].shape})
        check_integers(arrays, dict.fromkeys(("indices", "indptr"), (np.int32, np.int64)))
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        return cls(sparse.csr_matrix(parts, shape=(size, size)), arrays["popularity"], **dict(settings))

    def _recent(self, histories: ItemLists) -> tuple[ItemLists, NDArray[np.int64], NDArray[np.float32]]:
        """The latest items of each history, the age of each, and its factor."""
        check_histories(histories, self.num_items)
        recent = histories.last(self.length)
        age = np.repeat(recent.indptr[1:], recent.lengths) - 1 - np.arange(len(recent.items))
        return recent, age, (self.decay**age).astype(np.float32)

    def _sums(self, histories: ItemLists, columns: Sequence[NDArray[np.int32]] | ItemLists | None) -> Iterator[Row]:
        """For each history the neighbours, their weighted sums, and the positions of its row of given columns."""
        module, (recent, age, weights) = native(), self._recent(histories)
        for row in range(len(recent)):
            at = slice(recent.indptr[row], recent.indptr[row + 1])
            seen = asked = recent.items[at]
            if columns is not None:
                asked = np.concatenate([seen, columns[row]])
            items, sums, places = sum_of_rows(module, self.similarity, seen, weights[at], asked)
            if self.seen != "counted":
                # Assigned last, the newest of several occurrences wins.
                own = places[: len(seen)]
                sums[own] = 0
                if self.seen == "first":
                    # Where all sums are negative the maximum is 0, that of items without a sum.
                    sums[own] = (sums.max(initial=0) + 1 / (1 + age[at])).astype(np.float32)
            yield items, sums, places[len(seen) :]
