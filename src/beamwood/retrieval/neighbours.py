"""Items next to the history's items: a sparse item-to-item matrix, weighted by recency.

Shape legend: B rows, L history length, N items.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import sparse

from beamwood.errors import InputError
from beamwood.kernels.arrays import check_floats, check_integers, shape_of
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import check_search, top_k
from beamwood.types import BoolArray, Hits, IndexArray, ItemLists

__all__ = ["NeighbourSearcher"]

# Dense score blocks are kept to about this many cells (128 MiB).
_BLOCK_CELLS = 2**25


class _Stored(StoredConfig):
    decay: float
    length: int = Field(ge=1, le=MOST)


class NeighbourSearcher:
    """`score(n) = sum over the history of decay^age * similarity(i, n)`, age 0 for the newest of `length` items.

    `similarity` is a sparse [N, N] matrix, row i the neighbours of i, values 0 or more. Items that no history item
    knows follow those with a score, by `popularity` [N].
    """

    kind: ClassVar[str] = "neighbours"

    def __init__(
        self, similarity: sparse.csr_matrix, popularity: NDArray[Any], *, decay: float = 1.0, length: int = 69
    ) -> None:
        if not 0 < decay <= 1:
            raise InputError(f"decay={decay} is outside (0, 1]; 1 weights old and new alike")
        if length < 1:
            raise InputError(f"length={length} is below 1")
        if similarity.shape != (len(popularity), len(popularity)):
            raise InputError(f"similarity has shape {similarity.shape} for {len(popularity)} items")
        self.similarity = sparse.csr_matrix(similarity, dtype=np.float32)
        try:
            # Products with the matrix trust its indices: one out of range reads foreign memory.
            self.similarity.check_format(full_check=True)
        except ValueError as error:
            raise InputError(f"similarity is no matrix in compressed rows: {error}") from None
        self.popularity = np.ascontiguousarray(popularity, dtype=np.float32)
        for name, values in (("similarity", self.similarity.data), ("popularity", self.popularity)):
            if not np.isfinite(values).all() or (values < 0).any():
                raise InputError(f"{name} must hold finite numbers of 0 or more")
        self.decay, self.length = decay, length
        # Below the smallest positive score, so that it only orders what has none.
        self._filler = -1 / (1 + self.popularity)

    @property
    def num_items(self) -> int:
        return len(self.popularity)

    def search(
        self, histories: ItemLists, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
    ) -> Hits:
        """The k best items of each row by brute force over the history's neighbours; see `types.Searcher`."""
        check_search(len(histories), self.num_items, k, excluded=excluded, allowed=allowed)
        block = max(1, _BLOCK_CELLS // self.num_items)
        parts = []
        for start in range(0, len(histories), block):
            rows = np.arange(start, min(start + block, len(histories)))
            scores = self._scores(histories.take(rows))
            banned = None if excluded is None else excluded.take(rows)
            parts.append(top_k(scores, k, excluded=banned, allowed=allowed))
        if not parts:
            return top_k(np.empty((0, self.num_items), np.float32), k)
        return Hits(
            np.concatenate([part.items for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.scored for part in parts]),
        )

    def score(self, histories: ItemLists, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        picked = np.take_along_axis(self._scores(histories), np.maximum(items_BM, 0), axis=1)
        return np.where(items_BM < 0, np.float32(-np.inf), picked)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        config = {"decay": self.decay, "length": self.length}
        matrix = {"data": self.similarity.data, "indices": self.similarity.indices, "indptr": self.similarity.indptr}
        return config, matrix | {"popularity": self.popularity}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        settings = _Stored.model_validate(config)
        (size,) = shape_of(arrays, "popularity", 1)
        check_floats(arrays, {"popularity": (size,), "data": arrays["indices"].shape})
        check_integers(arrays, dict.fromkeys(("indices", "indptr"), (np.int32, np.int64)))
        parts = arrays["data"], arrays["indices"], arrays["indptr"]
        return cls(sparse.csr_matrix(parts, shape=(size, size)), arrays["popularity"], **dict(settings))

    def _scores(self, histories: ItemLists) -> NDArray[np.float32]:
        """float32[B, N]: positive where a history item knows the item, below 0 by popularity elsewhere."""
        if len(histories.items) and int(histories.items.max()) >= self.num_items:
            raise InputError(f"a history holds item index {int(histories.items.max())} of {self.num_items} items")
        recent = histories.last(self.length)
        age = np.repeat(recent.indptr[1:], recent.lengths) - 1 - np.arange(len(recent.items))
        weights = (self.decay**age).astype(np.float32)
        queries = sparse.csr_matrix((weights, recent.items, recent.indptr), shape=(len(recent), self.num_items))
        scores = np.asarray((queries @ self.similarity).toarray(), dtype=np.float32)
        return np.where(scores > 0, scores, self._filler)
