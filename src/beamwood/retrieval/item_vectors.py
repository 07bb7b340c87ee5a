"""The item vectors of a searcher: for similar items, for diversity, and for export to vector databases.

Shape legend: M items, D columns of a vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.retrieval.blend import Blend
from beamwood.retrieval.extended import Extended
from beamwood.retrieval.new_items import mixtures_of, num_known
from beamwood.retrieval.tree import TreeSearcher
from beamwood.retrieval.vectors import VectorSearcher
from beamwood.types import IndexArray, Searcher

__all__ = ["Export", "directions", "exported", "item_vectors", "part_with"]

_Kind = TypeVar("_Kind", bound=Searcher)
_Of = Callable[[IndexArray], NDArray[np.float32]]


def part_with(searcher: Searcher, kind: type[_Kind]) -> _Kind | None:
    """The searcher itself, or its first part, of that class; None without one."""
    if isinstance(searcher, Extended):
        return part_with(searcher.fitted, kind)
    if isinstance(searcher, Blend):
        found = (part_with(part.searcher, kind) for part in searcher.parts)
        return next((each for each in found if each is not None), None)
    return searcher if isinstance(searcher, kind) else None


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


def _of_known(searcher: Searcher, items: IndexArray) -> NDArray[np.float32]:
    vectors = part_with(searcher, VectorSearcher)
    if vectors is not None:
        return vectors.vectors[items]
    tree = part_with(searcher, TreeSearcher)
    if tree is not None:
        shape = tree.tree.shape
        own = tree.weights.terms.get("similarity")
        by_node = tree.weights.nodes if own is None else own.arrays["vectors"]
        return np.asarray(by_node[tree.tree.leaves_of(items) + shape.level_offset(shape.depth)], np.float32)
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
        raise InputError(
            "this model has no vectors of items to export; fit a method of vectors, such as two_tower, or give a "
            "tree's fit time for a light head (model.light_width above 0, a longer --time-limit)"
        )
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


def directions(vectors_MD: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32[M, D], the vectors normalised to length 1; zeros stay."""
    lengths = np.linalg.norm(vectors_MD, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = np.divide(vectors_MD, np.maximum(lengths, np.float32(1e-12)), dtype=np.float32)
    return scaled
