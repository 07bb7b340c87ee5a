"""Items next to the history's items: a sparse item-to-item matrix, weighted by recency.

Shape legend: B rows, L history length, N items.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from beamwood.errors import InputError, nearest
from beamwood.kernels.arrays import check_floats, check_integers, shape_of
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import check_search, join_hits
from beamwood.types import BoolArray, Hits, IndexArray, ItemLists, Needs, Query, SearchOptions

__all__ = ["NeighbourSearcher", "SeenPlace"]

SeenPlace = Literal["counted", "first", "last"]
"""What the history holds: scored as everything else, before all others (the newest first), or behind all that
has a score above 0."""

# So many histories' neighbours are summed at a time: with 69 items of 1,000 neighbours each, 100 MiB.
_BLOCK_ROWS = 128
# Of so few histories a sum over all items each costs less than scipy's matrices.
_FEW_ROWS = 4


class _Stored(StoredConfig):
    decay: float
    length: int = Field(ge=1, le=MOST)
    seen: SeenPlace = "counted"


class NeighbourSearcher:
    """`score(n) = sum over the history of decay^age * similarity(i, n)`, age 0 for the newest of `length` items.

    `similarity` is a sparse [N, N] matrix, row i the neighbours of i. Items that no history item knows follow those
    with a score above 0, by `popularity` [N]: theirs is `-1 / (1 + popularity)`.
    """

    kind: ClassVar[str] = "neighbours"
    needs: ClassVar[Needs] = Needs()

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
            # Products with the matrix trust its indices: one out of range reads foreign memory.
            self.similarity.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"similarity is no matrix in compressed rows: {error}") from None
        # Which scipy does not look at where the last row ends at 0.
        if (np.diff(self.similarity.indptr) < 0).any():
            raise InputError("similarity is no matrix in compressed rows: a row ends before it begins")
        self.popularity = np.ascontiguousarray(popularity, dtype=np.float32)
        if not np.isfinite(self.similarity.data).all():
            raise InputError("similarity must hold finite numbers")
        if not np.isfinite(self.popularity).all() or (self.popularity < 0).any():
            raise InputError("popularity must hold finite numbers of 0 or more")
        self.decay, self.length, self.seen = decay, length, seen
        # Below the smallest positive score, so that it only orders what has none.
        self._filler = -1 / (1 + self.popularity)
        self._by_filler = np.argsort(-self._filler, kind="stable").astype(np.int32)

    @property
    def num_items(self) -> int:
        return len(self.popularity)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row: of the history's neighbours and the most popular; see `types.Searcher`.

        No item is scored that is not a neighbour; a filter is a pass over the catalogue.
        """
        histories, excluded, allowed = query.histories, options.excluded, options.allowed
        check_search(len(histories), self.num_items, k, excluded=excluded, allowed=allowed)
        free = np.ones(self.num_items, bool) if allowed is None else allowed.copy()
        fillers = self._by_filler if allowed is None else self._by_filler[allowed[self._by_filler]]
        parts = []
        for start in range(0, len(histories), _BLOCK_ROWS):
            rows = np.arange(start, min(start + _BLOCK_ROWS, len(histories)))
            sums = self._sums(histories.take(rows))
            hits = Hits(
                np.full((len(rows), k), -1, np.int32),
                np.full((len(rows), k), -np.inf, np.float32),
                np.full(len(rows), len(fillers), np.int64),
            )
            for place, row in enumerate(rows):
                banned = np.empty(0, np.int32) if excluded is None else np.unique(excluded[int(row)])
                banned = banned[free[banned]]
                free[banned] = False
                at = slice(sums.indptr[place], sums.indptr[place + 1])
                items, scores = self._best(sums.indices[at], sums.data[at], free, fillers, len(banned), k)
                hits.items[place, : len(items)], hits.scores[place, : len(items)] = items, scores
                hits.scored[place] -= len(banned)
                free[banned] = True
            parts.append(hits)
        return join_hits(parts, k)

    def _best(
        self,
        items: NDArray[np.int32],
        sums: NDArray[np.float32],
        free: BoolArray,
        fillers: NDArray[np.int32],
        num_banned: int,
        k: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """At most k items that are `free` and their scores, best first: of the neighbours and of `fillers`."""
        known = free[items] & (sums != 0)
        items, sums = items[known], sums[known]
        if np.count_nonzero(sums > 0) < k:
            # Among so many are enough that are neither banned nor there already.
            others = fillers[: k + num_banned + len(items)]
            others = others[free[others] & ~np.isin(others, items)][:k]
            items, sums = np.concatenate([items, others]), np.concatenate([sums, self._filler[others]])
        if len(items) > k:
            reached = sums >= np.partition(sums, len(sums) - k)[len(sums) - k]
            items, sums = items[reached], sums[reached]
        order = np.lexsort((items, -sums))[:k]
        return items[order], sums[order]

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        columns = np.maximum(items_BM, 0)
        if not columns.size:  # of which scipy's fancy index makes a matrix
            return np.zeros(columns.shape, np.float32)
        if len(query) <= _FEW_ROWS:
            sums = self._sums_at(query.histories, columns)
        else:
            rows = np.repeat(np.arange(len(query))[:, None], columns.shape[1], axis=1)
            sums = np.asarray(self._sums(query.histories)[rows.ravel(), columns.ravel()], np.float32)
            sums = sums.reshape(columns.shape)
        return np.where(items_BM < 0, np.float32(-np.inf), np.where(sums != 0, sums, self._filler[columns]))

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

    def _sums_at(self, histories: ItemLists, columns_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], what `_sums` holds at columns: of few rows quicker than by scipy, and the same to the bit."""
        recent, age, weights = self._recent(histories)
        matrix, sums_BM = self.similarity, np.empty(columns_BM.shape, np.float32)
        for row, columns_M in enumerate(columns_BM):
            at = slice(recent.indptr[row], recent.indptr[row + 1])
            sums_N = np.zeros(self.num_items, np.float32)
            for item, weight in zip(recent.items[at].tolist(), weights[at], strict=True):
                own = slice(matrix.indptr[item], matrix.indptr[item + 1])
                sums_N[matrix.indices[own]] += weight * matrix.data[own]
            if self.seen != "counted":
                # The newest of several places is the last that is written.
                sums_N[recent.items[at]] = 0
                if self.seen == "first":
                    sums_N[recent.items[at]] = (sums_N.max(initial=0) + 1 / (1 + age[at])).astype(np.float32)
            sums_BM[row] = sums_N[columns_M]
        return sums_BM

    def _recent(self, histories: ItemLists) -> tuple[ItemLists, NDArray[np.int64], NDArray[np.float32]]:
        """The latest items of each history, how many came after each, and what its neighbours count."""
        if len(histories.items) and int(histories.items.max()) >= self.num_items:
            raise InputError(f"a history holds item index {int(histories.items.max())} of {self.num_items} items")
        recent = histories.last(self.length)
        age = np.repeat(recent.indptr[1:], recent.lengths) - 1 - np.arange(len(recent.items))
        return recent, age, (self.decay**age).astype(np.float32)

    def _sums(self, histories: ItemLists) -> sparse.csr_matrix:
        """float32[B, N], the weighted sums of the history's neighbours."""
        recent, age, weights = self._recent(histories)
        queries = sparse.csr_matrix((weights, recent.items, recent.indptr), shape=(len(recent), self.num_items))
        sums = sparse.csr_matrix(queries @ self.similarity, dtype=np.float32)
        return sums if self.seen == "counted" else self._moved(sums, recent, age)

    def _moved(self, sums: sparse.csr_matrix, recent: ItemLists, age: NDArray[np.int64]) -> sparse.csr_matrix:
        """The sums with what each history holds above all others of its row, or without a score."""
        newest = np.lexsort((age, recent.items, recent.rows))
        rows, items = recent.rows[newest], recent.items[newest]
        kept = np.ones(len(rows), bool)
        kept[1:] = (rows[1:] != rows[:-1]) | (items[1:] != items[:-1])
        rows, items, places = rows[kept], items[kept], age[newest][kept]
        had = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, items)), shape=sums.shape)
        sums = sparse.csr_matrix(sums - sums.multiply(had))
        if self.seen == "first":
            # Of a row whose sums are negative the highest is 0, that of the items without one.
            above = sums.max(axis=1).toarray().ravel()[rows] + 1 / (1 + places)
            sums = sums + sparse.csr_matrix((above.astype(np.float32), (rows, items)), shape=sums.shape)
        sums.eliminate_zeros()
        return sparse.csr_matrix(sums)
