"""Rectified labels: up to which level a target is the best item below its ancestors, under an estimator's scores.

Shape legend: B rows, T targets a row, N items, H levels of the tree.

Better means: a higher score, or the same score and a lower item index. Source: DTR, equation 14; the one-step form is
that of the authors' program.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.errors import InputError
from beamwood.kernels.dispatch import native
from beamwood.tree.tree import Shape, Tree
from beamwood.types import FloatArray, IndexArray

__all__ = ["level_masses", "one_step_labels", "rectified_levels"]

BLOCK_ROWS = 256


def rectified_levels(scores_BN: FloatArray, tree: Tree, targets_BT: IndexArray) -> NDArray[np.uint8]:
    """uint8[B, T]: the highest level (lowest number, 0 is the root) below whose node the target is the best item.

    The rectified label is `z_j = (j >= level)`, so it is 1 from the leaf up to that level and 0 above. `scores_BN`: an
    estimator's scores of all items. Raises `InputError` on shapes that do not fit, NaN and targets outside 0..N-1.
    """
    scores_BN = checked_scores(scores_BN, tree, targets_BT)
    items = tree.item_of_leaf[tree.item_of_leaf >= 0]
    levels = np.empty(targets_BT.shape, np.uint8)
    for rows in slices(len(scores_BN), BLOCK_ROWS):
        # `take` by int64 costs an eighth of indexing by int32.
        in_order = np.take(scores_BN[rows], items.astype(np.int64), axis=1)
        levels[rows] = levels_in_order(in_order, items, tree, targets_BT[rows])
    return levels


def levels_in_order(
    scores: NDArray[np.float32], items: NDArray[np.int32], tree: Tree, targets_BT: IndexArray
) -> NDArray[np.uint8]:
    """Levels of the targets from scores in leaf order, where the leaves below a node are contiguous.

    So only the nearest better leaf on either side matters.
    """
    leaves = tree.leaf_of_item[items].astype(np.int64)
    place_of_item = np.empty(len(items), np.int64)
    place_of_item[items] = np.arange(len(items))
    levels = np.empty(targets_BT.shape, np.uint8)
    for column in range(targets_BT.shape[1]):
        places = place_of_item[targets_BT[:, column]]
        nearest = nearest_better(scores, items, places)
        rivals = np.where(nearest < 0, -1, leaves[nearest])
        levels[:, column] = first_level_alone(tree.shape, leaves[places], rivals)
    return levels


def nearest_better(scores: NDArray[np.float32], items: NDArray[np.int32], places: IndexArray) -> NDArray[np.int64]:
    """int64[B, 2]: the nearest places left and right of `places` whose item is better than the one there, or -1."""
    nearest = np.empty((len(scores), 2), np.int64)
    module = native()
    if module is not None:
        module.nearest_better(scores, items, places, nearest)
        return nearest
    for row, place in enumerate(places):
        own = scores[row, place]
        better = (scores[row] > own) | ((scores[row] == own) & (items < items[place]))
        left, right = better[:place][::-1], better[place + 1 :]
        nearest[row, 0] = place - 1 - left.argmax() if left.any() else -1
        nearest[row, 1] = place + 1 + right.argmax() if right.any() else -1
    return nearest


def first_level_alone(shape: Shape, leaves_B: IndexArray, rivals_BR: IndexArray) -> NDArray[np.uint8]:
    """The first level on which a leaf shares its ancestor with none of its rivals (-1: no rival)."""
    shared = np.zeros(rivals_BR.shape, np.uint8)
    for level in range(shape.depth):
        own, other = shape.ancestors(leaves_B, level), shape.ancestors(rivals_BR, level)
        shared += own[:, None] == other
    levels: NDArray[np.uint8] = shared.max(axis=1)
    return levels


def one_step_labels(scores_BN: FloatArray, tree: Tree, targets_BT: IndexArray) -> NDArray[np.bool_]:
    """bool[B, T, H] for levels 1..H: whether the child on the target's path beats its siblings, by their best items.

    Level H has no child and is true. The rectified label of level j is the product of these over levels j and below.
    Raises `InputError` as `rectified_levels` does.
    """
    scores_BN = checked_scores(scores_BN, tree, targets_BT)
    labels = np.empty((*targets_BT.shape, tree.shape.depth), np.bool_)
    for rows in slices(len(scores_BN), BLOCK_ROWS):
        labels[rows] = one_step_of_block(scores_BN[rows], tree, targets_BT[rows])
    return labels


def one_step_of_block(scores_BN: NDArray[np.float32], tree: Tree, targets_BT: IndexArray) -> NDArray[np.bool_]:
    """As `one_step_labels`, from the leaves up: each family's best child, and the lowest item with its score."""
    shape, live = tree.shape, tree.item_of_leaf >= 0
    labels = np.ones((*targets_BT.shape, shape.depth), np.bool_)
    rows = np.arange(len(scores_BN))[:, None]
    best = np.full((len(scores_BN), shape.capacity), -np.inf, np.float32)
    best[:, live] = scores_BN[:, tree.item_of_leaf[live]]
    best_item = np.where(live, tree.item_of_leaf, np.iinfo(np.int32).max)[None].repeat(len(best), axis=0)
    leaves = tree.leaf_of_item[targets_BT]
    for level in range(shape.depth - 1, 0, -1):
        families = best.reshape(len(best), -1, shape.branching)
        family_items = best_item.reshape(families.shape)
        parents, child = shape.ancestors(leaves, level), shape.ancestors(leaves, level + 1) % shape.branching
        labels[:, :, level - 1] = first_best(families[rows, parents], family_items[rows, parents]) == child
        best = families.max(axis=2)
        best_item = np.where(families == best[:, :, None], family_items, np.iinfo(np.int32).max).min(axis=2)
    return labels


