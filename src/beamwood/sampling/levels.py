"""Samplers of a tree's levels: the nodes that each level of a step is trained on besides the targets.

Shape legend: B histories, L history length, T targets a history, M draws a row, H levels, K branching.

A sampler is called with (scorer, tree, histories, targets_BT as leaves, generator) and returns one `LevelDraw` a level,
level 1 first. A small level is not sampled: its draw has all of its nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from beamwood.losses.levels import LevelDraw
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.sampling.tree import tree_negatives
from beamwood.sampling.uniform import uniform_negatives
from beamwood.tree import Tree

__all__ = [
    "BeamCandidates",
    "DistinctNegatives",
    "LeafHistories",
    "LevelSampler",
    "Siblings",
    "TreeNegativesByLevel",
    "UniformByLevel",
    "are_live",
    "live_mask",
]


@dataclass(frozen=True, slots=True)
class LeafHistories:
    """The histories of a batch: `leaves` int64[B, L], -1 absent, and `folds` int64[B], see `DinScorer.forward`."""

    leaves: Tensor
    folds: Tensor | None = None


class LevelSampler(Protocol):
    """Draws nodes on every level for a batch."""

    def __call__(
        self, scorer: DinScorer, tree: Tree, histories: LeafHistories, targets_BT: Tensor, generator: torch.Generator
    ) -> list[LevelDraw]: ...


@dataclass(frozen=True, slots=True)
class UniformByLevel:
    """`counts[level - 1]` draws a level, uniform with replacement; a level of at most that many + 1 is taken whole.

    Source: DTR, section 4.3.2.
    """

    counts: Sequence[int]

    def __call__(
        self, scorer: DinScorer, tree: Tree, histories: LeafHistories, targets_BT: Tensor, generator: torch.Generator
    ) -> list[LevelDraw]:
        draws = []
        for level, count in enumerate(self.counts, start=1):
            if tree.shape.level_size(level) <= count + 1:
                draws.append(LevelDraw(level, None))
                continue
            nodes, log_q = uniform_negatives(len(targets_BT), count, _live_nodes(tree, level), generator)
            draws.append(LevelDraw(level, nodes, log_q, log_q[:, :1].expand(-1, targets_BT.shape[1])))
        return draws


@dataclass(frozen=True, slots=True)
class TreeNegativesByLevel:
    """`count` walks from the root by the scorer's own softmax over siblings; small levels are taken whole.

    Source: DTR, section 4.3.2.
    """

    count: int

    def __call__(
        self, scorer: DinScorer, tree: Tree, histories: LeafHistories, targets_BT: Tensor, generator: torch.Generator
    ) -> list[LevelDraw]:
        found = tree_negatives(
            scorer, histories.leaves, targets_BT, tree.live_counts, self.count, generator, histories.folds
        )
        draws = []
        for level in range(1, tree.shape.depth + 1):
            if tree.shape.level_size(level) <= self.count + 1:
                draws.append(LevelDraw(level, None))
            else:
                at = level - 1
                draws.append(LevelDraw(level, found.nodes[at], found.log_q[at], found.log_q_targets[at]))
        return draws


@dataclass(frozen=True, slots=True)
class DistinctNegatives:
    """`counts[level - 1]` different nodes a level, uniform without replacement among those that are no target.

    Source: TDM, section 3.2; JTM.
    """

    counts: Sequence[int]

    def __call__(
        self, scorer: DinScorer, tree: Tree, histories: LeafHistories, targets_BT: Tensor, generator: torch.Generator
    ) -> list[LevelDraw]:
        draws = []
        for level, count in enumerate(self.counts, start=1):
            candidates = _live_nodes(tree, level)
            size = candidates if isinstance(candidates, int) else len(candidates)
            if count == 0:
                draws.append(LevelDraw(level, torch.empty((len(targets_BT), 0), dtype=torch.int64)))
            elif size <= count + targets_BT.shape[1]:
                draws.append(LevelDraw(level, None))
            else:
                own_BT = (targets_BT // tree.shape.leaves_below(level)).cpu()
                places_BT = own_BT if isinstance(candidates, int) else torch.searchsorted(candidates, own_BT)
                picks = distinct(places_BT, count, size, generator)
                draws.append(LevelDraw(level, picks if isinstance(candidates, int) else candidates[picks]))
        return draws


@dataclass(frozen=True, slots=True)
class Siblings:
    """The siblings of each target's ancestors, T * (K - 1) a level (T * (R - 1) on level 1), each target on its own.

    The frequency of a step is that among the targets below its parent, so a sibling is a negative of this target
    even above another one. Source: PLT.
    """

    def __call__(
        self, scorer: DinScorer, tree: Tree, histories: LeafHistories, targets_BT: Tensor, generator: torch.Generator
    ) -> list[LevelDraw]:
        shape, draws = tree.shape, [LevelDraw(1, None, targets_apart=True)]
        for level in range(2, shape.depth + 1):
            fanout, own_BT = shape.branching, targets_BT // shape.leaves_below(level)
            steps = torch.arange(1, fanout, device=targets_BT.device)
            nodes_BTS = own_BT[:, :, None] // fanout * fanout + (own_BT[:, :, None] + steps) % fanout
            nodes = nodes_BTS.flatten(1)
            real = are_live(tree, level, nodes)
            draws.append(LevelDraw(level, nodes, real=real, targets_apart=True))
        return draws


@dataclass(frozen=True, slots=True)
class BeamCandidates:
    """The children of a beam of `width` nodes under the scorer as it is now: what a search would compare.

    Targets count only where the beam reaches them. Source: OTM, section 4.
    """

    width: int

    def __call__(
        self, scorer: DinScorer, tree: Tree, histories: LeafHistories, targets_BT: Tensor, generator: torch.Generator
    ) -> list[LevelDraw]:
        shape, device, draws = tree.shape, targets_BT.device, []
        beam = torch.zeros((len(targets_BT), 1), dtype=torch.int64, device=device)
        for level in range(1, shape.depth + 1):
            fanout = shape.fanout(level)
            nodes = (beam[:, :, None] * fanout + torch.arange(fanout, device=device)).flatten(1)
            real = are_live(tree, level, nodes)
            draws.append(LevelDraw(level, nodes, real=real, targets_included=True))
            if nodes.shape[1] <= self.width or level == shape.depth:
                beam = nodes
                continue
            scores = scorer.evaluate(histories.leaves, LevelNodes(level, nodes), histories.folds)
            # Nodes ascend, so a stable order gives ties to the lower one, as a search does; topk gives them to any.
            order = torch.argsort(scores.masked_fill(~real, -torch.inf), dim=1, descending=True, stable=True)
            best = order[:, : self.width]
            beam = torch.sort(torch.gather(nodes, 1, best), dim=1).values
        return draws


def live_mask(tree: Tree, level: int) -> Tensor:
    """bool[nodes of the level]: whether there is an item below the node."""
    return torch.from_numpy(tree.live_counts[level] > 0)


def are_live(tree: Tree, level: int, nodes: Tensor) -> Tensor:
    """bool, of the shape and on the device of `nodes`: whether there is an item below each of these of the level."""
    return (torch.from_numpy(tree.live_counts[level])[nodes.cpu()] > 0).to(nodes.device)


def _live_nodes(tree: Tree, level: int) -> Tensor | int:
    """The nodes of a level with an item below: their numbers, or only their count where all nodes have one."""
    nodes = tree.live_nodes(level)
    return tree.shape.level_size(level) if nodes is None else torch.from_numpy(nodes)


def first_of_each(nodes_BM: Tensor) -> Tensor:
    """bool[B, M]: False where the same node occurs earlier in its row."""
    order = torch.argsort(nodes_BM, dim=1, stable=True)
    ordered = torch.gather(nodes_BM, 1, order)
    repeated = torch.zeros_like(nodes_BM, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.empty_like(repeated).scatter_(1, order, ~repeated)


def distinct(without_BT: Tensor, count: int, size: int, generator: torch.Generator) -> Tensor:
    """int64[B, count] different numbers of 0..size-1 in each row, none `without`, every such set equally likely."""
    # Where draws would often repeat, or the numbers are few, a random key for each is cheaper than rejection.
    if size <= 4 * count or size <= 64:
        keys = torch.rand((len(without_BT), size), generator=generator).scatter_(1, without_BT, -1.0)
        return torch.topk(keys, count, dim=1).indices
    picks = torch.randint(size, (len(without_BT), count), generator=generator)
    # Rejected draws are drawn again, which amounts to drawing without replacement.
    while True:
        repeated = ~first_of_each(torch.cat([without_BT, picks], dim=1))[:, without_BT.shape[1] :]
        missing = int(repeated.sum())
        if missing == 0:
            return picks
        picks[repeated] = torch.randint(size, (missing,), generator=generator)
