"""The position of a run: all counters of its loop, as a checkpoint stores them; and its result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from beamwood.training.step import StepResult

__all__ = ["LoopResult", "SinceLine", "Standing", "StoppedBecause"]

StoppedBecause = Literal["max_steps", "max_epochs", "patience", "time_limit"]


class SinceLine(BaseModel):
    """Sums over the steps since the last line of metrics, and the seconds spent on other work."""

    model_config = ConfigDict(strict=True, extra="forbid")

    loss: float = 0.0
    steps: int = Field(0, ge=0)
    examples: int = Field(0, ge=0)
    seconds: float = 0.0
    facts: dict[str, float] = Field(default_factory=dict)

    def add(self, result: StepResult, examples: int, seconds: float) -> None:
        """Add one more step."""
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


class Standing(BaseModel):
    """The progress of a run; `seconds` of all its parts, `prepared`: those of their preparations.

    `judges`: the validation queries of the best metric, None: all; `stale`: validations without a new best. Tree
    updates: `updates` were done, `undone` of them rolled back, the last at step `updated_step`, where the warm-up
    restarted; `update_from`: the position of the schedule then.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    step: int = Field(0, ge=0)
    seconds: float = 0.0
    prepared: float = 0.0
    best_metric: float | None = None
    best_step: int = Field(0, ge=0)
    judges: int | None = None
    stale: int = Field(0, ge=0)
    latest_metric: float = math.nan
    evaluated_step: int = Field(0, ge=-1)
    evaluation_seconds: float = 0.0
    updates: int = Field(0, ge=0)
    undone: int = Field(0, ge=0)
    update_from: int = Field(0, ge=0)
    updated_step: int = Field(0, ge=0)
    since_line: SinceLine = Field(default_factory=SinceLine)

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> Self:
        """From a checkpoint, which has further keys."""
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
