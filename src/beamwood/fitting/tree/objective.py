"""What distinguishes the training of tree retrievers: samplers, losses and labels of levels, and their batches.

Shape legend: B histories, L history length, T targets a history, M nodes drawn a level, H levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from beamwood.errors import InputError
from beamwood.losses.levels import LEVEL_LOSSES, LevelDraw, LevelLoss
from beamwood.models.din import LevelNodes
from beamwood.models.tree_model import TreeModel
from beamwood.sampling.checks import check_draws
from beamwood.sampling.levels import LeafHistories, LevelSampler, live_mask
from beamwood.training.level_labels import pseudo_targets
from beamwood.tree import Tree
from beamwood.types import Estimator

__all__ = ["Labels", "ScoredLevel", "TreeBatch", "TreeObjective", "scored_levels"]

Labels = Literal["summed", "rectified", "one-step", "pseudo"]


@dataclass(frozen=True, slots=True)
class TreeObjective:
    """What distinguishes the training of one tree retriever from that of others, while the tree is fixed.

    `labels`: "summed": every ancestor of a target is positive; "rectified" and "one-step": by the `estimator`;
    "pseudo": by the model itself (OTM). `normalised`: labels are divided by the mass of their level.
    """

    sampler: LevelSampler
    loss: LevelLoss = LEVEL_LOSSES["softmax"]
    labels: Labels = "summed"
    estimator: Estimator | None = None
    normalised: bool = False

    def draw(self, model: TreeModel, batch: TreeBatch, rng: torch.Generator) -> TreeBatch:
        """The batch with the nodes drawn on each level, and for OTM with the labels of the current scorer."""
        scorer, tree, z_HBT = model.scorer, model.tree, batch.z_HBT
        histories = LeafHistories(batch.leaves_BL, batch.folds_B)
        draws = self.sampler(scorer, tree, histories, batch.targets_BT, rng)
        check_draws(draws, tree.shape, batch.targets_BT)
        if self.labels == "pseudo":
            z_HBT = pseudo_targets(scorer, tree, batch.leaves_BL, batch.targets_BT, batch.folds_B)
        return replace(batch, z_HBT=z_HBT, draws=draws)

    def level_loss(self, tree: Tree, level: ScoredLevel) -> Tensor:
        """Scalar: the loss of one level, the mean over histories and targets.

        Errors: the loss function does not return one value, or one for each target, a history.
        """
        draw, scores, targets_BT, z_BT = level
        live_n = live_mask(tree, draw.level).to(scores.device) if draw.nodes is None else None
        losses = self.loss.loss(draw, scores, targets_BT, z_BT, live_n)
        shape, wanted = list(losses.shape), list(targets_BT.shape)
        if shape not in (wanted, wanted[:1]):
            raise InputError(f"the loss '{self.loss.name}' has shape {shape}; return {wanted[:1]}, one value a history")
        return losses.mean()


@dataclass(frozen=True, slots=True)
class TreeBatch:
    """Histories `leaves_BL` int64, -1 padding on the left, and `targets_BT` int64, both as leaves.

    `z_HBT`: labels, None: all positive; `folds_B` int64: the folds of the histories' users; `draws`: the nodes drawn on
    each level, filled by `TreeObjective.draw`.
    """

    leaves_BL: Tensor
    targets_BT: Tensor
    z_HBT: Tensor | None
    folds_B: Tensor | None
    draws: Sequence[LevelDraw] = ()


class ScoredLevel(NamedTuple):
    """One level of a batch: `scores` [B, M] of the drawn nodes, `targets` [B, T], nodes, and their `labels` [B, T].

    Labels are bool, or float32 where they are normalised.
    """

    draw: LevelDraw
    scores: Tensor
    targets: Tensor
    labels: Tensor


def scored_levels(model: TreeModel, batch: TreeBatch, *, bf16: bool) -> list[ScoredLevel]:
    """The scores of the nodes drawn on each level; `bf16`: computed with layers in bfloat16."""
    draws = batch.draws
    targets = [batch.targets_BT // model.tree.shape.leaves_below(draw.level) for draw in draws]
    entries = [LevelNodes(draw.level, draw.scored(own)) for draw, own in zip(draws, targets, strict=True)]
    with torch.autocast(batch.leaves_BL.device.type, torch.bfloat16, enabled=bf16):
        scores = model.scorer(batch.leaves_BL, entries, batch.folds_B)
    levels = []
    for draw, own_BT, values in zip(draws, targets, scores, strict=True):
        z_HBT = batch.z_HBT
        z_BT = torch.ones_like(own_BT, dtype=torch.bool) if z_HBT is None else z_HBT[draw.level - 1]
        levels.append(ScoredLevel(draw, values.float(), own_BT, z_BT))
    return levels
