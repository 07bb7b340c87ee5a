"""Descriptions of optimisers, which a trainable states, and the torch optimisers that the loop builds from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from beamwood.training.lazy_adam import LazyAdam

__all__ = ["Optimiser", "Optimisers", "ParameterGroup"]


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters with one learning rate (None: the run's) and one weight decay."""

    parameters: Sequence[Tensor]
    rate: float | None = None
    decay: float = 0.0


@dataclass(frozen=True, slots=True)
class Optimiser:
    """Adam over groups of parameters, see `LazyAdam`; with `decoupled` the weight decay of AdamW."""

    groups: Sequence[ParameterGroup]
    betas: tuple[float, float] = (0.9, 0.999)
    decoupled: bool = False
    amsgrad: bool = False

    @classmethod
    def over(cls, parameters: Iterable[Tensor], rate: float | None = None, decay: float = 0.0, **options: Any) -> Self:
        """An optimiser with one group."""
        return cls([ParameterGroup(list(parameters), rate, decay)], **options)

    def make(self, rate: float) -> LazyAdam:
        """The torch optimiser; `rate`: for groups without their own."""
        groups = [
            {
                "params": list(group.parameters),
                "lr": rate if group.rate is None else group.rate,
                "weight_decay": group.decay,
            }
            for group in self.groups
        ]
        return LazyAdam(groups, lr=rate, betas=self.betas, decoupled=self.decoupled, amsgrad=self.amsgrad)


class Optimisers:
    """The torch optimisers of a run, in the given order, and the peak learning rates that schedules scale."""

    def __init__(self, wanted: Sequence[Optimiser], rate: float) -> None:
        self.each: list[torch.optim.Optimizer] = [one.make(rate) for one in wanted]
        self.peaks = [[float(group["lr"]) for group in one.param_groups] for one in self.each]

    def set_rates(self, rate: Callable[[float], float]) -> float:
        """Set the learning rate of each group to `rate(peak)`; returns that of the first group."""
        for optimizer, peaks in zip(self.each, self.peaks, strict=True):
            for group, peak in zip(optimizer.param_groups, peaks, strict=True):
                group["lr"] = rate(peak)
        first: float = self.each[0].param_groups[0]["lr"]
        return first

    def restart(self) -> None:
        """Discard all moments."""
        for optimizer in self.each:
            optimizer.state.clear()

    def state(self) -> list[dict[str, Any]]:
        """The state for a checkpoint."""
        return [optimizer.state_dict() for optimizer in self.each]

    def load_state(self, saved: Sequence[dict[str, Any]]) -> None:
        """Continue where `state` was taken; `ValueError` where it belongs to other parameters or optimisers."""
        for optimizer, state in zip(self.each, saved, strict=True):
            _load(optimizer, state)


def _load(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load a saved state; `ValueError` where it does not belong to such an optimiser of these parameters.

    torch checks only the numbers of groups and parameters; without this check other faults fail in a later step.
    """
    expected = [{key: type(value) for key, value in group.items()} for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    for place, (group, types) in enumerate(zip(optimizer.param_groups, expected, strict=True)):
        for key, kind in types.items():
            if key not in group or (type(group[key]) is not kind and not {kind, type(group[key])} <= {int, float}):
                raise ValueError(f"group {place} of an optimiser has {key}={group.get(key)!r}")
        names = {"step", "exp_avg", "exp_avg_sq"} | ({"max_exp_avg_sq"} if group["amsgrad"] else set())
        for parameter in group["params"]:
            moments, shape = optimizer.state.get(parameter, {}), tuple(parameter.shape)
            if moments and set(moments) != names:
                raise ValueError(f"an optimiser keeps {', '.join(sorted(moments))} of a parameter")
            for name, moment in moments.items():
                if tuple(moment.shape) != (() if name == "step" else shape):
                    raise ValueError(f"an optimiser's {name} has shape {tuple(moment.shape)}")
