"""The best weights of a run: validations of the model, and a copy of the weights that they found best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from beamwood.errors import InputError, nearest
from beamwood.training.device import CPU, on_device
from beamwood.training.generators import preserved_generators
from beamwood.training.interrupt import InterruptGuard
from beamwood.training.loop_state import LoopState
from beamwood.training.pace import Pace
from beamwood.training.trainable import Stepper

__all__ = ["BestWeights", "Snapshot"]

Weights = dict[str, Tensor]


class Snapshot(NamedTuple):
    """The latest and the best result of the validations so far."""

    latest_metric: float
    best_metric: float | None
    best_step: int
    weights: Weights | None


class BestWeights:
    """Validates the model of a run, and keeps a copy of its best `weights`, None before any validation.

    `evaluate`: the metrics of the model, None for a run without validation; the best weights have the largest
    `monitor`. `state` counts the validations, and `pace` measures their seconds.
    """

    def __init__(
        self,
        stepper: Stepper[Any],
        evaluate: Callable[[], Mapping[str, float]] | None,
        monitor: str,
        state: LoopState,
        pace: Pace,
        weights: Weights | None,
    ) -> None:
        self.monitor, self.weights = monitor, weights
        self._stepper, self._task, self._evaluate = stepper, stepper.task, evaluate
        self._state, self._pace = state, pace

    def validate(self, guard: InterruptGuard) -> dict[str, float]:
        """Measure the model, and copy its weights if they are the best; returns all metrics, {} without validation."""
        state, clock = self._state, self._pace.budget.clock
        if self._evaluate is None:
            state.evaluated_step = state.step
            return {}
        started = clock()
        with guard.at_once():
            metrics = self._metrics()
        state.latest_metric = metrics[self.monitor]
        if state.best_metric is None or state.latest_metric > state.best_metric:
            state.best_metric, state.best_step, state.stale = state.latest_metric, state.step, 0
            self.weights = self._copy()
        else:
            state.stale += 1
        state.evaluated_step = state.step
        self._pace.validated(clock() - started, first=state.evaluation_seconds == 0)
        state.evaluation_seconds = self._pace.validation
        return metrics

    def revalidate(self) -> None:
        """Measure the best weights again where a resumed run validates on other queries: metrics must be comparable."""
        state, pace = self._state, self._pace
        if self.weights is None:
            state.num_queries = pace.num_queries
        if state.num_queries == pace.num_queries or not pace.has_room_for_validation():
            return
        current = self._copy()
        self.load()
        state.best_metric = self._metrics()[self.monitor]
        self._task.model.load_state_dict(current)
        state.num_queries = pace.num_queries
        if state.best_step == state.evaluated_step:
            state.latest_metric = state.best_metric

    def load(self) -> None:
        """Load the best weights into the model, if there are any."""
        if self.weights is not None:
            self._task.model.load_state_dict(self.weights)

    def snapshot(self) -> Snapshot:
        """The results so far, to which `restore` returns."""
        state = self._state
        return Snapshot(state.latest_metric, state.best_metric, state.best_step, self.weights)

    def restore(self, before: Snapshot) -> None:
        """Drop the results of later validations."""
        state = self._state
        state.latest_metric, state.best_metric, state.best_step, self.weights = before

    def _metrics(self) -> dict[str, float]:
        """The metrics of the model, measured on the CPU, without an effect on training's random draws."""
        assert self._evaluate is not None
        model = self._task.model
        model.eval()
        on_processor = on_device(model, CPU)
        with preserved_generators(self._stepper.device), torch.no_grad(), on_processor:
            metrics = {name: float(value) for name, value in self._evaluate().items()}
        if self.monitor not in metrics:
            raise InputError(f"monitor={self.monitor!r} is not measured{nearest(self.monitor, metrics)}")
        value = metrics[self.monitor]
        if not math.isfinite(value):
            step = self._state.step
            raise InputError(f"step {step}: the metric {self.monitor} is {value}; check the validation data")
        return metrics

    def _copy(self) -> Weights:
        return {name: tensor.detach().clone() for name, tensor in self._task.model.state_dict().items()}
