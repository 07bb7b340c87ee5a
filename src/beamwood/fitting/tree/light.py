"""The light head of a fitted tree: it is distilled from the scorer, on the nodes that searches visit.

Shape legend: B histories, L history length, H levels, M nodes a level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from beamwood.errors import InputError
from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import LightHead
from beamwood.kernels.search import DinSearch
from beamwood.kernels.steering import Visited
from beamwood.kernels.terms import TermQuery
from beamwood.models.light_head import LightModule
from beamwood.steps import Step, step
from beamwood.training.budget import Budget, Clock
from beamwood.training.lazy_adam import LazyAdam
from beamwood.training.loop_config import LAZY_FROM
from beamwood.training.schedule import Schedule
from beamwood.training.step import NonFiniteError, train_step
from beamwood.tree import Tree
from beamwood.words import followed

__all__ = ["Distillation", "LearningCost", "epochs_of"]

_BATCH, _RATE = 64, 3e-3
# The beam widths of the scorer's own search, and of the head's.
_BEAM, _STEERED_BEAM = 100, 300
# The most candidates of a level that are learned from, half of them the best.
_MAX_NODES = 512
# The share of the histories whose candidates are found by the head's own beam, in the second part of training.
_OWN_SHARE = 0.4
# Histories in all steps of the two parts of training, counted with repeats, and the most epochs of each. A head has a
# vector for every node, so it learns more from further histories than from further epochs.
_STEPS, _EPOCHS = (13_500, 31_500), (4, 5)
# Shares of the budget at which the first targets, training on them, and the second targets end at the latest.
_FIRST_TARGETS, _FIRST_TRAINING, _SECOND_TARGETS = 0.35, 0.6, 0.75
_AT_A_TIME = 256


def epochs_of(num: int) -> tuple[int, int]:
    """The epochs of the two parts of training on `num` histories."""
    counts = (1 - _OWN_SHARE) * num, num
    first, both = (
        min(most, max(1, round(steps / max(count, 1))))
        for steps, count, most in zip(_STEPS, counts, _EPOCHS, strict=True)
    )
    return first, both


@dataclass(frozen=True)
class LearningCost:
    """The seconds of one history: of its targets, which is a search, and of one training step on them."""

    targets: float
    step: float

    def of(self, num: int) -> float:
        """The seconds of `Distillation.learn` on `num` histories."""
        first, both = epochs_of(num)
        return num * (self.targets + self.step * ((1 - _OWN_SHARE) * first + both))


@dataclass(frozen=True)
class DistillationTargets:
    """What the head learns: for histories `leaves` int64[B, L], the scorer's scores of the candidates of a beam.

    `terms` float32[B, H, M]: the sparse terms of the candidates, which are added to the head's scores too.
    """

    leaves: NDArray[np.int64]
    visited: Visited
    terms: NDArray[np.float32]

    def batch(self, rows: NDArray[np.int64]) -> DistillationTargets:
        """The targets of some of the histories."""
        nodes, scores, weights = self.visited
        return DistillationTargets(
            self.leaves[rows], Visited(nodes[rows], scores[rows], weights[rows]), self.terms[rows]
        )

    @classmethod
    def joined(cls, parts: Sequence[DistillationTargets]) -> DistillationTargets:
        """All parts as one."""
        visited = Visited(*(np.concatenate(arrays) for arrays in zip(*(part.visited for part in parts), strict=True)))
        leaves, terms = (np.concatenate(arrays) for arrays in zip(*((p.leaves, p.terms) for p in parts), strict=True))
        return cls(leaves, visited, terms)


@dataclass
class CosineSteps:
    """A cosine learning rate over `number` steps; with a limited budget it falls by the clock where that is ahead."""

    number: int
    budget: Budget
    done: int = 0

    def next_rate(self) -> float:
        """Count one more step, and return its learning rate."""
        self.done += 1
        over = self.budget.seconds / self.budget.limit if self.budget.limited else 0.0
        at = min(max(self.done, int(over * self.number)), self.number)
        schedule = Schedule(kind="cosine", warmup_steps=self.number // 5)
        return schedule.learning_rate(max(at, 1), _RATE, self.number)


class Distillation:
    """Trains a light head of `width` columns for a fitted scorer and its tree, on histories given as leaves.

    On each level it learns the scorer's softmax over the candidates of the scorer's beam (KL divergence). The second
    part of training adds the candidates of the head's own beam, which are those that it has to rank in searches.
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
        self.budget, own = budget or Budget(), int(_OWN_SHARE * len(leaves_BL))
        epochs = epochs_of(len(leaves_BL))
        with step("training the light head", epochs[0] * (len(leaves_BL) - own) + epochs[1] * len(leaves_BL)) as shown:
            return self._learned(leaves_BL, own, epochs, shown)

    def _learned(self, leaves_BL: NDArray[np.int32], own: int, epochs: tuple[int, int], shown: Step) -> LightHead:
        first = self.targets(leaves_BL[own:], until=_FIRST_TARGETS)
        each = epochs[0] * -(-len(first.leaves) // _BATCH), epochs[1] * -(-len(leaves_BL) // _BATCH)
        schedule, optimizer = CosineSteps(sum(each), self.budget), LazyAdam(self.module.parameters(), lr=_RATE)
        self._train(first, epochs[0], optimizer, schedule, shown, until=_FIRST_TRAINING)
        schedule.done = max(schedule.done, each[0])
        both = first
        if own:
            both = DistillationTargets.joined(
                [first, self.targets(leaves_BL[:own], by=self.module.export(), until=_SECOND_TARGETS)]
            )
        self._train(both, epochs[1], optimizer, schedule, shown, until=1.0)
        return self.module.export()

    def cost(self, leaves_BL: NDArray[np.int32], clock: Clock) -> LearningCost:
        """The cost of learning, measured on these few histories; it does not change the head."""
        state = {name: tensor.clone() for name, tensor in self.module.state_dict().items()}
        self.targets(leaves_BL[:2])
        began = clock()
        targets = self.targets(leaves_BL)
        of_targets = (clock() - began) / len(leaves_BL)
        optimizer = LazyAdam(self.module.parameters(), lr=0.0)
        self._step(targets, optimizer)
        began = clock()
        self._step(targets, optimizer)
        of_step = (clock() - began) / len(leaves_BL)
        self.module.load_state_dict(state)
        return LearningCost(of_targets, of_step)

    def targets(
        self, leaves_BL: NDArray[np.int32], by: LightHead | None = None, *, until: float = 1.0
    ) -> DistillationTargets:
        """The targets of the scorer's beam, or of the beam of the head `by`.

        Of at least the first histories, and of more until the share `until` of the budget is used.
        """
        search = DinSearch(replace(self.weights, light=by), self.tree.shape, threads=self.threads)
        parts: list[DistillationTargets] = []
        for at in range(0, max(len(leaves_BL), 1), _AT_A_TIME):
            if parts and self._is_over(until):
                break
            parts.append(self._visit(search, leaves_BL[at : at + _AT_A_TIME], steered=by is not None))
        return DistillationTargets.joined(parts)

    def _is_over(self, share: float) -> bool:
        return self.budget.limited and self.budget.seconds > share * self.budget.limit

    def _visit(self, search: DinSearch, leaves_BL: NDArray[np.int32], *, steered: bool) -> DistillationTargets:
        visited = search.visit(
            leaves_BL,
            beam_width=_STEERED_BEAM if steered else _BEAM,
            steered=steered,
            most=_MAX_NODES,
            offsets=self.rng.random(len(leaves_BL)),
            live=self.tree.live_counts,
        )
        return DistillationTargets(leaves_BL.astype(np.int64), visited, self._sparse_terms(leaves_BL, visited.nodes))

    def _sparse_terms(self, leaves_BL: NDArray[np.int32], nodes_BHM: NDArray[np.int32]) -> NDArray[np.float32]:
        """float32[B, H, M], the sparse terms of the nodes."""
        shape, total = self.tree.shape, np.zeros(nodes_BHM.shape, np.float32)
        for part in self.weights.terms.values():
            for level in range(1, shape.depth + 1):
                if part.term.sparse and (level == shape.depth or not part.term.leaves_only):
                    query = TermQuery(shape, level, leaves_BL, np.maximum(nodes_BHM[:, level - 1], 0))
                    total[:, level - 1] += part.score(query)
        return total

    def _train(
        self,
        targets: DistillationTargets,
        epochs: int,
        optimizer: LazyAdam,
        schedule: CosineSteps,
        shown: Step,
        *,
        until: float,
    ) -> None:
        for _ in range(epochs):
            order = self.rng.permutation(len(targets.leaves))
            for start in range(0, len(order), _BATCH):
                if self._is_over(until):
                    return
                optimizer.param_groups[0]["lr"] = schedule.next_rate()
                self._step(targets.batch(order[start : start + _BATCH]), optimizer, schedule.done)
                shown.advance(min(_BATCH, len(order) - start))

    def _step(self, targets: DistillationTargets, optimizer: LazyAdam, number: int = 0) -> None:
        """Errors: `InputError` before an update that is not finite."""
        try:
            train_step(lambda: self.divergence(targets), self.module, [optimizer], step=number)
        except NonFiniteError as error:
            raise InputError(
                f"the light head: {followed(str(error), 'or fit no head: set model.light_width=0')}"
            ) from None

    def divergence(self, targets: DistillationTargets) -> Tensor:
        """The KL divergence of the head's softmax from the scorer's: summed over levels, mean over histories."""
        leaves, total = torch.from_numpy(targets.leaves), torch.zeros(())
        for level in range(1, self.tree.shape.depth + 1):
            nodes = torch.from_numpy(targets.visited.nodes[:, level - 1].astype(np.int64))
            scores, weights = (torch.from_numpy(part[:, level - 1]) for part in targets.visited[1:])
            absent = nodes < 0
            target = torch.log_softmax((scores + weights).masked_fill(absent, -torch.inf), dim=1)
            own = self.module(leaves, level, nodes) + torch.from_numpy(targets.terms[:, level - 1]) + weights
            own = torch.log_softmax(own.masked_fill(absent, -torch.inf), dim=1)
            p = target.exp()
            # Where p is 0 the product is 0, whatever the logarithms.
            gap = torch.where(p > 0, target - own, torch.zeros(()))
            total = total + (p * gap).sum(dim=1).mean()
        return total
