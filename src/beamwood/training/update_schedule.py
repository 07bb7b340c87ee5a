"""When a run updates its tree, and how many updates fit its time limit."""

from __future__ import annotations

import math

from beamwood.training.budget import Budget
from beamwood.training.loop_state import LoopState
from beamwood.training.pace import Pace
from beamwood.training.trainable import Update

__all__ = ["UpdateSchedule"]

# The share of the time left that updates may take: the model must also be trained on each new tree.
_SHARE = 0.5


class UpdateSchedule:
    """Spreads the updates of a run evenly over its remaining steps, as many as fit its time limit.

    Completed updates are recorded in `state`. The seconds of the next update are first estimated by `update`, then
    those of the last one.
    """

    def __init__(self, update: Update, state: LoopState, pace: Pace) -> None:
        self.update, self._state, self._pace = update, state, pace
        self._estimate: float | None = None
        self._planned: int | None = None

    @property
    def budget(self) -> Budget:
        """The time limit of the next update."""
        whole = self._pace.budget
        if not whole.limited:
            return Budget(clock=whole.clock)
        return Budget(max(whole.left - self._pace.reserve - self._pace.validation, 1e-3), clock=whole.clock)

    def is_due(self, now: int, end: int) -> bool:
        """Whether an update is due at step `now` of the `end` steps of the schedule, in exact integer arithmetic."""
        last, left = self._state.update_from, self._left()
        due = left > 0 and now > last and (now - last) * (left + 1) >= end - last
        if due and self._pace.budget.limited and not self._has_room():
            self._planned, due = 0, False
        return due

    def gave_up(self) -> None:
        """Record that an update exceeded its budget; no more are planned."""
        self._estimate, self._planned = math.inf, 0

    def done(self, now: int, seconds: float, *, kept: bool) -> None:
        """Record an update at step `now` of the schedule, kept or rolled back."""
        self._state.updates += 1
        self._state.undone += not kept
        self._state.update_from = now
        self._estimate, self._planned = seconds, None

    def left_out(self) -> str | None:
        """A note on skipped updates, None if all were done."""
        done, times = self._state.updates, self.update.times
        if done >= times:
            return None
        line = f"{done} of {times} tree updates done"
        if not self._pace.budget.limited or self._estimate is None:
            return line
        return line + (
            f": one takes {self._estimate:.0f} s"
            if math.isfinite(self._estimate)
            else ": one more took longer than there was time"
        )

    def _left(self) -> int:
        """The number of further updates that are wanted and fit."""
        wanted = self.update.times - self._state.updates
        if wanted <= 0 or not self._pace.budget.limited:
            return max(wanted, 0)
        if self._planned is None:
            if self._estimate is None:
                self._estimate = self.update.estimate()
            room = _SHARE * (self._pace.budget.left - self._pace.reserve)
            self._planned = max(0, min(wanted, int(room / max(self._whole_estimate(), 1e-9))))
        return self._planned

    def _has_room(self) -> bool:
        """Whether one more update and a step after it fit."""
        return self._whole_estimate() + self._pace.step + self._pace.reserve <= self._pace.budget.left

    def _whole_estimate(self) -> float:
        """The seconds of an update with a validation before and after it, and a checkpoint."""
        return (self._estimate or 0.0) + 2 * self._pace.validation + self._pace.save
