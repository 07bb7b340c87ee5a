"""Tree starts: an order of the items, laid evenly over the leaves."""

from __future__ import annotations

import numpy as np

from beamwood.errors import InputError
from beamwood.tree.tree import Shape, Tree, choose_shape
from beamwood.types import FloatArray, IndexArray

__all__ = ["category_tree", "flat_tree", "kmeans_tree", "random_tree"]

# Rounds of balanced 2-means for each cut; they nearly always settle sooner.
ROUNDS = 10


def random_tree(num_items: int, rng: np.random.Generator, *, branching: int = 2) -> Tree:
    """A tree with the items in random order. Errors: `branching` outside 2..256."""
    return Tree.of_order(rng.permutation(num_items), branching=branching)


def flat_tree(num_items: int) -> Tree:
    """No tree at all: every item is a child of the root, and a search scores each (brute force)."""
    return Tree.of_order(np.arange(num_items), Shape(num_items, 2, 1))


def category_tree(
    categories: IndexArray, rng: np.random.Generator, *, branching: int = 2, shape: Shape | None = None
) -> Tree:
    """Items of a category side by side: shuffle the categories, sort the items by them, halve recursively.

    `categories` int[N], the category number of each item, -1 for items without one (they come last, together).
    Order within a category is random. Source: DTR, section 4.4; TDM, section 3.4.
    """
    categories = np.asarray(categories)
    if categories.ndim != 1 or len(categories) == 0:
        raise InputError(f"categories must be one number an item; got shape {categories.shape}")
    place = rng.permutation(int(categories.max()) + 1)
    rank = np.where(categories < 0, len(place), place[categories]) if len(place) else np.zeros_like(categories)
    order = np.lexsort((rng.permutation(len(categories)), rank))
    return Tree.of_order(order, shape or choose_shape(len(order), branching))


def kmeans_tree(
    vectors_ND: FloatArray, rng: np.random.Generator, *, branching: int = 2, shape: Shape | None = None
) -> Tree:
    """Items of near vectors side by side: a hierarchy of balanced k-means clusters.

    Each node's items are cut into its children's by 2-means with clusters of given sizes, again and again (for a binary
    tree one cut a node). `vectors_ND` finite, one row an item. Source: TDM, section 3.4; DTR, section 3.2.4.
    """
    vectors_ND = np.asarray(vectors_ND)
    if vectors_ND.ndim != 2 or len(vectors_ND) == 0 or not np.isfinite(vectors_ND).all():
        raise InputError(f"vectors_ND has shape {vectors_ND.shape}; give one finite row of numbers an item")
    shape = shape or choose_shape(len(vectors_ND), branching)
    if len(vectors_ND) > shape.capacity:
        raise InputError(f"{len(vectors_ND)} items do not fit into {shape.capacity} leaves; raise depth")
    order = rng.permutation(len(vectors_ND))
    # A range of leaves [first, last) that is `blocks` whole nodes of a level.
    ranges = [(0, shape.capacity, shape.root_fanout)]
    while ranges:
        first, last, blocks = ranges.pop()
        if blocks == 1:
            if last - first > 1:
                ranges.append((first, last, shape.branching))
            continue
        middle = first + (last - first) // blocks * (blocks // 2)
        start, cut, stop = (items_before(leaf, len(order), shape.capacity) for leaf in (first, middle, last))
        members = order[start:stop]
        order[start:stop] = members[balanced_cut(vectors_ND[members], cut - start, rng)]
        ranges += [(first, middle, blocks // 2), (middle, last, blocks - blocks // 2)]
    return Tree.of_order(order, shape)


def items_before(leaf: int, num_items: int, capacity: int) -> int:
    """How many of the items that `Tree.of_order` spreads over the leaves lie before one of them."""
    return -(-leaf * num_items // capacity)


def balanced_cut(vectors_MD: FloatArray, left: int, rng: np.random.Generator) -> IndexArray:
    """An order of the rows whose first `left` are one cluster of 2-means and the rest the other, by sizes given.

    With sizes fixed the best assignment to two centroids is by the projection on their difference.
    """
    count = len(vectors_MD)
    if left in (0, count) or count < 2:
        return np.arange(count)
    one, other = rng.choice(count, 2, replace=False)
    direction = vectors_MD[one] - vectors_MD[other]
    order = np.argsort(-(vectors_MD @ direction), kind="stable")
    for _ in range(ROUNDS):
        direction = vectors_MD[order[:left]].mean(axis=0) - vectors_MD[order[left:]].mean(axis=0)
        new = np.argsort(-(vectors_MD @ direction), kind="stable")
        settled = np.array_equal(np.sort(new[:left]), np.sort(order[:left]))
        order = new
        if settled:
            break
    return order
