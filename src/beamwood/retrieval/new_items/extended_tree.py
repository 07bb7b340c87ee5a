"""A tree with new items on its empty leaves, or beside it where none is free.

Shape legend: B rows, L history length, M new items, N known items, O new items beside the tree, k results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.mixtures import Mixtures
from beamwood.retrieval.new_items.beside import Beside
from beamwood.retrieval.new_items.extended import NOWHERE, export_extended, known_histories, restore_extended
from beamwood.retrieval.new_items.extra_leaves import ExtraLeaves
from beamwood.retrieval.new_items.slots import slots_of
from beamwood.retrieval.searchers.tree import LaterHits, TreeSearcher
from beamwood.types import BoolArray, Hits, IndexArray, ItemLists, Query, SearchOptions

__all__ = ["MOST_BESIDE", "ExtendedTree"]

MOST_BESIDE = 2000
"""The most new items beside the tree: each is scored for every query."""


def _beyond_most(chosen: BoolArray) -> BoolArray:
    """bool[M], the chosen new items after the first `MOST_BESIDE` of them."""
    late = np.zeros_like(chosen)
    late[np.flatnonzero(chosen)[MOST_BESIDE:]] = True
    return late


class ExtendedTree(TreeSearcher):
    """A fitted tree with M new items N, N + 1, .., each a mixture of known ones.

    A new item is put on an empty leaf near the parent with most of its weight, and the leaf's vectors are the mixture;
    the nodes above stay unchanged. Without a free leaf it is scored beside the search. For scorers that find items
    through lists of other leaves, all new items are, as long as there is room. The arrays of the fitted tree are
    shared. Errors: `InputError` on more new items than leaves and `MOST_BESIDE` have room for.
    """

    kind: ClassVar[str] = "extended-tree"

    def __init__(self, fitted: TreeSearcher, mixtures: Mixtures) -> None:
        self.__dict__.update(fitted.__dict__)
        mixtures.check(fitted.num_items)
        self.fitted, self.mixtures = fitted, mixtures
        slots, leaves = slots_of(fitted), self._leaves_of_new()
        self.weights, self.core, self.tree = slots.weights, slots.search(), fitted.tree.with_items(leaves)
        some = mixtures.lists.lengths > 0
        rows_O, others = (np.flatnonzero((leaves < 0) & each).astype(np.int32) for each in (some, ~some))
        self._beside = Beside(fitted.num_items, len(mixtures), rows_O)
        # Items without a mixture follow all others.
        self._last = Beside(fitted.num_items, len(mixtures), others)
        self._extra: ExtraLeaves | None = None
        # The leaf of an item in a history: in the tree, an extra one, or none.
        self._standing = self.tree.leaf_of_item
        if len(rows_O):
            of_leaves = mixtures.take(rows_O).moved(fitted.tree.leaf_of_item)
            self._extra = ExtraLeaves(self.weights, self.core, of_leaves)
            self._standing = self.tree.leaf_of_item.copy()
            self._standing[fitted.num_items + rows_O] = self.tree.shape.capacity + np.arange(len(rows_O))
            self._heaviest = of_leaves.heaviest()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy places its new items itself, as it shares no record of empty leaves with this searcher."""
        return ExtendedTree, (self.fitted, self.mixtures)

    def known_query(self, query: Query) -> Query:
        """See `searchers.blend.Extending`."""
        return known_histories(query, self.fitted.num_items, self.mixtures)

    def _leaves_of_new(self) -> NDArray[np.int32]:
        """int32[M], the leaf of each new item; -1 beside the tree."""
        slots, mixtures = slots_of(self.fitted), self.mixtures
        # Items without a mixture, such as erased ones, cost no score.
        scored = mixtures.lists.lengths > 0
        late = _beyond_most(scored)
        first = any(part.term.by_others for part in self.weights.terms.values())
        leaves = slots.placed(self, mixtures, late if first else np.ones_like(late), np.zeros_like(late))
        late = _beyond_most(scored & (leaves < 0))
        if late.any():
            leaves = slots.placed(self, mixtures, leaves >= 0, late)
        missing = np.count_nonzero(_beyond_most(scored & (leaves < 0)))
        if missing > 0:
            raise InputError(
                f"{missing} of {len(mixtures)} new items have neither an empty leaf nor a place among the "
                f"{MOST_BESIDE} that are scored beside the tree; fit again, with a higher tree.spare"
            )
        return leaves

    @property
    def num_beside(self) -> int:
        """The number of new items that are scored beside the tree."""
        return len(self._beside.rows_O)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best of the results in the tree and of the items beside it."""
        return self._with_beside(super().search(query, k, options), query, k, options)

    def later(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> LaterHits | None:
        """See `TreeSearcher`; None where items beside the tree are to be scored too."""
        if len(self._beside.rows_O) or len(self._last.rows_O):
            return None
        return super().later(query, k, options)

    def beam(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """`search` without the history's items as candidates."""
        return self._with_beside(super().beam(query, k, options), query, k, options)

    def exact(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best of all items, each scored."""
        return self._with_beside(super().exact(query, k, options), query, k, options)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        scores, places = super().score(query, items_BM), self._beside.places(items_BM)
        rows, columns = np.nonzero(places >= 0)
        if len(rows):
            scores[rows, columns] = self._beside_scores(query)[rows, places[rows, columns]]
        scores[self._last.places(items_BM) >= 0] = NOWHERE
        return scores

    def _with_beside(self, hits: Hits, query: Query, k: int, options: SearchOptions) -> Hits:
        if len(self._beside.rows_O):
            hits = self._beside.joined(hits, self._beside_scores(query), k, options)
        if len(self._last.rows_O) and (hits.items[:, -1] < 0).any():
            nowhere = np.full((len(query), len(self._last.rows_O)), NOWHERE, np.float32)
            hits = self._last.joined(hits, nowhere, k, options)
        return hits

    def _beside_scores(self, query: Query) -> NDArray[np.float32]:
        """float32[B, O], the scores of the items beside the tree."""
        return query.once(self._beside, lambda: self._scores_of(query.histories))

    def _scores_of(self, histories: ItemLists) -> NDArray[np.float32]:
        assert self._extra is not None
        return self._extra.score(self._history_leaves(histories))

    def _history_leaves(self, histories: ItemLists) -> NDArray[np.int32]:
        """int32[B, L], the leaves of the latest items; -1 for none."""
        items_BL = histories.padded(self.weights.history_length)
        return np.where(items_BL < 0, np.int32(-1), self._standing[items_BL])

    def leaves_of(self, histories: ItemLists) -> NDArray[np.int32]:
        """int32[B, L], the leaves of the latest items, -1 padding on the left."""
        leaves_BL = super().leaves_of(histories)
        if self._extra is None:
            return leaves_BL
        # An item beside the tree counts as the leaf with the largest weight in its mixture.
        standing_BL, capacity = self._history_leaves(histories), self.tree.shape.capacity
        extra = standing_BL >= capacity
        leaves_BL[extra] = self._heaviest[standing_BL[extra] - capacity]
        return leaves_BL

    def _excluded(self, options: SearchOptions) -> tuple[NDArray[np.int64], NDArray[np.int32]] | None:
        if options.excluded is None:
            return None
        in_tree = self.tree.leaf_of_item[options.excluded.items] >= 0
        if not in_tree.all():
            options = replace(options, excluded=options.excluded.keeping(in_tree))
        return super()._excluded(options)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return export_extended(self.fitted, self.mixtures)

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> ExtendedTree:
        """See `types.Searcher`."""
        fitted, mixtures = restore_extended(config, arrays, threads=threads)
        if not isinstance(fitted, TreeSearcher):
            raise ArtefactError(f"new items stand on the leaves of a '{fitted.kind}', which is not a tree")
        return ExtendedTree(fitted, mixtures)
