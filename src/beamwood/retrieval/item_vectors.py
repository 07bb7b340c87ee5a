"""The item vectors of a searcher: for similar items, for diversity, and for export to vector databases.

Shape legend: M items, D columns of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.errors import InputError
from beamwood.models.ops import unit
from beamwood.retrieval.new_items.added import mixtures_of, num_known
from beamwood.retrieval.new_items.extended import Extended
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.types import IndexArray, Searcher

__all__ = ["Export", "cosines", "exported", "has_item_vectors", "item_vectors", "part_with"]

_Kind = TypeVar("_Kind", bound=Searcher)
# Rows that are read together, few enough to stay in the cache.
_BLOCK = 2**13
_SHORTEST = np.float32(1e-12)
_Of = Callable[[IndexArray], NDArray[np.float32]]


def part_with(searcher: Searcher, kind: type[_Kind]) -> _Kind | None:
    """The searcher if it is of that class, else its first part that is; None without one."""
    if isinstance(searcher, Extended):
        return part_with(searcher.fitted, kind)
    if isinstance(searcher, Blend):
        found = (part_with(part.searcher, kind) for part in searcher.parts)
        return next((each for each in found if each is not None), None)
    return searcher if isinstance(searcher, kind) else None


def has_item_vectors(searcher: Searcher) -> bool:
    """Whether `item_vectors` has an answer."""
    return any(part_with(searcher, kind) is not None for kind in (VectorSearcher, TreeSearcher))


def item_vectors(searcher: Searcher, items: IndexArray) -> NDArray[np.float32]:
    """float32[M, D], the vectors of items: those searched, or a tree's similarity vectors of leaves.

    A new item's vector is the mixture. Errors: a method without vectors, such as a counting one.
    """
    return _with_new(searcher, lambda known: _of_known(searcher, known), items)


def _with_new(searcher: Searcher, of: _Of, items: IndexArray) -> NDArray[np.float32]:
    """float32[M, ..], what `of` returns of known items, and the mixture of that for new ones."""
    mixtures, first = mixtures_of(searcher), num_known(searcher)
    items = np.asarray(items)
    new = items >= first
    if mixtures is None or not new.any():
        return of(items)
    own = mixtures.take(items[new] - first)
    values = of(np.where(new, 0, items)).copy()
    values[new] = own.summed(of(own.lists.items))
    return values


def cosines(searcher: Searcher, direction: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32[N], the inner product of each item's direction with a vector; errors as of `item_vectors`.

    One pass over the vectors as they lie in memory, a block at a time.
    """
    rows, places = _stored(searcher)
    by_row = np.empty(len(rows), np.float32)
    for part in slices(len(rows), _BLOCK):
        block = np.asarray(rows[part], np.float32)
        lengths = np.sqrt(np.einsum("nd,nd->n", block, block))
        by_row[part] = block @ direction / np.maximum(lengths, _SHORTEST)
    first = num_known(searcher)
    known = by_row[:first] if places is None else by_row[places[:first]]
    if first == searcher.num_items:
        return known
    new = unit(item_vectors(searcher, np.arange(first, searcher.num_items))) @ direction
    return np.concatenate([known, new])


def _of_known(searcher: Searcher, items: IndexArray) -> NDArray[np.float32]:
    rows, places = _stored(searcher)
    return np.asarray(rows[items if places is None else places[items]], np.float32)


def _stored(searcher: Searcher) -> tuple[NDArray[Any], NDArray[np.int32] | None]:
    """The vectors as they are stored, and the row of each item; None where that is its index."""
    vectors = part_with(searcher, VectorSearcher)
    if vectors is not None:
        return vectors.vectors, None
    tree = part_with(searcher, TreeSearcher)
    if tree is not None:
        shape = tree.tree.shape
        own = tree.weights.terms.get("similarity")
        by_node = tree.weights.nodes if own is None else own.arrays["vectors"]
        return by_node[shape.level_offset(shape.depth) :], tree.tree.leaf_of_item
    raise InputError("this model has no item vectors; fit a method that has, such as two_tower, or ask without them")


class Export(NamedTuple):
    """Vectors for another vector database: `of` returns float32[M, D] of items, `biases` float32[M], None without.

    A score is the inner product with a query's vector, plus the bias. `what` describes them, `width` is D.
    """

    what: str
    width: int
    of: _Of
    biases: _Of | None = None


def exported(searcher: Searcher) -> Export:
    """The vectors searched, or those of a tree's light head. Errors: a method with neither."""
    vectors = part_with(searcher, VectorSearcher)
    if vectors is not None:
        width = vectors.vectors.shape[1]
        return Export("the vectors that are searched", width, lambda items: item_vectors(searcher, items))
    tree = part_with(searcher, TreeSearcher)
    if tree is None or tree.weights.light is None:
        lacks = "this model" if tree is None else "this tree has no light head, as `beamwood inspect` explains, and so"
        raise InputError(f"{lacks} has no vectors of items to export; fit a method of vectors, such as two_tower")
    light, leaves = tree.weights.light, tree.tree.leaf_of_item
    first = tree.tree.shape.level_offset(tree.tree.shape.depth)

    def of(items: IndexArray) -> NDArray[np.float32]:
        rows = first + leaves[items]
        return light.nodes[rows] * light.node_scales[rows, None]

    def biases(items: IndexArray) -> NDArray[np.float32]:
        return light.biases[first + leaves[items]]

    what = "the light head's vectors of leaves, which steer the search of the tree"
    each = (lambda items: _with_new(searcher, of, items)), (lambda items: _with_new(searcher, biases, items))
    return Export(what, light.width, *each)
