"""Where a run stands: all that its loop counts, as a checkpoint keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from beamwood.training.step import StepResult

__all__ = ["SinceLine", "Standing"]


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

    `stale`: validations without a new best. Updates of the tree: `updates` were done, `undone` of them taken back, the
    last at the step `updated_step`, from which the warm-up starts anew; `update_from` is where the schedule stood then.
    """

    model_config = ConfigDict(strict=True, extra="forbid")

    step: int = Field(0, ge=0)
    seconds: float = 0.0
    prepared: float = 0.0
    best_metric: float | None = None
    best_step: int = Field(0, ge=0)
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
