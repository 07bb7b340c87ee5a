"""Learn a tree from a trained scorer: each item goes where its training instances have the highest likelihood.

Shape legend: I instances, B instances scored at once, L history length, c candidates of a parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from beamwood.blocks import evenly, slices
from beamwood.errors import InputError
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.ragged import ranges
from beamwood.training.budget import Budget
from beamwood.tree import Tree
from beamwood.tree.assign import assign, level_passes, num_candidates
from beamwood.types import FloatArray, IndexArray

__all__ = ["TreeLearner", "capped_instances"]

# Nodes scored at once: rows of a call times candidates.
CALL_NODES = 32768


def capped_instances(targets_I: IndexArray, max_instances: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ascending positions of at most `max_instances` random instances of each item. Errors: `max_instances` below 1."""
    if max_instances < 1:
        raise InputError(f"max_instances={max_instances} is below 1")
    order = rng.permutation(len(targets_I))
    order = order[np.argsort(targets_I[order], kind="stable")]
    ordered = targets_I[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    kept: NDArray[np.int64] = np.sort(order[rank < max_instances])
    return kept


class TreeLearner:
    """Learns a tree in which each item is placed where the fixed scorer gives its instances the highest likelihood.

    `targets_I`: item of each instance; `histories(rows)` returns the item indices [B, L] of instances, -1 padding on
    the left. "softmax": `Score(y, n) = sum over instances of y of log softmax over the c candidates` (DTR, equation
    30); "binary": the sum of log sigmoid along the path from the parent to n (JTM, equation 7). Histories use the
    leaves of `tree` throughout; candidates are the nodes with capacity in the new one, also where the old one was
    empty. `folds_I`: the folds excluded from each instance's scores, as in training. Errors: an item outside the tree.
    """

    def __init__(
        self,
        scorer: DinScorer,
        tree: Tree,
        targets_I: IndexArray,
        histories: Callable[[NDArray[np.int64]], NDArray[np.int32]],
        *,
        stride: int = 7,
        likelihood: Literal["softmax", "binary"] = "softmax",
        folds_I: IndexArray | None = None,
    ) -> None:
        if targets_I.ndim != 1 or (len(targets_I) and not 0 <= targets_I.min() <= targets_I.max() < tree.num_items):
            raise InputError(f"targets_I has shape {targets_I.shape}; expected items in 0..{tree.num_items - 1}")
        self.scorer, self.tree, self.targets_I, self.histories = scorer, tree, targets_I, histories
        self.stride, self.likelihood, self.folds_I = stride, likelihood, folds_I
        # `assign` fills each node up to its capacity in this tree.
        self.even = Tree.of_order(np.arange(tree.num_items), tree.shape)
        self.device = scorer.nodes.weight.device

    def learn(self, num_instances: IndexArray, budget: Budget) -> Tree | None:
        """The new tree, None where `budget` runs out.

        `num_instances`: the frequency of each item, by which `tree.assign` decides who is displaced. The instances
        here do not distinguish frequent items where they are capped.
        """
        tree, by_item = self.tree, np.argsort(self.targets_I, kind="stable")
        starts = np.searchsorted(self.targets_I[by_item], np.arange(tree.num_items + 1))

        def score(
            items: NDArray[np.int32], parents: NDArray[np.int64], level: int, next_level: int
        ) -> NDArray[np.float64]:
            count = num_candidates(tree.shape, level, next_level)
            lengths = starts[items + 1] - starts[items]
            row_of = np.repeat(np.arange(len(items)), lengths)
            instances = by_item[ranges(starts[items], lengths)]
            total = np.zeros((len(items), count))
            for part in slices(len(instances), CALL_NODES // count):
                if budget.left <= 0:
                    raise _OutOfTime
                rows = row_of[part]
                values = self._likelihoods(instances[part], parents[rows], (level, next_level))
                # Instances are grouped by item, so an item's sum is over consecutive rows.
                heads = np.flatnonzero(np.diff(rows, prepend=-1))
                total[rows[heads]] += np.add.reduceat(values, heads, axis=0)
            return total

        try:
            return assign(tree, score, num_instances=num_instances, stride=self.stride)
        except _OutOfTime:
            return None

    def estimate(self) -> float:
        """The estimated seconds of `learn`, from the time of a few scores on each level."""
        tree, targets_I, total = self.tree, self.targets_I, 0.0
        for levels in level_passes(tree.shape, self.stride):
            count = num_candidates(tree.shape, *levels)
            sample = evenly(len(targets_I), max(1, CALL_NODES // count // 4))
            parents = tree.shape.ancestors(tree.leaf_of_item[targets_I[sample]].astype(np.int64), levels[0])
            self._likelihoods(sample[:8], parents[:8], levels)  # the first call of its kind is slower
            started = time.perf_counter()
            self._likelihoods(sample, parents, levels)
            total += (time.perf_counter() - started) * len(targets_I) / len(sample)
        return total

    def _likelihoods(
        self, instances_B: NDArray[np.int64], parents_B: IndexArray, levels: tuple[int, int]
    ) -> FloatArray:
        """float64[B, c], the log-likelihood of each instance for each candidate; -inf for one without capacity."""
        level, next_level = levels
        leaves_BL = self._tensor(self.tree.leaves_of(self.histories(instances_B)).astype(np.int64))
        parents, folds = self._tensor(parents_B), None
        if self.folds_I is not None:
            folds = self._tensor(self.folds_I[instances_B])

        def scores(at: int) -> Tensor:
            count = num_candidates(self.even.shape, level, at)
            nodes = None
            if level > 0:
                nodes = parents[:, None] * count + torch.arange(count, device=self.device)
            live = self._tensor(self.even.live_counts[at] > 0)
            values = self.scorer.evaluate(leaves_BL, LevelNodes(at, nodes), folds).double()
            return values.masked_fill(~(live if nodes is None else live[nodes]), -torch.inf)

        if self.likelihood == "softmax":
            result = torch.log_softmax(scores(next_level), dim=1)
        else:
            size = num_candidates(self.even.shape, level, next_level)
            result = torch.zeros(len(leaves_BL), size, dtype=torch.float64, device=self.device)
            for at in range(level + 1, next_level + 1):
                step = functional.logsigmoid(scores(at))
                result = result + step.repeat_interleave(size // step.shape[1], dim=1)
        values: FloatArray = result.cpu().numpy()
        return values

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


class _OutOfTime(Exception):
    """The budget ran out before the tree was learned."""