def level_masses(scores_BN: FloatArray, tree: Tree) -> NDArray[np.float32]:
    """float32[B, H], level 1 first: the sum over a level's nodes of the largest probability below each.

    Probabilities are the softmax of the estimator's scores. A rectified label divided by it has an expectation that
    sums to 1 over a level. Source: DTR, section 4.2.1, the normalisation term alpha^j(u) of definition 3.
    """
    scores_BN = checked_scores(scores_BN, tree, np.zeros((len(scores_BN), 0), np.int64))
    shape, live = tree.shape, tree.item_of_leaf >= 0
    weights = np.exp(scores_BN - scores_BN.max(axis=1, keepdims=True))
    best = np.zeros((len(scores_BN), shape.capacity), np.float32)
    best[:, live] = (weights / weights.sum(axis=1, keepdims=True))[:, tree.item_of_leaf[live]]
    masses = [best.sum(axis=1)]
    for _ in range(shape.depth - 1):
        best = best.reshape(len(best), -1, shape.branching).max(axis=2)
        masses.append(best.sum(axis=1))
    return np.stack(masses[::-1], axis=1)


def first_best(scores: FloatArray, items: IndexArray) -> NDArray[np.int64]:
    """The column of the best entry along the last axis: highest score, then lowest item."""
    tied = scores == scores.max(axis=-1, keepdims=True)
    columns: NDArray[np.int64] = np.where(tied, items, np.iinfo(np.int32).max).argmin(axis=-1)
    return columns


def checked_scores(scores_BN: FloatArray, tree: Tree, targets_BT: IndexArray) -> NDArray[np.float32]:
    """The scores in float32, or `InputError` naming the invalid argument."""
    scores_BN, targets = np.asarray(scores_BN), np.asarray(targets_BT)
    if scores_BN.ndim != 2 or scores_BN.shape[1] != tree.num_items:
        raise InputError(f"scores_BN has shape {scores_BN.shape}; expected (rows, {tree.num_items}), one score an item")
    if targets.ndim != 2 or len(targets) != len(scores_BN):
        raise InputError(f"targets_BT has shape {targets.shape}; expected ({len(scores_BN)}, targets)")
    if targets.size and not (targets.min() >= 0 and targets.max() < tree.num_items):
        raise InputError(f"targets_BT must hold items in 0..{tree.num_items - 1}")
    if np.isnan(scores_BN).any():
        raise InputError("scores_BN holds NaN; train the estimator on finite values")
    return scores_BN.astype(np.float32, copy=False)
