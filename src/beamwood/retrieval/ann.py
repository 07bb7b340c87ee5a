"""Approximate search over item vectors with faiss (the extra `ann`): a graph instead of scoring every item.

Shape legend: B rows, N items, D width, k results.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from beamwood.errors import NotInstalledError
from beamwood.retrieval.top_k import check_search, sort_candidates
from beamwood.retrieval.vector import best_products
from beamwood.types import BoolArray, FloatArray, Hits, ItemLists

__all__ = ["FaissIndex"]

# Neighbours of a node in the graph, and how many candidates a search keeps: faiss's usual middle.
_LINKS, _SEARCH = 32, 128
# A filter that leaves less than this share of the items is answered exactly.
_SELECTIVE = 0.2


class FaissIndex:
    """An HNSW graph by inner product over `vectors` float32[N, D]; rows it cannot fill are answered exactly.

    Raises `InputError` where faiss is not installed.
    """

    def __init__(self, vectors_ND: FloatArray) -> None:
        try:
            import faiss
        except ImportError:
            raise NotInstalledError("index='faiss' needs faiss; install it with: pip install 'beamwood[ann]'") from None
        self.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        self._index: Any = faiss.IndexHNSWFlat(self.vectors.shape[1], _LINKS, faiss.METRIC_INNER_PRODUCT)
        self._index.add(self.vectors)

    def search(
        self,
        queries_BD: FloatArray,
        k: int,
        *,
        excluded: ItemLists | None = None,
        allowed: BoolArray | None = None,
    ) -> Hits:
        """The k best found for each row, in the order of `top_k`; `scored` says how many candidates were looked at."""
        num_items = len(self.vectors)
        check_search(len(queries_BD), num_items, k, excluded=excluded, allowed=allowed)
        if len(queries_BD) == 0 or (allowed is not None and allowed.mean() < _SELECTIVE):
            return best_products(queries_BD, self.vectors, k, excluded=excluded, allowed=allowed)
        more = 0 if excluded is None else int(excluded.lengths.max(initial=0))
        fetched = min(num_items, 2 * k + more if allowed is None else 4 * k + more)
        self._index.hnsw.efSearch = max(_SEARCH, fetched)
        scores, items = self._index.search(np.ascontiguousarray(queries_BD, np.float32), fetched)
        keep = items >= 0
        if allowed is not None:
            keep &= allowed[np.maximum(items, 0)]
        if excluded is not None:
            width = np.int64(num_items + 1)
            banned = excluded.rows * width + excluded.items
            keep &= ~np.isin(np.arange(len(items))[:, None] * width + items, banned)
        hits = sort_candidates(np.where(keep, items, -1), np.where(keep, scores, -np.inf), k)
        short = np.flatnonzero((hits.items < 0).any(axis=1))
        if len(short):
            banned_rows = None if excluded is None else excluded.take(short)
            exact = best_products(queries_BD[short], self.vectors, k, excluded=banned_rows, allowed=allowed)
            hits.items[short], hits.scores[short] = exact.items, exact.scores
        return Hits(hits.items, hits.scores, np.full(len(items), fetched, np.int64))
