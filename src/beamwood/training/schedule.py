"""Learning rate as a closed form of the step: no state, so nothing to resume."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from beamwood.errors import InputError

__all__ = ["Schedule", "ScheduleKind"]

ScheduleKind = Literal["constant", "linear", "cosine", "exponential"]


class Schedule(BaseModel):
    """Linear warm-up to the optimiser's own rate, then a decay that never falls below `floor`.

    With w = `warmup_steps`, d = `decay_steps` and step t = 1, 2, ... the factor is t / w while t < w. Afterwards:

        constant    1                              exponential   exp((w - t) / d)
        cosine      (1 + cos(pi (t - w) / d)) / 2  linear        1 - (t - w) / d

    For cosine and linear `decay_steps=None` is what remains of the run after the warm-up. `floor` is a
    learning rate, not a factor.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ScheduleKind = "constant"
    warmup_steps: int = Field(0, ge=0)
    decay_steps: int | None = Field(None, ge=1)
    floor: float = Field(0.0, ge=0.0)

    def check(self, max_steps: int | None) -> None:
        """Raises `InputError` when the length of the decay is neither given nor known from the run."""
        if self.kind != "constant" and self._decay_steps(max_steps) is None:
            other = "" if self.kind == "exponential" else ", or set max_steps or max_epochs"
            raise InputError(f"the schedule {self.kind!r} needs decay_steps; set it{other}")

    def learning_rate(self, step: int, peak: float, max_steps: int | None = None) -> float:
        """The rate of the `step`-th update (1 is the first) for an optimiser whose own rate is `peak`."""
        assert step >= 1, f"steps count from 1; got {step}"
        if step < self.warmup_steps:
            return peak * step / self.warmup_steps
        if self.kind == "constant":
            return peak
        decay_steps = self._decay_steps(max_steps)
        assert decay_steps is not None, "check() comes first"
        past = (step - self.warmup_steps) / decay_steps
        if self.kind == "exponential":
            factor = math.exp(-past)
        elif self.kind == "cosine":
            factor = 0.5 * (1 + math.cos(math.pi * min(past, 1.0)))
        else:
            factor = 1 - min(past, 1.0)
        return max(peak * factor, min(self.floor, peak))

    def _decay_steps(self, max_steps: int | None) -> int | None:
        if self.decay_steps is not None or self.kind == "exponential" or max_steps is None:
            return self.decay_steps
        return max(1, max_steps - self.warmup_steps)
