"""The loss of one level of a tree: the drawn nodes, their scores, and the link of a score.

Shape legend: B histories, T targets a history, M nodes drawn a level, n nodes of a level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from beamwood.errors import InputError
from beamwood.kernels.links import LINKS, Link
from beamwood.losses.binary import binary_cross_entropy
from beamwood.losses.softmax import full_softmax, sampled_softmax

__all__ = [
    "LEVEL_LOSSES",
    "LevelDraw",
    "LevelLoss",
    "LevelLossFunction",
    "binary_level",
    "nodewise_inputs",
    "softmax_level",
]


@dataclass(frozen=True, slots=True)
class LevelDraw:
    """Nodes of one level: `nodes` int64[B, M], or None for the whole level in order.

    `log_q` float32[B, M] and `log_q_targets` float32[B, T]: log-probability of drawing each, None where no softmax
    needs it. `real` bool[B, M]: entries that count, None for all. `targets_included`: the targets are to be scored
    only where they are among `nodes`. `targets_apart`: each target is an example of its own, for which the nodes of the
    others are negatives too.
    """

    level: int
    nodes: Tensor | None
    log_q: Tensor | None = None
    log_q_targets: Tensor | None = None
    real: Tensor | None = None
    targets_included: bool = False
    targets_apart: bool = False

    def scored(self, targets_BT: Tensor) -> Tensor | None:
        """The nodes to score: targets first where they are not among the drawn ones; None for the whole level."""
        if self.nodes is None or self.targets_included:
            return self.nodes
        return torch.cat([targets_BT, self.nodes], dim=1)


class LevelLossFunction(Protocol):
    """Loss [B, T] or [B], whose mean is the level's; `targets_BT` int64: the targets' ancestors on this level.

    `scores_BM` float32: of the nodes `draw.scored(targets_BT)`, or of the whole level. `z_BT`: whether each target's
    ancestor is positive, bool, or how much it counts, float32. `live_n` bool[n]: of a whole level the nodes with an
    item, else None.
    """

    def __call__(
        self, draw: LevelDraw, scores_BM: Tensor, targets_BT: Tensor, z_BT: Tensor, live_n: Tensor | None
    ) -> Tensor: ...


@dataclass(frozen=True, slots=True)
class LevelLoss:
    """A loss function by name, and the link by which its scores are read (`kernels.links`)."""

    name: str
    link: Link
    loss: LevelLossFunction


def softmax_level(
    draw: LevelDraw, scores_BM: Tensor, targets_BT: Tensor, z_BT: Tensor, live_n: Tensor | None
) -> Tensor:
    """[B, T]: `-z log softmax` of each target on one level. Source: DTR, equations 18 and 20-21.

    Errors: drawn nodes without log q, or without the scores of the targets.
    """
    if draw.nodes is None:
        assert live_n is not None
        return full_softmax(scores_BM.masked_fill(~live_n, -torch.inf), targets_BT) * z_BT
    if draw.targets_included:
        raise InputError(
            f"the softmax of level {draw.level} needs the score of each target, which a draw with targets_included may "
            "lack; take a binary loss, or draw the nodes besides the targets"
        )
    if draw.log_q is None:
        raise InputError(
            f"the softmax of level {draw.level} needs log_q of each node that was drawn; give it in LevelDraw"
        )
    num_targets = targets_BT.shape[1]
    dropped_BTM = draw.nodes[:, None, :] == targets_BT[:, :, None]
    if draw.real is not None:
        dropped_BTM = dropped_BTM | ~draw.real[:, None, :]
    losses = sampled_softmax(
        scores_BM[:, :num_targets], scores_BM[:, num_targets:], draw.log_q, dropped_BTM, draw.log_q_targets
    )
    return losses * z_BT


def binary_level(draw: LevelDraw, scores_BM: Tensor, targets_BT: Tensor, z_BT: Tensor, live_n: Tensor | None) -> Tensor:
    """[B]: binary cross-entropy of a level's nodes, for each target. Source: DTR, equation 8 (TDM); OTM, equation 10.

    A node that is another target's is not a negative, unless the draw has `targets_apart`.
    """
    logits, labels, counted = nodewise_inputs(draw, scores_BM, targets_BT, z_BT, live_n)
    return binary_cross_entropy(logits, labels, counted) / targets_BT.shape[1]


def nodewise_inputs(
    draw: LevelDraw, scores_BM: Tensor, targets_BT: Tensor, z_BT: Tensor, live_n: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The inputs of a node-wise loss: logits, labels, and the factor of each node, None: 1.

    Errors: labels that are weights, as a node is positive or not.
    """
    if z_BT.dtype != torch.bool:
        raise InputError(f"a node-wise loss has labels of bool, not {z_BT.dtype}; set loss.normalised=false")
    num_targets = targets_BT.shape[1]
    if draw.nodes is None:
        assert live_n is not None
        hits_Bn = one_hot(targets_BT, scores_BM.shape[1]).sum(dim=1)
        logits = torch.cat([torch.gather(scores_BM, 1, targets_BT), scores_BM], dim=1)
        others = live_n * (num_targets - hits_Bn if draw.targets_apart else hits_Bn == 0)
    elif draw.targets_included:
        matches_BTM = draw.nodes[:, None, :] == targets_BT[:, :, None]
        labels = (matches_BTM & z_BT[:, :, None]).any(dim=1)
        return scores_BM, labels, draw.real
    elif draw.targets_apart:
        assert draw.real is not None
        others, logits = draw.real, scores_BM
    else:
        others = ~(draw.nodes[:, None, :] == targets_BT[:, :, None]).any(dim=1)
        others = others if draw.real is None else others & draw.real
        logits = scores_BM
    labels = torch.cat([z_BT, torch.zeros_like(others, dtype=torch.bool)], dim=1)
    return logits, labels, torch.cat([torch.ones_like(z_BT), others], dim=1)


LEVEL_LOSSES = {
    one.name: one
    for one in (
        LevelLoss("softmax", LINKS["softmax"], softmax_level),
        LevelLoss("binary", LINKS["sigmoid"], binary_level),
        LevelLoss("path", LINKS["path"], binary_level),
    )
}
