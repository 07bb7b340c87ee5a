"""Approximate search over item vectors with faiss (the extra `ann`): a graph instead of scoring every item.

Shape legend: B rows, N items, D width, k results.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError
from beamwood.fork_lock import ForkLock
from beamwood.kernels.arrays import check_integers
from beamwood.ragged import indptr_of
from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, by_row, check_installed, own_settings
from beamwood.retrieval.products import best_products
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import sort_candidates
from beamwood.types import FloatArray, Hits, SearchOptions, among

__all__ = ["HnswIndex", "HnswSettings"]

# A filter that leaves less than this share of the items is answered exactly.
_SELECTIVE = 0.2


class HnswSettings(IndexSettings):
    """The settings of the graph; the defaults are common ones of faiss."""

    num_links: int = Field(
        32, ge=2, le=256, description="hnsw: neighbours per item in the graph, twice as many on level 0"
    )
    build_width: int = Field(40, ge=1, le=2**16, description="hnsw: candidates kept when an item is inserted")
    search_width: int = Field(128, ge=1, le=2**16, description="hnsw: candidates kept in a search (its beam)")


class _ProductCount:
    """Products of searches side by side, which the library adds up over all threads.

    Each product is counted once: exactly for one search at a time; of overlapping ones some may count another's.
    """

    def __init__(self) -> None:
        self._lock, self._running, self._seen = ForkLock(), 0, 0

    def begin(self) -> None:
        """A search begins."""
        with self._lock:
            if self._running == 0:
                self._seen = _all_products()
            self._running += 1

    def end(self) -> int:
        """A search has ended; the products that no other one has counted yet."""
        with self._lock:
            before, self._seen = self._seen, _all_products()
            self._running -= 1
            return self._seen - before


_PRODUCTS = _ProductCount()


def _all_products() -> int:
    # The library's type stubs lack statistics.
    faiss: Any = import_module("faiss")
    return int(faiss.cvar.hnsw_stats.ndis)


class _Stored(StoredConfig):
    entry_point: int = Field(ge=0, le=MOST)
    num_links: int = Field(ge=2, le=256)
    search_width: int = Field(ge=1, le=2**16)


class HnswIndex:
    """An HNSW graph by inner product over `vectors` float32[N, D]; rows it cannot fill are answered exactly.

    Built and searched with inner products, without a reduction to distances, it is IP-NSW. Source: Morozov and Babenko,
    "Non-metric Similarity Graphs for Maximum Inner Product Search". Raises `NotInstalledError` where faiss is not
    installed.
    """

    kind: ClassVar[str] = "hnsw"
    Settings: ClassVar[type[IndexSettings]] = HnswSettings
    modules: ClassVar[tuple[str, ...]] = ("faiss",)
    trains: ClassVar[bool] = False

    def __init__(
        self,
        vectors_ND: FloatArray,
        settings: IndexSettings | None = None,
        inputs: IndexInputs = IndexInputs(),  # noqa: ARG002
    ) -> None:
        given = own_settings(HnswSettings, settings)
        self.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        self._num_links, self._search_width = given.num_links, given.search_width
        self._index = _empty(self.vectors.shape[1], given.num_links)
        self._index.hnsw.efConstruction = given.build_width
        with _one_thread():
            self._index.add(self.vectors)

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `Index`; a filter that leaves few items is answered exactly.

        Where threads search at once, `scored` is right in sum, not for each row.
        """
        allowed, num_items = options.allowed, len(self.vectors)
        fits = allowed is not None and len(allowed) == num_items
        if fits and options.num_allowed < _SELECTIVE * num_items:
            return best_products(queries_BD, self.vectors, k, excluded=options.excluded, allowed=allowed)
        return by_row(self._row, len(self.vectors), queries_BD, k, options)

    def _row(self, query_D: FloatArray, k: int, options: SearchOptions) -> Hits:
        """The answer of one row; its search depth depends only on its own exclusions."""
        # The library's type stubs lack search parameters.
        faiss: Any = import_module("faiss")
        excluded, allowed, query_1D = options.excluded, options.allowed, query_D[None]
        more = 0 if excluded is None else len(excluded.items)
        fetched = min(len(self.vectors), 2 * k + more if allowed is None else 4 * k + more)
        depth = faiss.SearchParametersHNSW(efSearch=max(self._search_width, fetched))
        _PRODUCTS.begin()
        try:
            scores, items = self._index.search(query_1D, fetched, params=depth)
        finally:
            computed = _PRODUCTS.end()
        keep = items >= 0
        if allowed is not None:
            keep &= allowed[np.maximum(items, 0)]
        if excluded is not None:
            keep &= ~among(items, excluded)
        hits = sort_candidates(np.where(keep, items, -1), np.where(keep, scores, -np.inf), k)
        if (hits.items < 0).any():
            hits = best_products(query_1D, self.vectors, k, excluded=excluded, allowed=allowed)
            computed += int(hits.scored[0])
        return Hits(hits.items, hits.scores, np.array([computed], np.int64))

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The graph: each item's level, and the concatenated neighbours of all levels."""
        import faiss

        graph = self._index.hnsw
        arrays = {name: faiss.vector_to_array(part) for name, part in _parts(graph).items()}
        config = {"num_links": self._num_links, "search_width": self._search_width}
        return config | {"entry_point": int(graph.entry_point)}, arrays

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Errors: a graph with links beyond the vectors, whose search would read foreign memory."""
        restored, stored = cls.__new__(cls), _Stored.model_validate(config)
        restored.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        restored._num_links, restored._search_width = stored.num_links, stored.search_width
        restored._index = index = _empty(restored.vectors.shape[1], stored.num_links)
        import faiss

        entry_point, graph = stored.entry_point, index.hnsw
        check_integers(arrays, dict.fromkeys(_parts(graph), (np.int32,)))
        levels, neighbours = arrays["levels"], arrays["neighbours"]
        sizes = faiss.vector_to_array(graph.cum_nneighbor_per_level).astype(np.int64)
        starts = _checked_offsets(levels, neighbours, sizes, entry_point, len(vectors_ND))
        index.storage.add(restored.vectors)
        for name, part in _parts(graph).items():
            faiss.copy_array_to_vector(np.ascontiguousarray(arrays[name]), part)
        faiss.copy_array_to_vector(starts.astype(np.uint64), graph.offsets)
        graph.entry_point, graph.max_level = entry_point, int(levels.max()) - 1
        index.ntotal = len(vectors_ND)
        return restored


@contextmanager
def _one_thread() -> Iterator[None]:
    """A context in which the graph is built in the order of items: with several threads it would not be
    reproducible.
    """
    import faiss

    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def _empty(width: int, num_links: int) -> Any:
    """A graph without items."""
    check_installed(HnswIndex)
    import faiss

    return faiss.IndexHNSWFlat(width, num_links, faiss.METRIC_INNER_PRODUCT)


def _parts(graph: Any) -> dict[str, Any]:
    """The arrays that define a graph."""
    return {"levels": graph.levels, "neighbours": graph.neighbors}


def _checked_offsets(
    levels: NDArray[np.int32], neighbours: NDArray[np.int32], sizes: NDArray[np.int64], entry_point: int, num_items: int
) -> NDArray[np.int64]:
    """int64[N + 1], where each item's neighbours begin; `sizes[l]` of them are below level l.

    Errors: neighbours that are not items, or not on the level of their link.
    """
    if len(levels) != num_items or levels.min(initial=1) < 1 or levels.max(initial=1) >= len(sizes):
        raise ArtefactError(f"the index's levels are not one in 1..{len(sizes) - 1} for each of {num_items} items")
    starts = indptr_of(sizes[levels])
    if len(neighbours) != starts[-1] or neighbours.min(initial=0) < -1 or neighbours.max(initial=0) >= num_items:
        raise ArtefactError("the index's neighbours are not those of its levels")
    if entry_point >= num_items or levels[entry_point] != levels.max():
        raise ArtefactError(f"the index's entry_point={entry_point} is not on its highest level")
    for level in range(1, int(levels.max())):
        places = starts[:-1][levels > level, None] + np.arange(sizes[level], sizes[level + 1])
        found = neighbours[places]
        if ((found >= 0) & (levels[found] <= level)).any():
            raise ArtefactError(f"the index has neighbours on level {level} that are not on it")
    return starts
