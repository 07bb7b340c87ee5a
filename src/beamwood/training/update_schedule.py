"""The schedule of tree updates in a run, and whether they fit its time limit."""

from __future__ import annotations

import math

from beamwood.training.budget import Budget
from beamwood.training.pace import Pace
from beamwood.training.standing import Standing
from beamwood.training.trainable import Update

__all__ = ["UpdateSchedule"]

# The share of the time left that updates may take: a new tree needs training on it.
_SHARE = 0.5


class UpdateSchedule:
    """The updates of a run, spread evenly over its rest, as many as fit its time limit.

    `standing` has those done, and records each. The price of the next one in seconds is an estimate by `update` first,
    then the time of the last one.
    """

    def __init__(self, update: Update, standing: Standing, pace: Pace) -> None:
        self.update, self._at, self._pace = update, standing, pace
        self._price: float | None = None
        self._planned: int | None = None

    @property
    def budget(self) -> Budget:
        """The time limit of the next update."""
        whole = self._pace.budget
        if not whole.limited:
            return Budget(clock=whole.clock)
        return Budget(max(whole.left - self._pace.reserve - self._pace.validation, 1e-3), clock=whole.clock)

    def is_due(self, now: int, end: int) -> bool:
        """Whether one is due at step `now` of `end` of the schedule, in exact integer arithmetic."""
        at, left = self._at.update_from, self._left()
        due = left > 0 and now > at and (now - at) * (left + 1) >= end - at
        if due and self._pace.budget.limited and not self._has_room():
            self._planned, due = 0, False
        return due

    def gave_up(self) -> None:
        """Record one that exceeded its budget: that becomes its price, and no more are planned."""
        self._price, self._planned = math.inf, 0

    def done(self, now: int, seconds: float, *, kept: bool) -> None:
        """Record one at step `now` of the schedule, kept or rolled back."""
        self._at.updates += 1
        self._at.undone += not kept
        self._at.update_from = now
        self._price, self._planned = seconds, None

    def left_out(self) -> str | None:
        """A note about skipped updates, None if all were done."""
        done, times = self._at.updates, self.update.times
        if done >= times:
            return None
        line = f"{done} of {times} tree updates done"
        if not self._pace.budget.limited or self._price is None:
            return line
        return line + (
            f": one takes {self._price:.0f} s"
            if math.isfinite(self._price)
            else ": one more took longer than there was time"
        )

    def _left(self) -> int:
        """The number of wanted updates that fit after the last one."""
        wanted = self.update.times - self._at.updates
        if wanted <= 0 or not self._pace.budget.limited:
            return max(wanted, 0)
        if self._planned is None:
            if self._price is None:
                self._price = self.update.price()
            room = _SHARE * (self._pace.budget.left - self._pace.reserve)
            self._planned = max(0, min(wanted, int(room / max(self._whole_price(), 1e-9))))
        return self._planned

    def _has_room(self) -> bool:
        """Whether one, and a step after it, fit."""
        return self._whole_price() + self._pace.step + self._pace.reserve <= self._pace.budget.left

    def _whole_price(self) -> float:
        """The price with a validation before and after it, and a checkpoint."""
        return (self._price or 0.0) + 2 * self._pace.validation + self._pace.save
