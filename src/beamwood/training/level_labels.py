"""Label rules: on which levels a target's ancestor is a positive node.

Shape legend: B histories, L history length, T targets a history, H levels, K branching, N items.
Every rule gives z bool[H, B, T], level 1 first, or float32 where labels are normalised. Without a rule every ancestor
is positive (the summed labels of TDM, JTM, PLT and plain DTR: a node's label is the sum over the items below it).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.errors import InputError
from beamwood.kernels.labels import level_masses, one_step_labels, rectified_levels
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.sampling.levels import are_live
from beamwood.tree import Tree
from beamwood.types import Estimator, IndexArray, ItemLists, Query

__all__ = ["estimated_labels", "pseudo_targets"]

# Scores held at a time (64 MiB), whatever the number of items.
_CELLS = 2**24


def estimated_labels(
    estimator: Estimator,
    tree: Tree,
    histories: ItemLists,
    targets_BT: IndexArray,
    rule: Literal["rectified", "one-step"] = "rectified",
    *,
    normalised: bool = False,
) -> Tensor:
    """z of `targets_BT` (items) by an estimator's scores of all items, fixed while the tree is.

    "rectified": z_j = 1 iff the target has the best score of all items below its ancestor on level j (DTR, equation
    14). "one-step": z_j = 1 iff the child on the target's path beats its siblings, by their best items (the authors'
    program); the rectified label is the product of these from level j down. `normalised`: float32, each label divided
    by its level's mass, so that its expectation sums to 1 over the level (definition 3; the paper trains without). Each
    history is encoded once. Memory: 64 MiB of scores at a time. Errors: an estimator of other items.
    """
    if estimator.num_items != tree.num_items:
        raise InputError(f"the estimator knows {estimator.num_items} items, the tree {tree.num_items}; fit it on them")
    height = max(1, _CELLS // tree.num_items)
    # No histories are one block, too.
    parts = [
        _labels_of_block(estimator, tree, histories.take(rows), targets_BT[rows], rule, normalised=normalised)
        for rows in np.split(np.arange(len(histories)), range(height, len(histories), height))
    ]
    return torch.cat(parts, dim=1)


def _labels_of_block(
    estimator: Estimator,
    tree: Tree,
    histories: ItemLists,
    targets_BT: IndexArray,
    rule: Literal["rectified", "one-step"],
    *,
    normalised: bool,
) -> Tensor:
    scores_BN = _all_scores(estimator, histories)
    if rule == "one-step":
        labels = torch.from_numpy(one_step_labels(scores_BN, tree, targets_BT)).permute(2, 0, 1)
    else:
        levels = torch.from_numpy(rectified_levels(scores_BN, tree, targets_BT))
        labels = torch.arange(1, tree.shape.depth + 1)[:, None, None] >= levels[None]
    if not normalised:
        return labels
    return labels / torch.from_numpy(level_masses(scores_BN, tree)).T[:, :, None]


def _all_scores(estimator: Estimator, histories: ItemLists) -> NDArray[np.float32]:
    """float32[B, N], an estimator's score of every item."""
    query, every = Query.of(histories), np.arange(estimator.num_items, dtype=np.int32)
    # Estimators recognise a broadcast view of one row, and then encode each history once.
    return estimator.score(query, np.broadcast_to(every, (len(query), len(every))))


@torch.no_grad()
def pseudo_targets(
    scorer: DinScorer, tree: Tree, leaves_BL: Tensor, targets_BT: Tensor, folds_B: Tensor | None = None
) -> Tensor:
    """z of `targets_BT` (leaves) by the current scorer: OTM's labels.

    A target's leaf is positive; a parent has the label of its best child, so an ancestor stays positive only while the
    child on the path is the best of its siblings. `folds_B`: the folds excluded from the scores, as in training.
    Source: OTM, equation 11 and algorithm 1.
    """
    shape, device = tree.shape, targets_BT.device
    labels = torch.ones((shape.depth, *targets_BT.shape), dtype=torch.bool, device=device)
    for level in range(shape.depth - 1, 0, -1):
        fanout = shape.branching
        own_BT = targets_BT // shape.leaves_below(level + 1)
        families_BTK = own_BT[:, :, None] // fanout * fanout + torch.arange(fanout, device=device)
        nodes = families_BTK.flatten(1)
        live = are_live(tree, level + 1, nodes)
        scores = scorer.evaluate(leaves_BL, LevelNodes(level + 1, nodes), folds_B).masked_fill(~live, -torch.inf)
        # Ties go to the lower node, as in a search.
        best_BT = scores.view(families_BTK.shape).argmax(dim=2, keepdim=True)
        winner_BT = torch.gather(families_BTK, 2, best_BT)[:, :, 0]
        # The best child may be another positive target of the same history.
        positive = (winner_BT[:, :, None] == own_BT[:, None, :]) & labels[level][:, None, :]
        labels[level - 1] = positive.any(dim=2)
    return labels
