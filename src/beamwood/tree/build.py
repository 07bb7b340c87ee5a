"""Tree starts: an order of the items, laid evenly over the leaves."""

from __future__ import annotations

import numpy as np

from beamwood.errors import InputError
from beamwood.tree.tree import Shape, Tree, choose_shape
from beamwood.types import IndexArray

__all__ = ["category_tree", "random_tree"]


def random_tree(num_items: int, rng: np.random.Generator, *, branching: int = 2) -> Tree:
    """A tree with the items in random order. Errors: `branching` outside 2..256."""
    return Tree.of_order(rng.permutation(num_items), branching=branching)


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
