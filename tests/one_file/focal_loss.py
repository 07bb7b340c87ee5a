"""TDM with a custom level loss: correctly classified nodes have less weight."""

from dataclasses import replace
from functools import partial

import torch
from torch.nn.functional import softplus

from beamwood.kernels.links import LINKS
from beamwood.losses.levels import LevelLoss, nodewise_inputs
from beamwood.methods.tdm import METHOD as TDM


def focal_level(draw, scores_BM, targets_BT, z_BT, live_n):
    """[B]: `-(1 - p)^2 log p` of each node, p the probability of its own label."""
    logits, labels, counted = nodewise_inputs(draw, scores_BM, targets_BT, z_BT, live_n)
    wrong = torch.where(labels, -logits, logits)
    terms = torch.sigmoid(wrong) ** 2 * softplus(wrong)
    return (terms if counted is None else terms * counted).sum(dim=1) / targets_BT.shape[1]


METHOD = replace(
    TDM,
    name="tdm-focal",
    fit=partial(TDM.fit, loss=LevelLoss("focal", LINKS["sigmoid"], focal_level)),
)
