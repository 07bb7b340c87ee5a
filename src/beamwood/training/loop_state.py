"""The counters of the training loop, which checkpoints store, and the result of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from beamwood.training.step import StepResult

__all__ = ["LoopResult", "LoggedSums", "LoopState", "StoppedBecause"]

StoppedBecause = Literal["max_steps", "max_epochs", "patience", "time_limit"]


class LoggedSums(BaseModel):
    """Sums over the steps since the last line of `metrics.jsonl`: losses, examples, seconds and further facts."""

    model_config = ConfigDict(strict=True, extra="forbid")

    loss: float = 0.0
    steps: int = Field(0, ge=0)
    examples: int = Field(0, ge=0)
    seconds: float = 0.0
    facts: dict[str, float] = Field(default_factory=dict)

    def add(self, result: StepResult, examples: int, seconds: float) -> None:
        """Add the result of one step."""
        self.loss += result.loss
        self.steps += 1
        self.examples += examples
        self.seconds += seconds
        for name, value in result.facts.items():
            self.facts[name] = self.facts.get(name, 0.0) + value

    def means(self) -> dict[str, float]:
        """The mean of each fact over the steps."""
        return {name: total / self.steps for name, total in self.facts.items()}

    @property
    def mean_loss(self) -> float:
        return self.loss / self.steps

    @property
    def speed(self) -> float:
        """Examples a second."""
        return self.examples / max(self.seconds, 1e-9)


class LoopState(BaseModel):
    """The counters of a run.

    `seconds`: used so far, over all parts of a resumed run; `prepared`: those of its preparation. `num_queries`: the
    validation queries behind `best_metric`, None: all. `stale`: validations since the best one. `updates`: tree updates
    done, of which `undone` were rolled back. `updated_step`: the step of the last restart of the warm-up by an update.
    `update_from`: the position of the schedule at the last update.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    step: int = Field(0, ge=0)
    seconds: float = 0.0
    prepared: float = 0.0
    best_metric: float | None = None
    best_step: int = Field(0, ge=0)
    num_queries: int | None = None
    stale: int = Field(0, ge=0)
    latest_metric: float = math.nan
    evaluated_step: int = Field(0, ge=-1)
    evaluation_seconds: float = 0.0
    updates: int = Field(0, ge=0)
    undone: int = Field(0, ge=0)
    update_from: int = Field(0, ge=0)
    updated_step: int = Field(0, ge=0)
    since_log: LoggedSums = Field(default_factory=LoggedSums)

    @classmethod
    def from_checkpoint(cls, state: Mapping[str, Any]) -> Self:
        """The loop state in a checkpoint, which has further keys."""
        return cls.model_validate({name: state[name] for name in cls.model_fields})


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The result of a run; without validation `best_metric` is None and `best_step` the last step.

    `seconds`: of the budget, over all parts of a resumed run; `updates`: the tree updates kept.
    """

    best_metric: float | None
    best_step: int
    steps: int
    stopped_because: StoppedBecause
    seconds: float
    updates: int
