"""What the training loop trains: a model, its examples, and the loss of a batch of them; the rest is the loop's.

The loop owns the generator of all draws, the optimisers, the clock and the checkpoints. A method says what is its own:
`model`, `num_examples`, `batch` and `loss`; what is more than that has a default.
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
    """Where a run stands: `step` updates are done, and that `fraction` of it is over (by the clock under a limit)."""

    step: int = 0
    fraction: float = 0.0


class Trainable(ABC, Generic[Batch]):
    """A model, its examples, and its loss. What `__init__` refuses is refused before anything that takes long."""

    model: nn.Module
    """What is trained; its weights are kept in checkpoints, and the best of them in the end."""
    num_examples: int
    """How many examples an epoch has."""
    update: Update | None = None
    """What is learned anew now and then: a tree."""
    takes_parts: bool = True
    """Can a step go through a batch in parts?"""
    takes_gpu: bool = True
    """Can a step be computed on a GPU? The tensors that its loss makes are then where the batch is."""

    def least(self, clock: Clock) -> float:
        """About the seconds that a run takes at least, besides what `prepare` asks `budget` for; 0: nobody knows.

        It is asked under a time limit, before `prepare`, and takes little time itself.
        """
        del clock
        return 0.0

    def prepare(self, rng: torch.Generator, budget: Budget) -> None:
        """Make the model, where it starts, and whatever else takes long; `model` and `num_examples` hold afterwards.

        What does not fit into `budget` is cut or left out, and `budget.leave_out` says so.
        """

    def optimisers(self) -> Sequence[Optimiser]:
        """Which parameters move, how; by default Adam over all at the run's learning rate."""
        return [Optimiser.over(self.model.parameters())]

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], rng: torch.Generator, progress: Progress) -> Batch:
        """The batch of the given examples."""

    def draw(self, batch: Batch, rng: torch.Generator) -> Batch:
        """The batch with what the model, as it is now, draws or labels for it; without gradients."""
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
        """What a resume needs besides model, optimisers and generator: what is kept from step to step."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""


class Update(Protocol):
    """Something of a trainable that is learned anew now and then while it trains."""

    times: int
    """How often, spread evenly over the run."""
    restarts: bool
    """Do the optimisers' states and the warm-up start anew afterwards?"""
    keeps_worse: bool
    """Is one kept that lowers the monitored metric?"""

    def price(self) -> float:
        """The seconds that the next one will take, from what it has to do and how fast a small part of that is."""
        ...

    def propose(self, number: int, budget: Budget) -> Any:
        """The new one, the `number`-th (0 is the first), computed without changing anything; None if time ran out.

        It may be interrupted.
        """
        ...

    def apply(self, proposal: Any, optimizers: Sequence[torch.optim.Optimizer]) -> dict[str, float]:
        """Change the trainable and its optimisers' rows; what to note of it."""
        ...

    def undo(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        """Undo the last `apply`."""
        ...


class Stepper(Generic[Batch]):
    """A trainable with its generator and its optimisers, which take one step at a time.

    `device` is where the model is, and batches go; draws are made on the processor.
    """

    def __init__(
        self, task: Trainable[Batch], *, seed: int = 0, learning_rate: float = 1e-3, budget: Budget | None = None
    ) -> None:
        self.task, self.rng, self.device = task, torch.Generator().manual_seed(seed), PROCESSOR
        task.prepare(self.rng, budget or Budget())
        self.optimisers = Optimisers(task.optimisers(), learning_rate)

    def drawn(self, rows: NDArray[np.int64], progress: Progress | None = None) -> Batch:
        """The batch of the given examples, with what is drawn for it."""
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
        """Update the model on the given examples, of which `parts` go through it one by one."""
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
