"""Negatives of a node in a tree with leaves at any depth: its siblings first, then others of its level.

Shape legend: V nodes, X targets, S siblings at most, K negatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["siblings_first"]


def siblings_first(
    targets_X: Tensor,
    siblings_VS: Tensor,
    parents_V: Tensor,
    level: tuple[int, int],
    num_negatives: int,
    generator: torch.Generator,
) -> Tensor:
    """Nodes int64[X, K], the siblings of each target and then draws of its level, K in all; -1 for none.

    Of more than K siblings a random K are taken. `siblings_VS`: -1 behind the last. `level`: the first of its nodes,
    and the first behind it. Draws are uniform, with replacement; a draw that is the target or a sibling becomes -1.
    Source: JTR.
    """
    nodes = torch.randint(level[0], level[1], (len(targets_X), num_negatives), generator=generator).to(parents_V.device)
    nodes = nodes.masked_fill(parents_V[nodes] == parents_V[targets_X][:, None], -1)
    own = siblings_VS[targets_X]
    if own.shape[1] > num_negatives:
        keys = torch.rand(own.shape, generator=generator).to(own.device).masked_fill(own < 0, 1.0)
        own = own.gather(1, keys.argsort(dim=1, stable=True)[:, :num_negatives])
    first = nodes[:, : own.shape[1]]
    nodes[:, : own.shape[1]] = torch.where(own >= 0, own, first)
    return nodes
