"""What the training loop trains, and what a task may bring of its own: a step, something that is made anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.training.step import StepResult

__all__ = ["OwnStep", "Renewal", "Task"]

Batch = TypeVar("Batch")


class Task(Protocol[Batch]):
    """What is trained: a model, its optimisers, and the loss of a batch of examples named by their row numbers."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def optimizers(self) -> Sequence[torch.optim.Optimizer]: ...
    @property
    def num_examples(self) -> int: ...

    def batch(self, rows: NDArray[np.int64]) -> Batch:
        """The batch of the given examples."""
        ...

    def loss(self, batch: Batch) -> Tensor:
        """One value an example, or their mean."""
        ...

    def state(self) -> dict[str, Any]:
        """Whatever else a resume needs: the states of the generators that `batch` and `loss` draw from."""
        ...

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        ...


@runtime_checkable
class OwnStep(Protocol):
    """A task whose step is more than one update of one loss (GuidedRec); a batch goes through whole."""

    def update(self, batch: Any, *, step: int, clip_norm: float | None) -> StepResult:
        """Update the model on the batch."""
        ...

    def facts(self) -> dict[str, float]:
        """What to note of the steps since the last call; part of `state`."""
        ...


class Renewal(Protocol):
    """Something of the task that is made anew now and then while training: a tree retriever's tree."""

    restarts: bool
    """Whether the optimisers' states and the warm-up start anew afterwards."""

    def due(self, fraction: float) -> bool:
        """Is it time, that fraction of the run being over?"""
        ...

    def propose(self) -> Any:
        """The new one, computed without changing anything; it may be interrupted."""
        ...

    def apply(self, proposal: Any) -> dict[str, float]:
        """Change the task; what to note of it."""
        ...

    def keeps(self, before: float, after: float) -> bool:
        """Is the new one to be kept, given the monitored metric before and after?"""
        ...

    def take_back(self) -> None:
        """Undo the last `apply`."""
        ...
