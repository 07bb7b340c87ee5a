"""DTR with negatives drawn by popularity: the interaction counts of the items below a node.

Shape legend: B histories, T targets a history, M draws a row, N items, n nodes of a level.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from beamwood.losses.levels import LevelDraw
from beamwood.methods.dtr import METHOD as DTR


@dataclass(frozen=True)
class Popular:
    """`num_negatives` draws per level, with replacement; `counts_N`: interactions of each item."""

    counts_N: np.ndarray
    num_negatives: int

    def __call__(self, scorer, tree, histories, targets_BT, generator):
        taken = np.zeros(tree.shape.capacity)
        taken[tree.leaf_of_item] = self.counts_N + 1
        return [self.draw(level, taken, tree.shape, targets_BT, generator) for level in range(1, tree.shape.depth + 1)]

    def draw(self, level, taken, shape, targets_BT, generator):
        if shape.level_size(level) <= self.num_negatives + 1:
            return LevelDraw(level, None)
        q_n = torch.from_numpy(taken.reshape(shape.level_size(level), -1).sum(axis=1) / taken.sum())
        size = len(targets_BT), self.num_negatives
        nodes_BM = torch.multinomial(q_n, size[0] * size[1], replacement=True, generator=generator).view(size)
        log_q_n = q_n.log().float()
        return LevelDraw(level, nodes_BM, log_q_n[nodes_BM], log_q_n[targets_BT // shape.leaves_below(level)])


def fit(split, config, **options):
    return DTR.fit(split, config, sampler=Popular(split.train.item_counts, 70), **options)


METHOD = replace(DTR, name="dtr-popular", fit=fit)
