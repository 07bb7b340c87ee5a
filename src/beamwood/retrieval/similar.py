"""Items similar to given ones: by the model, by the items' vectors, or by the tree."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError, nearest
from beamwood.kernels.arrays import sound
from beamwood.models.ops import unit
from beamwood.ragged import sorted_distinct
from beamwood.retrieval.item_vectors import cosines, has_item_vectors, item_vectors, part_with
from beamwood.retrieval.new_items.added import fitted_of, have_places, mixtures_of, num_known
from beamwood.retrieval.new_items.extended import NOWHERE
from beamwood.retrieval.searchers.candidates import allowed_seen
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.top_k import no_hits, top_k
from beamwood.tree.tree import Shape
from beamwood.types import Hits, ItemLists, Query, Searcher, SearchOptions

__all__ = ["By", "similar_items"]

By = Literal["model", "vectors", "tree"]
"""The measures of similarity."""


def similar_items(searcher: Searcher, items: NDArray[np.int32], k: int, options: SearchOptions, *, by: By) -> Hits:
    """The k items most similar to the given ones, without these, as one row.

    "model": the recommendations for these items as history. "vectors": by cosine with the mean of the items'
    directions. "tree": by the depth of the lowest common ancestor with any of them, then by the distance of leaves.
    Nothing is similar to a new item that is no mixture of known ones, and it comes after all others.
    Errors: a method without vectors or tree, or without histories; an unknown `by`.
    """
    if by not in get_args(By):
        raise InputError(f"by={by!r} is unknown{nearest(str(by), get_args(By))}")
    given = ItemLists.from_lists([items]).distinct()
    excluded = given if options.excluded is None else given.union(options.excluded)
    items = items[have_places(searcher, items)]
    if len(items) == 0:
        return no_hits(1, k)
    if by == "model":
        _check_reads(searcher)
        history = Query.of(ItemLists.from_lists([items]))
        return searcher.search(history, k, SearchOptions(excluded, options.allowed, prepared=options.prepared))
    if by == "tree":
        return _by_tree(searcher, items, k, replace(options, excluded=excluded))
    mean = unit(item_vectors(searcher, items)).mean(axis=0)
    scores, new = sound(cosines(searcher, mean)), np.arange(num_known(searcher), searcher.num_items)
    scores[new[~have_places(searcher, new)]] = NOWHERE
    return top_k(scores[None], k, excluded=excluded, allowed=options.allowed)


def _check_reads(searcher: Searcher) -> None:
    if searcher.needs.users_alone:
        fix = "ask by 'vectors'" if has_item_vectors(searcher) else "fit a method that reads histories"
        raise InputError(f"this model knows users, not histories, and so no similar items; {fix}")
    if isinstance(fitted_of(searcher), PopularitySearcher):
        raise InputError("this model has the same list for everyone, and so no similar items; fit another method")


def _by_tree(searcher: Searcher, items: NDArray[np.int32], k: int, options: SearchOptions) -> Hits:
    """Best first by the depth of the lowest common ancestor, then by near leaves, for which a score has less than 1."""
    found = part_with(searcher, TreeSearcher)
    if found is None:
        raise InputError("this model has no tree; ask by 'model', or fit a method that has one, such as dtr")
    shape, first = found.tree.shape, num_known(searcher)
    mixtures, leaf_of_item = mixtures_of(searcher), found.tree.leaf_of_item
    leaves_of_new = leaf_of_item[first:].astype(np.int64)
    beside = np.flatnonzero(leaves_of_new < 0)
    if mixtures is not None and len(beside):
        # An item beside the tree counts as the one with the largest weight in its mixture, if any.
        heaviest = mixtures.heaviest()[beside]
        leaves_of_new[beside] = np.where(heaviest < 0, -1, leaf_of_item[heaviest])

    def leaves_of(given: NDArray[np.int32]) -> NDArray[np.int64]:
        leaves = leaf_of_item[given].astype(np.int64)
        leaves[given >= first] = leaves_of_new[given[given >= first] - first]
        return leaves

    near = _near(found, leaves_of(items), k, options)
    near = sorted_distinct(np.concatenate([near, (first + beside).astype(np.int32)]))
    near = allowed_seen(near[None], options)[0]
    near = near[near >= 0]
    return _nearest(shape, leaves_of(items), near, leaves_of(near), k)


def _nearest(
    shape: Shape, given: NDArray[np.int64], near_M: NDArray[np.int32], leaves_M: NDArray[np.int64], k: int
) -> Hits:
    """The k items of the nearest leaves, as one row; those without a leaf, -1, come last."""
    keys = np.full(len(near_M), -1, np.int64)
    some = leaves_M >= 0
    keys[some] = _nearness(shape, given, leaves_M[some])
    hits, best = no_hits(1, k), np.lexsort((near_M, -keys))[:k]
    common, rest = np.divmod(keys[best], shape.capacity + 1)
    distances = (shape.capacity - rest).astype(np.float32)
    scores = common.astype(np.float32) + np.float32(0.999) * (1 - distances / (shape.capacity + 1))
    hits.items[0, : len(best)], hits.scored[0] = near_M[best], np.count_nonzero(some)
    hits.scores[0, : len(best)] = np.where(keys[best] < 0, NOWHERE, scores)
    return hits


def _nearness(shape: Shape, given: NDArray[np.int64], leaves_M: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[M], larger for nearer leaves: by the depth of the lowest common ancestor with any given leaf, then by their
    distance.

    Below an ancestor, whose leaves are a range, the next given leaf on either side is the nearest.
    """
    given = np.unique(given)
    after = np.searchsorted(given, leaves_M)
    beside_2M = given[np.clip(np.stack([after - 1, after]), 0, len(given) - 1)]
    common_2M = np.zeros(beside_2M.shape, np.int64)
    for level in range(1, shape.depth + 1):
        common_2M += shape.ancestors(leaves_M, level) == shape.ancestors(beside_2M, level)
    # A float32 would not tell near leaves of millions apart.
    keys_2M = common_2M * (shape.capacity + 1) + shape.capacity - np.abs(leaves_M - beside_2M)
    nearest: NDArray[np.int64] = keys_2M.max(axis=0)
    return nearest


def _near(found: TreeSearcher, leaves: NDArray[np.int64], k: int, options: SearchOptions) -> NDArray[np.int32]:
    """The items below the lowest ancestor of each given leaf that has enough of them for k; others come after these."""
    tree, shape = found.tree, found.tree.shape
    live = tree.live_counts if options.allowed is None else options.of_filter(found, tree.counts_of)
    wanted = k + (0 if options.excluded is None else len(options.excluded.items))
    ranges = set[tuple[int, int]]()
    for leaf in leaves.tolist():
        level = shape.depth
        while level > 0 and live[level][leaf // shape.leaves_below(level)] < wanted:
            level -= 1
        if level == 0:
            return np.arange(tree.num_items, dtype=np.int32)
        start = leaf // shape.leaves_below(level) * shape.leaves_below(level)
        ranges.add((start, -shape.leaves_below(level)))
    parts, end = [np.empty(0, np.int32)], 0
    for start, size in sorted(ranges):
        # A range is within another one, or beside it.
        if start >= end:
            end = start - size
            parts.append(tree.item_of_leaf[start:end])
    return sorted_distinct(np.concatenate(parts))
