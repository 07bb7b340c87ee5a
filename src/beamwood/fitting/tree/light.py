"""The light head of a fitted tree, distilled from its scorer on the nodes that searches visit.

Shape legend: B histories, L history length, H levels, M nodes a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import LightHead
from beamwood.kernels.search import DinSearch
from beamwood.kernels.steering import Visited
from beamwood.kernels.terms import TermQuery
from beamwood.models.light_head import LightModule
from beamwood.training.budget import Budget, Clock
from beamwood.training.lazy_adam import LazyAdam
from beamwood.training.loop_config import LAZY_FROM
from beamwood.training.schedule import Schedule
from beamwood.tree import Tree

__all__ = ["Distillation", "LearningCost", "epochs_of"]

_BATCH, _RATE = 64, 3e-3
# The beam widths of the scorer's own search, and of the head's.
_BEAM, _STEERED_BEAM = 100, 300
# The nodes of a level's candidates that are learned from, half of them the best.
_MOST = 512
# The share of training after which the candidates of the head's own beam are added to those of the scorer's.
_SHARE_OF_OWN = 0.4
# Histories of all steps in either part, counted with repeats, and the most epochs. A head has a vector for every node:
# more histories teach it more than more epochs, as far as there are enough.
_STEPS, _EPOCHS = (13_500, 31_500), (4, 5)
# Shares of the budget at which the first lesson, learning from it, and the second lesson end at the latest.
_LOOKING, _FIRST, _BOTH = 0.35, 0.6, 0.75
_AT_A_TIME = 256


def epochs_of(num: int) -> tuple[int, int]:
    """The epochs over the first part of `num` histories, and then over all of them."""
    counts = (1 - _SHARE_OF_OWN) * num, num
    first, both = (
        min(most, max(1, round(steps / max(count, 1))))
        for steps, count, most in zip(_STEPS, counts, _EPOCHS, strict=True)
    )
    return first, both


@dataclass(frozen=True)
class LearningCost:
    """The seconds of one history: to search its nodes, and to learn from them once."""

    looking: float
    step: float

    def of(self, num: int) -> float:
        """The seconds of learning from `num` histories."""
        first, both = epochs_of(num)
        return num * (self.looking + self.step * ((1 - _SHARE_OF_OWN) * first + both))


@dataclass(frozen=True)
class Lesson:
    """The candidates of a beam for the histories `leaves` int64[B, L], and their sparse terms, [B, H, M]."""

    leaves: NDArray[np.int64]
    seen: Visited
    added: NDArray[np.float32]

    def batch(self, rows: NDArray[np.int64]) -> Lesson:
        """The lesson of some histories."""
        nodes, scores, weights = self.seen
        return Lesson(self.leaves[rows], Visited(nodes[rows], scores[rows], weights[rows]), self.added[rows])

    @classmethod
    def joined(cls, parts: Sequence[Lesson]) -> Lesson:
        """The lessons concatenated."""
        nodes, scores, weights = (np.concatenate(arrays) for arrays in zip(*(one.seen for one in parts), strict=True))
        seen = Visited(nodes, scores, weights)
        return cls(np.concatenate([one.leaves for one in parts]), seen, np.concatenate([one.added for one in parts]))


@dataclass
class Steps:
    """The progress of a training, by steps or by its budget, whichever is further; its learning rate falls to 0."""

    number: int
    budget: Budget
    done: int = 0

    def rate(self) -> float:
        """The learning rate of the current step."""
        self.done += 1
        over = self.budget.seconds / self.budget.limit if self.budget.limited else 0.0
        at = min(max(self.done, int(over * self.number)), self.number)
        schedule = Schedule(kind="cosine", warmup_steps=self.number // 5)
        return schedule.learning_rate(max(at, 1), _RATE, self.number)


class Distillation:
    """A light head of `width` columns for a fitted scorer on its tree, learned from histories given as leaves.

    It learns the scorer's softmax over the scorer's candidates on each level (KL divergence). In the last rounds it
    also learns on its own beam's candidates, on which it will be used.
    """

    def __init__(self, weights: DinWeights, tree: Tree, *, width: int, seed: int, threads: int = 1) -> None:
        self.weights, self.tree, self.seed, self.threads = replace(weights, light=None), tree, seed, threads
        self.budget = Budget()
        self.generator = torch.Generator().manual_seed(seed)
        self.rng = np.random.default_rng(seed)
        shape = tree.shape
        self.module = LightModule(
            shape,
            weights.history_length,
            width,
            generator=self.generator,
            sparse=shape.num_nodes >= LAZY_FROM,
        )
        similar = weights.terms.get("similarity")
        if similar is not None:
            self.module.start(similar.arrays["vectors"], similar.arrays["places"])

    def learn(self, leaves_BL: NDArray[np.int32], budget: Budget | None = None) -> LightHead:
        """The head learned from these histories, or from as many as fit the budget."""
        self.budget, own = budget or Budget(), int(_SHARE_OF_OWN * len(leaves_BL))
        first = self.lesson(leaves_BL[own:], until=_LOOKING)
        epochs = epochs_of(len(leaves_BL))
        each = epochs[0] * -(-len(first.leaves) // _BATCH), epochs[1] * -(-len(leaves_BL) // _BATCH)
        pace, optimizer = Steps(sum(each), self.budget), LazyAdam(self.module.parameters(), lr=_RATE)
        self._train(first, epochs[0], optimizer, pace, until=_FIRST)
        pace.done = max(pace.done, each[0])
        both = first
        if own:
            both = Lesson.joined([first, self.lesson(leaves_BL[:own], by=self.module.export(), until=_BOTH)])
        self._train(both, epochs[1], optimizer, pace, until=1.0)
        return self.module.export()

    def cost(self, leaves_BL: NDArray[np.int32], clock: Clock) -> LearningCost:
        """The cost of learning, measured on these few histories; the head is restored."""
        state = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        self.lesson(leaves_BL[:2])
        began = clock()
        lesson = self.lesson(leaves_BL)
        looked = (clock() - began) / len(leaves_BL)
        optimizer = LazyAdam(self.module.parameters(), lr=0.0)
        self._step(lesson, optimizer)
        began = clock()
        self._step(lesson, optimizer)
        step = (clock() - began) / len(leaves_BL)
        self.module.load_state_dict(state)
        return LearningCost(looked, step)

    def lesson(self, leaves_BL: NDArray[np.int32], by: LightHead | None = None, *, until: float = 1.0) -> Lesson:
        """The candidates of the scorer's beam, or of a head's, for at least the first histories, and for more until
        that share of the budget is used.
        """
        search = DinSearch(replace(self.weights, light=by), self.tree.shape, threads=self.threads)
        parts: list[Lesson] = []
        for at in range(0, max(len(leaves_BL), 1), _AT_A_TIME):
            if parts and self._is_over(until):
                break
            parts.append(self._lesson(search, leaves_BL[at : at + _AT_A_TIME], steered=by is not None))
        return Lesson.joined(parts)

    def _is_over(self, share: float) -> bool:
        return self.budget.limited and self.budget.seconds > share * self.budget.limit

    def _lesson(self, search: DinSearch, leaves_BL: NDArray[np.int32], *, steered: bool) -> Lesson:
        seen = search.visit(
            leaves_BL,
            beam_width=_STEERED_BEAM if steered else _BEAM,
            steered=steered,
            most=_MOST,
            offsets=self.rng.random(len(leaves_BL)),
            live=self.tree.live_counts,
        )
        return Lesson(leaves_BL.astype(np.int64), seen, self._added(leaves_BL, seen.nodes))

    def _added(self, leaves_BL: NDArray[np.int32], nodes_BHM: NDArray[np.int32]) -> NDArray[np.float32]:
        """float32[B, H, M], the sparse terms of the nodes."""
        shape, added = self.tree.shape, np.zeros(nodes_BHM.shape, np.float32)
        for part in self.weights.terms.values():
            for level in range(1, shape.depth + 1):
                if part.term.sparse and (level == shape.depth or not part.term.leaves_only):
                    query = TermQuery(shape, level, leaves_BL, np.maximum(nodes_BHM[:, level - 1], 0))
                    added[:, level - 1] += part.score(query)
        return added

    def _train(self, lesson: Lesson, epochs: int, optimizer: LazyAdam, pace: Steps, *, until: float) -> None:
        for _ in range(epochs):
            order = self.rng.permutation(len(lesson.leaves))
            for start in range(0, len(order), _BATCH):
                if self._is_over(until):
                    return
                optimizer.param_groups[0]["lr"] = pace.rate()
                self._step(lesson.batch(order[start : start + _BATCH]), optimizer)

    def _step(self, lesson: Lesson, optimizer: LazyAdam) -> float:
        self.module.zero_grad()
        loss = self.divergence(lesson)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    def divergence(self, lesson: Lesson) -> Tensor:
        """The KL divergence of the head's softmax from the scorer's: summed over levels, mean over histories."""
        leaves, total = torch.from_numpy(lesson.leaves), torch.zeros(())
        for level in range(1, self.tree.shape.depth + 1):
            nodes = torch.from_numpy(lesson.seen.nodes[:, level - 1].astype(np.int64))
            scores, weights = (torch.from_numpy(part[:, level - 1]) for part in lesson.seen[1:])
            absent = nodes < 0
            target = torch.log_softmax((scores + weights).masked_fill(absent, -torch.inf), dim=1)
            own = self.module(leaves, level, nodes) + torch.from_numpy(lesson.added[:, level - 1]) + weights
            own = torch.log_softmax(own.masked_fill(absent, -torch.inf), dim=1)
            p = target.exp()
            # Where p is 0 the product is 0, whatever the logarithms.
            gap = torch.where(p > 0, target - own, torch.zeros(()))
            total = total + (p * gap).sum(dim=1).mean()
        return total
