"""Where a run stands: all that its loop counts, as a checkpoint keeps it; and how it ended."""

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
    """Of the steps since the last line of metrics: sums, and the seconds that were spent on other things."""

    model_config = ConfigDict(strict=True, extra="forbid")

    loss: float = 0.0
    steps: int = Field(0, ge=0)
    examples: int = Field(0, ge=0)
    seconds: float = 0.0
    facts: dict[str, float] = Field(default_factory=dict)

    def add(self, result: StepResult, examples: int, seconds: float) -> None:
        """One more step."""
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
    """What a run has done and found so far; `seconds` are those of all its parts, `prepared` of their preparations.

    `judges`: how many validation queries the best metric is of, None: all; `stale`: validations without a new best.
    Updates of the tree: `updates` were done, `undone` of them taken back, the last at the step `updated_step`, from
    which the warm-up starts anew; `update_from` is where the schedule stood then.
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
        """From a checkpoint, which has other keys besides."""
        return cls.model_validate({name: state[name] for name in cls.model_fields})


@dataclass(frozen=True, slots=True)
class LoopResult:
    """How a run ended; without validation `best_metric` is None and `best_step` the last step.

    `seconds` are those of the budget, of all parts of a resumed run; `updates` is how many of the tree were kept.
    """

    best_metric: float | None
    best_step: int
    steps: int
    stopped_because: StoppedBecause
    seconds: float
    updates: int
