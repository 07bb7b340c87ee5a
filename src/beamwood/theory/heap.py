"""Labels of tree nodes from probabilities of items, and beam search over given scores: the basis of Bayes optimality.

Shape legend: N items, H levels, k beam width. A "level list" has one array a level, level 0 (the root) first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.tree import Shape, Tree
from beamwood.types import FloatArray

__all__ = ["bayes_regret", "beam_over", "level_maxima", "level_sums"]


def level_sums(tree: Tree, eta_N: FloatArray) -> list[FloatArray]:
    """Level list of the sums of `eta_N` below each node: what training without rectified labels estimates.

    Source: DTR, equation 12 (the expectation of z when every ancestor of the target is positive).
    """
    return _folded(tree, eta_N, 0.0, np.sum)


def level_maxima(tree: Tree, eta_N: FloatArray) -> list[FloatArray]:
    """Level list of the largest `eta_N` below each node, -inf for a node without items: a max-heap.

    Source: DTR, equation 15 (the expectation of the rectified label, equation 14).
    """
    return _folded(tree, eta_N, -np.inf, np.max)


def _folded(tree: Tree, eta_N: FloatArray, empty: float, reduce: Callable[..., FloatArray]) -> list[FloatArray]:
    eta_N = np.asarray(eta_N, float)
    if eta_N.shape != (tree.num_items,):
        raise InputError(f"eta_N has shape {eta_N.shape}; expected one number for each of {tree.num_items} items")
    values = np.full(tree.shape.capacity, empty)
    live = tree.item_of_leaf >= 0
    values[live] = eta_N[tree.item_of_leaf[live]]
    levels = [values]
    for level in range(tree.shape.depth - 1, -1, -1):
        families = levels[-1].reshape(tree.shape.level_size(level), -1)
        levels.append(reduce(families, axis=1))
    return levels[::-1]


def beam_over(shape: Shape, scores: Sequence[FloatArray], k: int) -> NDArray[np.int64]:
    """int64[at most k], the leaves that a beam of width k reaches, best first; ties by lower node.

    `scores`: a level list; a node of score -inf is never expanded. Source: DTR, algorithm 1. Errors: k below 1, arrays
    that do not fit the shape.
    """
    if k < 1:
        raise InputError(f"k={k} is below 1")
    if [len(level) for level in scores] != [shape.level_size(level) for level in range(shape.depth + 1)]:
        raise InputError("the arrays of scores do not fit the tree's shape; give one array a level, the root's first")
    nodes = np.zeros(1, np.int64)
    for level in range(1, shape.depth + 1):
        fanout = shape.fanout(level)
        nodes = (nodes[:, None] * fanout + np.arange(fanout)).ravel()
        nodes = nodes[np.isfinite(scores[level][nodes])]
        nodes = nodes[np.lexsort((nodes, -scores[level][nodes]))][:k]
    return nodes


def bayes_regret(eta_N: FloatArray, items: NDArray[np.integer], k: int) -> float:
    """The probability that the k chosen items miss: the sum of the k largest of `eta_N` minus that of the chosen.

    An item of -1 is an empty place, and a repeated one counts once. Source: DTR, definition 1 (top-k retrieval Bayes
    optimality): exactly 0 where it holds. Errors: k below 1, or items outside the catalogue.
    """
    if k < 1:
        raise InputError(f"k={k} is below 1")
    chosen, eta_N = np.unique(items[:k]), np.asarray(eta_N)
    if chosen.max(initial=-1) >= len(eta_N):
        raise InputError(f"items hold index {chosen.max()} of {len(eta_N)} items; give those of the probabilities")
    return float(np.sort(eta_N)[::-1][:k].sum() - eta_N[chosen[chosen >= 0]].sum())
