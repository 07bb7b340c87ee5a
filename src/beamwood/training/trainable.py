"""What the training loop trains: a `Trainable`, which is a model, its examples, and the loss of a batch.

The loop owns the generator of all draws, the optimisers, the clock and the checkpoints. A method defines `model`,
`num_examples`, `batch` and `loss`; everything else has a default.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.training.budget import Budget, Clock
from beamwood.training.device import CPU, to_device
from beamwood.training.optimisers import Optimiser, Optimisers
from beamwood.training.step import StepResult, train_step

__all__ = ["Progress", "Stepper", "Trainable", "Update"]

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is: the number of completed steps, and the completed fraction of the whole run.

    Under a time limit the fraction follows the clock.
    """

    step: int = 0
    fraction: float = 0.0


class Trainable(ABC, Generic[Batch]):
    """A model, its examples, and its loss. `__init__` checks the input; long work is done in `prepare`."""

    model: nn.Module
    """The trained model; its weights are stored in checkpoints, and the best of them at the end."""
    num_examples: int
    """The number of examples in an epoch."""
    update: Update | None = None
    """A part that is learned by separate updates between steps, such as a tree."""

    def min_seconds(self, clock: Clock) -> float:
        """A fast estimate of the seconds that a run needs at least to return a model; 0 if unknown.

        It is called before `prepare`, only under a time limit, and excludes the time that `prepare` requires itself.
        """
        del clock
        return 0.0

    def start_seconds(self, seed: int, clock: Clock) -> float:
        """A fast estimate of the seconds that `prepare` takes at least; 0 if unknown or short.

        It is called before `prepare`, only under a time limit; `seed`: of the run.
        """
        del seed, clock
        return 0.0

    def resume_from(self, state: dict[str, Any]) -> None:
        """Take what `prepare` would otherwise decide by the time left from `state()` of the run that is resumed.

        It is called before `prepare`, only in a resumed run.
        """

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Build the model with its initial weights, and do other long work; then `model` and `num_examples` are set.

        Work that does not fit `budget` is reduced or skipped, and recorded by `budget.leave_out`.
        """

    def optimisers(self) -> Sequence[Optimiser]:
        """The optimisers of the parameters; by default Adam over all at the run's learning rate."""
        return [Optimiser.over(self.model.parameters())]

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], rng: torch.Generator, progress: Progress) -> Batch:
        """The batch of the given examples."""

    def draw(self, batch: Batch, rng: torch.Generator) -> Batch:
        """The batch, completed by draws or labels that depend on the current model; called without gradients."""
        del rng
        return batch

    @abstractmethod
    def loss(self, batch: Batch, rng: torch.Generator) -> Tensor:
        """One value an example, or their mean."""

    def step(
        self,
        batch: Batch,
        optimizers: Sequence[torch.optim.Optimizer],
        rng: torch.Generator,
        *,
        number: int,
        clip_norm: float | None,
    ) -> StepResult:
        """Update the model on a batch; by default once, by the mean `loss`. See `train_step`."""
        return train_step(lambda: self.loss(batch, rng), self.model, optimizers, step=number, clip_norm=clip_norm)

    def state(self) -> dict[str, Any]:
        """The state a resume needs besides model, optimisers and generator."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""


class Update(Protocol):
    """A part of a trainable, such as its tree, that is learned by separate updates between steps."""

    times: int
    """The number of updates, spread evenly over the run."""
    restarts: bool
    """Whether optimiser states and warm-up restart afterwards."""
    keeps_worse: bool
    """Whether an update that lowers the monitored metric is kept."""

    def estimate(self) -> float:
        """The estimated seconds of the next update, extrapolated from a timed sample of its work."""
        ...

    def propose(self, number: int, budget: Budget) -> Any:
        """The new value of update `number` (from 0), None if `budget` ran out.

        It has no side effects, so it may be interrupted.
        """
        ...

    def apply(self, proposal: Any, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
        """Replace the part of the trainable, and move the optimisers' state with it; returns facts for the log."""
        ...

    def undo(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Restore the state before the last `apply`."""
        ...


class Stepper(Generic[Batch]):
    """A prepared trainable with its generator and its optimisers, trained one step at a time.

    `device`: of the model and the batches; random numbers are drawn on the CPU.
    """

    def __init__(
        self, task: Trainable[Batch], *, seed: int = 0, learning_rate: float = 1e-3, budget: Budget | None = None
    ) -> None:
        self.task, self.rng, self.device = task, torch.Generator().manual_seed(seed), CPU
        task.prepare(self.rng, budget or Budget())
        self.optimisers = Optimisers(task.optimisers(), learning_rate)

    def drawn(self, rows: NDArray[np.int64], progress: Progress | None = None) -> Batch:
        """The batch of the given examples, with its draws."""
        batch = self._on_device(self.task.batch(rows, self.rng, progress or Progress()))
        with torch.no_grad():
            return self._on_device(self.task.draw(batch, self.rng))

    def _on_device(self, batch: Batch) -> Batch:
        moved: Batch = batch if self.device == CPU else to_device(batch, self.device)
        return moved

    def step(
        self,
        rows: NDArray[np.int64],
        *,
        number: int,
        clip_norm: float | None = None,
        progress: Progress | None = None,
    ) -> StepResult:
        """Update the model on the given examples."""
        self.task.model.train()
        batch, optimizers = self.drawn(rows, progress), self.optimisers.each
        return self.task.step(batch, optimizers, self.rng, number=number, clip_norm=clip_norm)
