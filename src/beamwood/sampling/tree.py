"""Negatives drawn by walks down the tree under the current scorer: DTR's tree-based sampling.

Shape legend: B rows, L history length, M negatives a level, T targets a row, H levels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.kernels.paths import sample_paths
from beamwood.models.din import DinScorer, LevelNodes

__all__ = ["TreeNegatives", "tree_negatives"]


@dataclass(frozen=True, slots=True)
class TreeNegatives:
    """Draws of every level, level 1 first: `nodes` int64[H, B, M], `log_q` float32[H, B, M].

    `log_q_targets` float32[H, B, T]: log q of the targets' ancestors, to renormalise q once they are dropped.
    """

    nodes: Tensor
    log_q: Tensor
    log_q_targets: Tensor


@torch.no_grad()
def tree_negatives(
    scorer: DinScorer,
    leaves_BL: Tensor,
    target_leaves_BT: Tensor,
    live: tuple[NDArray[np.int32], ...],
    num_negatives: int,
    generator: torch.Generator,
    folds_B: Tensor | None = None,
) -> TreeNegatives:
    """M walks a row from the root, each step by the softmax over siblings, `live` as `Tree.live_counts`.

    `folds_B`: see `DinScorer.forward`. The scorer is in evaluation mode, so that q is the one stated (the authors'
    program leaves dropout on). A draw can equal a target; the loss drops it. Source: DTR, section 4.3.2, equations
    22-23.
    """
    uniforms = torch.rand(
        scorer.shape.depth, len(leaves_BL), num_negatives, generator=generator, dtype=torch.float64
    ).numpy()
    device = leaves_BL.device

    def score(level: int, nodes: NDArray[np.int64] | None) -> NDArray[np.float32]:
        entry = LevelNodes(level, None if nodes is None else torch.from_numpy(nodes).to(device))
        values: NDArray[np.float32] = scorer.evaluate(leaves_BL, entry, folds_B).float().cpu().numpy()
        return values

    paths = sample_paths(score, scorer.shape, live, uniforms, target_leaves_BT.cpu().numpy())
    return TreeNegatives(
        *(torch.from_numpy(part).to(device) for part in (paths.nodes, paths.log_q, paths.log_q_targets))
    )
