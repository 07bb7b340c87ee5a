"""Items similar to given ones: by the model, by the items' vectors, or by the tree."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError, nearest
from beamwood.retrieval.item_vectors import directions, item_vectors, part_with
from beamwood.retrieval.new_items import fitted_of, mixtures_of, num_known
from beamwood.retrieval.popularity import PopularitySearcher
from beamwood.retrieval.top_k import top_k
from beamwood.retrieval.tree import TreeSearcher
from beamwood.types import Hits, ItemLists, Query, Searcher, SearchOptions

__all__ = ["By", "similar_items"]

By = Literal["model", "vectors", "tree"]
"""The measures of similarity."""


def similar_items(searcher: Searcher, items: NDArray[np.int32], k: int, options: SearchOptions, *, by: By) -> Hits:
    """The k items most similar to the given ones, without these, as one row.

    "model": the recommendations for these items as history. "vectors": by cosine with the mean of the items'
    directions. "tree": by the depth of the lowest common ancestor with any of them, then by the distance of leaves.
    Errors: a method without vectors or tree, or without histories; an unknown `by`.
    """
    if by not in get_args(By):
        raise InputError(f"by={by!r} is unknown{nearest(str(by), get_args(By))}")
    asked = ItemLists.from_lists([items])
    excluded = asked.distinct() if options.excluded is None else asked.union(options.excluded)
    if by == "model":
        _check_reads(searcher)
        return searcher.search(Query.of(asked), k, SearchOptions(excluded, options.allowed, prepared=options.prepared))
    scores_N = _by_vectors(searcher, items) if by == "vectors" else _by_tree(searcher, items)
    return top_k(scores_N[None], k, excluded=excluded, allowed=options.allowed)


def _check_reads(searcher: Searcher) -> None:
    if searcher.needs.users_alone:
        raise InputError("this model knows users, not histories, and so no similar items; ask by 'vectors'")
    if isinstance(fitted_of(searcher), PopularitySearcher):
        raise InputError("this model has the same list for everyone, and so no similar items; fit another method")


def _by_vectors(searcher: Searcher, items: NDArray[np.int32]) -> NDArray[np.float32]:
    own = directions(item_vectors(searcher, np.arange(searcher.num_items)))
    scores: NDArray[np.float32] = own @ own[items].mean(axis=0)
    return scores


def _by_tree(searcher: Searcher, items: NDArray[np.int32]) -> NDArray[np.float32]:
    """The depth of the lowest common ancestor, plus less than 1 for near leaves."""
    found = part_with(searcher, TreeSearcher)
    if found is None:
        raise InputError("this model has no tree; ask by 'model', or fit a method that has one, such as dtr")
    tree, shape = found.tree, found.tree.shape
    scores = np.full(tree.num_items, -np.inf, np.float32)
    mixtures, known = mixtures_of(searcher), items
    if mixtures is not None:
        # An item beside the tree counts as the one with the largest weight in its mixture.
        whole = np.concatenate([np.arange(num_known(searcher)), mixtures.heaviest()])
        known = np.where(tree.leaf_of_item[items] < 0, whole[items], items)
    for leaf in tree.leaf_of_item[known[known >= 0]].tolist():
        common = np.zeros(tree.num_items, np.float32)
        for level in range(1, shape.depth + 1):
            common += shape.ancestors(tree.leaf_of_item, level) == leaf // shape.leaves_below(level)
        near = 1 - np.abs(tree.leaf_of_item.astype(np.float32) - leaf) / (shape.capacity + 1)
        scores = np.maximum(scores, common + np.float32(0.999) * near)
    return scores
