"""When a run saves a checkpoint: by what one costs, and by what a kill may lose."""

from __future__ import annotations

from beamwood.training.budget import Clock

__all__ = ["CheckpointTimes"]

MOST_SPENT = 0.02
"""Of the time, on checkpoints."""

MOST_LOST = 60.0
"""Seconds of steps that a kill may lose, where checkpoints are cheap enough."""


class CheckpointTimes:
    """Checkpoints so far apart that they take at most `MOST_SPENT` of the time, else `MOST_LOST` seconds.

    One of up to `MOST_SPENT * MOST_LOST` = 1.2 seconds keeps both bounds. For a dearer one the first counts: kills are
    rare, and what checkpoints take is lost each time. `cost`: the seconds of one, estimated; `clock` never falls.
    """

    def __init__(self, clock: Clock, cost: float = 0.0) -> None:
        self.clock, self.cost = clock, cost
        self._since = clock()

    def is_due(self, ahead: float = 0.0) -> bool:
        """Whether to save before what comes next, which takes so many seconds and is saved only when it is done."""
        apart = self.clock() - self._since
        return apart >= self.cost / MOST_SPENT - self.cost and apart + ahead >= MOST_LOST - self.cost

    def saved(self, began: float) -> float:
        """One was saved, which began then; the seconds that it took."""
        self._since = self.clock()
        self.cost = self._since - began
        return self.cost
