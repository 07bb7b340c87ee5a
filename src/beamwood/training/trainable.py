"""The input of the training loop: a model, its examples, and the loss of a batch.

The loop owns the generator of all draws, the optimisers, the clock and the checkpoints. A method defines `model`,
`num_examples`, `batch` and `loss`; everything else has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.training.budget import Budget, Clock
from beamwood.training.device import PROCESSOR, moved
from beamwood.training.optimisers import Optimiser, Optimisers
from beamwood.training.step import StepResult, train_step

__all__ = ["Progress", "Stepper", "Trainable", "Update"]

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Progress:
    """The position of a run: `step` updates are done, and that `fraction` of it is over (by the clock under a
    limit).
    """

    step: int = 0
    fraction: float = 0.0


class Trainable(ABC, Generic[Batch]):
    """A model, its examples, and its loss. Invalid input is refused in `__init__`, before long work."""

    model: nn.Module
    """The trained model; its weights are stored in checkpoints, and the best of them at the end."""
    num_examples: int
    """The number of examples in an epoch."""
    update: Update | None = None
    """A part that is updated separately: a tree."""
    takes_parts: bool = True
    """Whether a step can process a batch in parts."""
    takes_gpu: bool = True
    """Whether a step can run on a GPU. The tensors created by its loss are then on the batch's device."""

    def least(self, clock: Clock) -> float:
        """An estimate of the least seconds of a run, besides those that `prepare` requires of `budget`; 0: unknown.

        Called under a time limit, before `prepare`; it must be fast.
        """
        del clock
        return 0.0

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Build the model with its initial weights, and do other long work; `model` and `num_examples` are valid
        afterwards.

        Work that does not fit `budget` is reduced or skipped, and recorded by `budget.leave_out`.
        """

    def optimisers(self) -> Sequence[Optimiser]:
        """The optimisers of the parameters; by default Adam over all at the run's learning rate."""
        return [Optimiser.over(self.model.parameters())]

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], rng: torch.Generator, progress: Progress) -> Batch:
        """The batch of the given examples."""

    def draw(self, batch: Batch, rng: torch.Generator) -> Batch:
        """The batch with the current model's draws or labels; without gradients."""
        del rng
        return batch

    @abstractmethod
    def loss(self, batch: Batch, rng: torch.Generator) -> Tensor:
        """One value an example, or their mean."""

    def step(
        self,
        batches: Iterable[Batch],
        shares: Sequence[float],
        optimizers: Sequence[torch.optim.Optimizer],
        rng: torch.Generator,
        *,
        number: int,
        clip_norm: float | None,
    ) -> StepResult:
        """Update the model on the parts of a batch; by default once, on the mean of `loss`. See `train_step`."""
        return train_step(
            lambda batch: self.loss(batch, rng),
            batches,
            self.model,
            optimizers,
            step=number,
            shares=shares,
            clip_norm=clip_norm,
        )

    def state(self) -> dict[str, Any]:
        """The state a resume needs besides model, optimisers and generator."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""


class Update(Protocol):
    """A part of a trainable that is updated separately during training."""

    times: int
    """The number of updates, spread evenly over the run."""
    restarts: bool
    """Whether optimiser states and warm-up restart afterwards."""
    keeps_worse: bool
    """Whether an update that lowers the monitored metric is kept."""

    def price(self) -> float:
        """The estimated seconds of the next update, from its work and a timed sample."""
        ...

    def propose(self, number: int, budget: Budget) -> Any:
        """The new value, the `number`-th (0 is the first), computed without side effects; None if time ran out.

        It may be interrupted.
        """
        ...

    def apply(self, proposal: Any, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
        """Change the trainable and its optimisers' rows; returns facts to record."""
        ...

    def undo(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Undo the last `apply`."""
        ...


class Stepper(Generic[Batch]):
    """A trainable with its generator and its optimisers, advanced one step at a time.

    `device`: of model and batches; draws are made on the CPU.
    """

    def __init__(
        self, task: Trainable[Batch], *, seed: int = 0, learning_rate: float = 1e-3, budget: Budget | None = None
    ) -> None:
        self.task, self.rng, self.device = task, torch.Generator().manual_seed(seed), PROCESSOR
        task.prepare(self.rng, budget or Budget())
        self.optimisers = Optimisers(task.optimisers(), learning_rate)

    def drawn(self, rows: NDArray[np.int64], progress: Progress | None = None) -> Batch:
        """The batch of the given examples, with its draws."""
        batch = self._there(self.task.batch(rows, self.rng, progress or Progress()))
        with torch.no_grad():
            return self._there(self.task.draw(batch, self.rng))

    def _there(self, batch: Batch) -> Batch:
        there: Batch = batch if self.device == PROCESSOR else moved(batch, self.device)
        return there

    def loss(self, rows: NDArray[np.int64]) -> Tensor:
        """The loss of the given examples, with its gradients."""
        return self.task.loss(self.drawn(rows), self.rng)

    def step(
        self,
        rows: NDArray[np.int64],
        *,
        number: int,
        parts: int = 1,
        clip_norm: float | None = None,
        progress: Progress | None = None,
    ) -> StepResult:
        """Update the model on the given examples, processed in `parts`."""
        split = np.array_split(rows, min(parts, len(rows)))
        self.task.model.train()
        return self.task.step(
            (self.drawn(part, progress) for part in split),
            [len(part) / len(rows) for part in split],
            self.optimisers.each,
            self.rng,
            number=number,
            clip_norm=clip_norm,
        )
