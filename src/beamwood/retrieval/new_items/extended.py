"""Any searcher with new items, each a mixture of known ones, scored beside its results.

Shape legend: B rows, M new items, N known items, S known items that new ones are mixtures of, k results.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamwood.errors import InputError
from beamwood.kept import Prepared
from beamwood.kernels.mixtures import Mixtures
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.new_items.beside import Beside
from beamwood.retrieval.search_checks import check_histories, check_search
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.retrieval.stored import StoredConfig, StoredPart, exported_part, part_of, prefixed
from beamwood.types import BoolArray, Hits, IndexArray, ItemLists, Query, QueryNeeds, Searcher, SearchOptions

__all__ = ["NOWHERE", "Extended", "export_extended", "known_histories", "restore_extended"]

NOWHERE = np.float32(-1e30)
"""The score of an empty mixture: below all others, and found only where a filter allows nothing else."""


class Extended:
    """A searcher of N known items with M new ones, N, N + 1, ..; a new one's score is the mixture of known scores.

    For vectors, counts and sums this equals the score of mixed vectors or counts, as they are linear in the item. In a
    history a new item counts as the known one with the largest weight in its mixture.
    """

    kind: ClassVar[str] = "extended"

    def __init__(self, fitted: Searcher, mixtures: Mixtures) -> None:
        first = fitted.num_items
        mixtures.check(first)
        self.fitted, self.mixtures = fitted, mixtures
        self._beside = Beside(first, len(mixtures), np.arange(len(mixtures), dtype=np.int32))
        self._nowhere_M = mixtures.lists.lengths == 0
        self._vectors_MD = _mixed(fitted, mixtures) if isinstance(fitted, VectorSearcher) else None

    @property
    def num_items(self) -> int:
        return self.fitted.num_items + len(self.mixtures)

    @property
    def needs(self) -> QueryNeeds:
        """The needs of the fitted searcher."""
        return self.fitted.needs

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best of the fitted searcher's results and of the new items; see `types.Searcher`."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        known = self.known_query(query)
        hits = self.fitted.search(known, k, self._known_options(options))
        return self._beside.joined(hits, self._new_scores(known), k, options)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        items_BM, first, known = np.asarray(items_BM), self.fitted.num_items, self.known_query(query)
        if not (items_BM >= first).any():
            return self.fitted.score(known, items_BM)
        if items_BM.max() >= self.num_items:
            raise InputError(f"items holds an index outside -1..{self.num_items - 1}")
        new_BM = items_BM >= first
        scores = self.fitted.score(known, np.where(new_BM, np.int32(-1), items_BM))
        rows, columns = np.nonzero(new_BM)
        scores[rows, columns] = self._new_scores(known)[rows, items_BM[rows, columns] - first]
        return scores

    def _new_scores(self, known: Query) -> NDArray[np.float32]:
        """float32[B, M], the scores of all new items."""
        return known.once(self._beside, lambda: self._scores_of(known))

    @cached_property
    def _mix(self) -> tuple[NDArray[np.int32], sparse.csr_matrix]:
        """int32[S], the items that new ones are mixtures of, and float32[S, M], their weights."""
        known_S, places = np.unique(self.mixtures.lists.items, return_inverse=True)
        own = Mixtures(ItemLists(self.mixtures.lists.indptr, places.astype(np.int32)), self.mixtures.weights)
        return known_S, own.matrix(len(known_S)).T.tocsr()

    def _scores_of(self, known: Query) -> NDArray[np.float32]:
        if self._nowhere_M.all():
            return np.full((len(known), len(self.mixtures)), NOWHERE, np.float32)
        if self._vectors_MD is not None and isinstance(self.fitted, VectorSearcher):
            scores = self.fitted.encode(known) @ self._vectors_MD.T
        else:
            known_S, mix_SM = self._mix
            items = np.broadcast_to(known_S, (len(known), len(known_S)))
            scores = np.asarray(self.fitted.score(known, items) @ mix_SM, np.float32)
        scores[:, self._nowhere_M] = NOWHERE
        return scores

    def known_query(self, query: Query) -> Query:
        """See `searchers.blend.Extending`."""
        return query.once(self, lambda: known_histories(query, self.fitted.num_items, self.mixtures))

    def _known_options(self, options: SearchOptions) -> SearchOptions:
        """The options with known items alone; arrays derived from a filter stay cached."""
        first, excluded, allowed, prepared = self.fitted.num_items, options.excluded, options.allowed, options.prepared
        if excluded is not None and (excluded.items >= first).any():
            excluded = excluded.keeping(excluded.items < first)
        if allowed is not None:
            prepared = options.of_filter(self, lambda mask: _known_filter(mask, first))
            allowed = prepared.mask
        return replace(options, excluded=excluded, allowed=allowed, prepared=prepared)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return export_extended(self.fitted, self.mixtures)

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Extended:
        """See `types.Searcher`."""
        return Extended(*restore_extended(config, arrays, threads=threads))


# By fitted searcher the mixtures that it was extended by last, and their vectors.
_LATEST: WeakKeyDictionary[VectorSearcher, tuple[Mixtures, NDArray[np.float32]]] = WeakKeyDictionary()


def _mixed(fitted: VectorSearcher, mixtures: Mixtures) -> NDArray[np.float32]:
    """float32[M, D], the vectors of new items; those of mixtures as before are taken from the last time."""
    made = np.empty((len(mixtures), fitted.vectors.shape[1]), np.float32)
    other = np.ones(len(mixtures), bool)
    if fitted in _LATEST:
        earlier, vectors = _LATEST[fitted]
        rows = np.flatnonzero(mixtures.same(earlier))
        made[rows], other[rows] = vectors[rows], False
    rest = np.flatnonzero(other)
    made[rest] = mixtures.take(rest).mixed(fitted.vectors)
    _LATEST[fitted] = mixtures, made
    return made


class _Stored(StoredConfig):
    fitted: StoredPart


def export_extended(fitted: Searcher, mixtures: Mixtures) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The fitted searcher, and only the mixtures of the new items."""
    stored, arrays = exported_part(fitted)
    return {"fitted": stored}, prefixed("fitted", arrays) | prefixed("new", mixtures.arrays())


def restore_extended(
    config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int
) -> tuple[Searcher, Mixtures]:
    """The arguments of `export_extended`."""
    stored = _Stored.model_validate(config).fitted
    fitted = restore_searcher(stored.kind, stored.config, part_of(arrays, "fitted"), threads=threads)
    return fitted, Mixtures.from_arrays(part_of(arrays, "new"))


def _known_filter(mask: BoolArray, first: int) -> Prepared:
    return Prepared(np.ascontiguousarray(mask[:first]))


def known_histories(query: Query, first: int, mixtures: Mixtures) -> Query:
    """The query with each new item in histories replaced by the known one with the largest weight, if any.

    Errors: an item index beyond the catalogue.
    """
    histories = query.histories
    check_histories(histories, first + len(mixtures))
    new = histories.items >= first
    if not new.any():
        return query
    items = histories.items.copy()
    items[new] = mixtures.heaviest()[items[new] - first]
    return replace(query, histories=ItemLists.unchecked(histories.indptr, items).keeping(items >= 0))
