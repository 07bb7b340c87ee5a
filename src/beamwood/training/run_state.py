"""A run as nested state for a checkpoint, and back."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from beamwood.errors import InputError
from beamwood.training.batches import BatchOrder
from beamwood.training.budget import Budget
from beamwood.training.checkpoint import check_tensors, resuming
from beamwood.training.device import PROCESSOR
from beamwood.training.run_folder import RunLog
from beamwood.training.standing import Standing
from beamwood.training.trainable import Stepper

__all__ = ["counted", "run_state", "take_up"]


def run_state(
    stepper: Stepper[Any],
    order: BatchOrder,
    at: Standing,
    best_weights: dict[str, Tensor] | None,
    *,
    seed: int,
) -> dict[str, Any]:
    """The state that `take_up` needs, including torch's default generators and that of a GPU in use."""
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
        "cuda": None if device == PROCESSOR else torch.cuda.get_rng_state(device),
        "best_weights": best_weights,
        **at.model_dump(),
    }


def take_up(
    state: dict[str, Any], stepper: Stepper[Any], order: BatchOrder, *, seed: int
) -> tuple[Standing, dict[str, Tensor] | None]:
    """Load a saved run's state into `stepper`, `order` and the generators; returns its position and its best weights.

    Errors: `InputError` where the run had another seed or other learning rates; inconsistent state raises other errors.
    """
    peaks, model = stepper.optimisers.peaks, stepper.task.model.state_dict()
    if state["seed"] != seed:
        raise InputError(f"the checkpoint was made with seed={state['seed']}, this run has {seed}; use the same")
    if state["peaks"] != peaks:
        raise InputError(
            f"the checkpoint was made with learning rates {state['peaks']}, this run has {peaks}; use the same"
        )
    at, best_weights = Standing.of_state(state), state["best_weights"]
    order.load_state(state["order"])
    check_tensors(state["model"], model)
    if best_weights is not None:
        check_tensors(best_weights, model)
    stepper.task.model.load_state_dict(state["model"])
    stepper.optimisers.load_state(state["optimizers"])
    stepper.task.load_state(state["task"])
    stepper.rng.set_state(state["generator"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and stepper.device != PROCESSOR:
        torch.cuda.set_rng_state(state["cuda"], stepper.device)
    return at, best_weights


def counted(log: RunLog, budget: Budget) -> Standing:
    """The position of a resumed run; its seconds count, so that repeated preparation has only the rest of the time.

    A run that already has a result is not refused.
    """
    if log.state is None:
        return Standing()
    with resuming(log.folder.checkpoint_path):
        before = Standing.of_state(log.state)
    budget.count(before.seconds)
    budget.most = math.inf
    return before
