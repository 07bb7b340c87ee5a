"""The complete state of a run, as a checkpoint stores it: collecting it, and loading it again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from beamwood.errors import InputError
from beamwood.training.batches import BatchOrder
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import check_tensors, resuming
from beamwood.training.device import CPU
from beamwood.training.loop_state import LoopState
from beamwood.training.run_folder import RunLog
from beamwood.training.trainable import Stepper, Trainable

__all__ = ["earlier_state", "load_run_state", "run_state"]


def run_state(
    stepper: Stepper[Any],
    order: BatchOrder,
    loop: LoopState,
    best_weights: dict[str, Tensor] | None,
    *,
    seed: int,
) -> dict[str, Any]:
    """The state that `load_run_state` needs, including torch's default generators and that of a GPU in use."""
    device = stepper.device
    return {
        "seed": seed,
        "model": stepper.task.model.state_dict(),
        "optimizers": stepper.optimisers.state(),
        "peaks": stepper.optimisers.peaks,
        "task": stepper.task.state(),
        "order": order.state(),
        "generator": stepper.rng.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": None if device == CPU else torch.cuda.get_rng_state(device),
        "best_weights": best_weights,
        **loop.model_dump(),
    }


def load_run_state(
    state: dict[str, Any], stepper: Stepper[Any], order: BatchOrder, *, seed: int
) -> tuple[LoopState, dict[str, Tensor] | None]:
    """Load a saved run into `stepper`, `order` and the generators; returns its loop state and its best weights.

    Errors: `InputError` where the run had another seed or other learning rates; inconsistent state raises other errors.
    """
    peaks, model = stepper.optimisers.peaks, stepper.task.model.state_dict()
    if state["seed"] != seed:
        raise InputError(f"the checkpoint was made with seed={state['seed']}, this run has {seed}; use the same")
    if state["peaks"] != peaks:
        raise InputError(
            f"the checkpoint was made with learning rates {state['peaks']}, this run has {peaks}; use the same"
        )
    loop, best_weights = LoopState.from_checkpoint(state), state["best_weights"]
    order.load_state(state["order"])
    check_tensors(state["model"], model)
    if best_weights is not None:
        check_tensors(best_weights, model)
    stepper.task.model.load_state_dict(state["model"])
    stepper.optimisers.load_state(state["optimizers"])
    stepper.task.load_state(state["task"])
    stepper.rng.set_state(state["generator"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and stepper.device != CPU:
        torch.cuda.set_rng_state(state["cuda"], stepper.device)
    return loop, best_weights


def earlier_state(log: RunLog, task: Trainable[Any], budget: Budget) -> LoopState:
    """The loop state of the run that is resumed; `task` gets its own state, and `budget` counts the seconds."""
    if log.state is None:
        return LoopState()
    with resuming(log.folder.checkpoint_path):
        before = LoopState.from_checkpoint(log.state)
        task.resume_from(log.state["task"])
    budget.count(before.seconds)
    return before
