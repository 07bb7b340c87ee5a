"""Initial trees: the items in some order, spread evenly over the leaves."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from beamwood.errors import InputError
from beamwood.tree.tree import MAX_BRANCHING, Shape, ShapeName, Tree, choose_shape
from beamwood.types import BoolArray, FloatArray, IndexArray

__all__ = ["category_tree", "cut_seconds", "flat_tree", "kmeans_tree", "random_tree", "tree_of_codes"]

# Rounds of balanced 2-means for each cut; they nearly always converge sooner.
ROUNDS = 10
# Items whose clusters are cut in one batch.
_ROWS = 2**18
# Items of a timed cut; a tree of fewer is built in a second or two.
_TIMED = 2**16


def random_tree(
    num_items: int, rng: np.random.Generator, *, branching: int = 2, shape: Shape | ShapeName = "compact"
) -> Tree:
    """A tree with the items in random order. Errors: `branching` outside 2..256."""
    return Tree.of_order(rng.permutation(num_items), shape, branching=branching)


def flat_tree(num_items: int) -> Tree:
    """A single level: every item is a child of the root, and a search scores all (brute force)."""
    return Tree.of_order(np.arange(num_items), Shape(num_items, 2, 1))


def category_tree(
    categories: IndexArray, rng: np.random.Generator, *, branching: int = 2, shape: Shape | ShapeName = "compact"
) -> Tree:
    """Items of a category on adjacent leaves: shuffle the categories, sort the items by them, halve recursively.

    `categories` int[N], the category number of each item, -1 for items without one (these come last, together). Order
    within a category is random. Source: DTR, section 4.4; TDM, section 3.4. Errors: categories that are no list of
    numbers; `branching` outside 2..256.
    """
    categories = np.asarray(categories)
    if categories.ndim != 1 or len(categories) == 0:
        raise InputError(f"categories must be one number an item; got shape {categories.shape}")
    place = rng.permutation(int(categories.max()) + 1)
    rank = np.where(categories < 0, len(place), place[categories]) if len(place) else np.zeros_like(categories)
    order = np.lexsort((rng.permutation(len(categories)), rank))
    return Tree.of_order(order, shape, branching=branching)


def tree_of_codes(codes: IndexArray, *, branching: int = 2) -> Tree:
    """The complete tree in which every item is at the node of its code.

    `codes` int[N], the node of each item: nodes are numbered from the root, 0, level by level, so that the children of
    c are `branching * c + 1` to `branching * c + branching`, and all items are on one level; -1 for an item without a
    code. Errors: `InputError` on missing or repeated codes, and codes on several levels. Source: the authors' programs
    of TDM and DTR, where these are the codes of a binary heap.
    """
    codes = np.asarray(codes)
    if codes.ndim != 1 or len(codes) == 0 or codes.dtype.kind not in "iu":
        raise InputError(f"codes is {codes.dtype}{codes.shape}; give one whole number an item")
    if not 2 <= branching <= MAX_BRANCHING:
        raise InputError(f"branching={branching} is outside 2..{MAX_BRANCHING}")
    missing = np.flatnonzero(codes < 0)
    if len(missing):
        raise InputError(f"{len(missing)} of {len(codes)} items have no code, the first is item {missing[0]}; give all")
    first, last, depth = 1, branching, 1
    while last < codes.max():
        first, last, depth = last + 1, branching * (last + 1), depth + 1
    low, high = int(codes.argmin()), int(codes.argmax())
    if codes[low] < first:
        raise InputError(
            f"the code of item {low} is {codes[low]}, outside {first}..{last}, the nodes of level {depth}, of which "
            f"that of item {high} is {codes[high]}; leaves are all of one level"
        )
    if last - first >= np.iinfo(np.int32).max // 4:
        raise InputError(f"the code of item {high} is {codes[high]}, a node of level {depth}; no tree is so deep")
    shape = Shape(branching, branching, depth)
    leaves, counts = np.unique(codes, return_counts=True)
    if counts.max() > 1:
        one, other = np.flatnonzero(codes == leaves[counts.argmax()])[:2]
        raise InputError(f"items {one} and {other} both have the code {codes[one]}; give each its own")
    item_of_leaf = np.full(shape.capacity, -1, np.int32)
    item_of_leaf[codes - first] = np.arange(len(codes))
    return Tree(shape, item_of_leaf)


def kmeans_tree(
    vectors_ND: FloatArray,
    rng: np.random.Generator,
    *,
    branching: int = 2,
    shape: Shape | ShapeName = "compact",
    report: Callable[[float, float], None] = lambda done, total: None,  # noqa: ARG005
) -> Tree:
    """Items with similar vectors on adjacent leaves: a hierarchy of balanced k-means clusters.

    Each node's items are divided among its children by repeated 2-means with given cluster sizes (for a binary tree one
    cut a node). `vectors_ND` finite, one row an item. `report` receives the progress and its total after each round of
    cuts. Source: TDM, section 3.4; DTR, section 3.2.4. Errors: vectors that are no finite matrix, more items than
    leaves.
    """
    vectors_ND = np.asarray(vectors_ND)
    if vectors_ND.ndim != 2 or len(vectors_ND) == 0 or not np.isfinite(vectors_ND).all():
        raise InputError(f"vectors_ND has shape {vectors_ND.shape}; give one finite row of numbers an item")
    shape = choose_shape(len(vectors_ND), branching, shape)
    if len(vectors_ND) > shape.capacity:
        raise InputError(f"{len(vectors_ND)} items do not fit into {shape.capacity} leaves; raise depth")
    order = rng.permutation(len(vectors_ND))
    # Ranges of leaves [first, last), each `blocks` whole nodes of a level: [ranges, 3].
    ranges = np.array([(0, shape.capacity, shape.root_fanout)])
    while len(ranges := ranges_to_cut(ranges, shape.branching)):
        first, last, blocks = ranges.T
        middle = first + (last - first) // blocks * (blocks // 2)
        start, cut, stop = (items_before(leaves, len(order), shape.capacity) for leaves in (first, middle, last))
        sizes, group_of = np.unique(np.stack([stop - start, cut - start], axis=1), axis=0, return_inverse=True)
        for group, (count, left) in enumerate(sizes.tolist()):
            if 0 < left < count:
                split_clusters(order, start[group_of.ravel() == group], count, left, vectors_ND, rng)
        halves = (first, middle, blocks // 2), (middle, last, blocks - blocks // 2)
        ranges = np.concatenate([np.stack(half, axis=1) for half in halves])
        report(math.log(shape.capacity / (ranges[:, 1] - ranges[:, 0]).max()), math.log(shape.capacity))
    return Tree.of_order(order, shape)


def cut_seconds(num_items: int, width: int, clock: Callable[[], float]) -> float:
    """The estimated seconds that `kmeans_tree` takes at least, from a cut of random vectors; 0 for few items."""
    if num_items < _TIMED:
        return 0.0
    rng, times = np.random.default_rng(0), []
    vectors_GMD = rng.standard_normal((1, _TIMED, width), np.float32)
    for _ in range(2):
        began = clock()
        balanced_cuts(vectors_GMD, _TIMED // 2, rng)
        times.append(clock() - began)
    return min(times) * num_items / _TIMED * math.log2(num_items)


def ranges_to_cut(ranges: IndexArray, branching: int) -> IndexArray:
    """The ranges to cut; a range of a single node above the leaves is replaced by its children."""
    ranges = ranges[ranges[:, 1] - ranges[:, 0] > 1].copy()
    ranges[ranges[:, 2] == 1, 2] = branching
    return ranges


def items_before(leaves: IndexArray, num_items: int, capacity: int) -> IndexArray:
    """The number of items that `Tree.of_order` places before each of these leaves."""
    return -(-leaves * num_items // capacity)


def split_clusters(
    order: IndexArray, starts: IndexArray, count: int, left: int, vectors_ND: FloatArray, rng: np.random.Generator
) -> None:
    """Reorder the `count` items of `order` from each of `starts` so that the first `left` are one cluster."""
    for some in np.array_split(starts, -(-len(starts) * count // _ROWS)):
        places_GM = some[:, None] + np.arange(count)
        members_GM = order[places_GM]
        by_cluster_GM = balanced_cuts(vectors_ND[members_GM], left, rng)
        order[places_GM] = np.take_along_axis(members_GM, by_cluster_GM, axis=1)


def balanced_cuts(vectors_GMD: FloatArray, left: int, rng: np.random.Generator) -> IndexArray:
    """int64[G, M], for each group an order whose first `left` are one cluster of 2-means and the rest the other.

    For fixed sizes, 0 < left < M, the best assignment to two centroids is by the projection on their difference.
    """
    num_groups, count, _ = vectors_GMD.shape
    result_GM = np.tile(np.arange(count), (num_groups, 1))
    one_G = rng.integers(count, size=num_groups)
    other_G = (one_G + rng.integers(1, count, size=num_groups)) % count
    groups_A = np.arange(num_groups)
    if count == 2:
        return result_GM
    directions_AD = vectors_GMD[groups_A, one_G] - vectors_GMD[groups_A, other_G]
    sums_AD = vectors_GMD.sum(axis=1)
    among_AM: BoolArray | None = None
    for _ in range(ROUNDS + 1):
        along_AM = np.matmul(vectors_GMD, directions_AD[:, :, None])[:, :, 0]
        order_AM = np.argpartition(-along_AM, (left - 1, left), axis=1)
        result_GM[groups_A] = order_AM
        before_AM, among_AM = among_AM, np.zeros(order_AM.shape, bool)
        np.put_along_axis(among_AM, order_AM[:, :left], True, axis=1)
        if before_AM is not None:
            moved_A = (among_AM != before_AM).any(axis=1)
            if not moved_A.any():
                break
            if 2 * np.count_nonzero(moved_A) < len(moved_A):
                groups_A, vectors_GMD = groups_A[moved_A], vectors_GMD[moved_A]
                among_AM, sums_AD = among_AM[moved_A], sums_AD[moved_A]
        left_AD = np.matmul(among_AM[:, None, :].astype(vectors_GMD.dtype), vectors_GMD)[:, 0]
        directions_AD = left_AD / left - (sums_AD - left_AD) / (count - left)
    return result_GM
