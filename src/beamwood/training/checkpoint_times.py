"""The times of checkpoints, by their cost and by the training time that a kill may lose."""

from __future__ import annotations

from beamwood.training.budget import Clock

__all__ = ["CheckpointTimes"]

MOST_SPENT = 0.02
"""The most share of the time spent on checkpoints."""

MOST_LOST = 60.0
"""The most seconds of training that a kill may lose, where checkpoints are cheap enough."""


class CheckpointTimes:
    """Checkpoints at intervals such that they take at most `MOST_SPENT` of the time, else every `MOST_LOST` seconds.

    A checkpoint of up to `MOST_SPENT * MOST_LOST` = 1.2 seconds satisfies both bounds. For slower ones the first
    counts: kills are rare, and the time of checkpoints is always lost. `cost`: the estimated seconds of one; `clock` is
    monotonic.
    """

    def __init__(self, clock: Clock, cost: float = 0.0) -> None:
        self.clock, self.cost = clock, cost
        self._since = clock()

    def is_due(self, ahead: float = 0.0) -> bool:
        """Whether to save before the next part, which takes `ahead` seconds and can only be saved as a whole."""
        apart = self.clock() - self._since
        return apart >= self.cost / MOST_SPENT - self.cost and apart + ahead >= MOST_LOST - self.cost

    def saved(self, began: float) -> float:
        """Record a checkpoint that began at `began`; returns its seconds."""
        self._since = self.clock()
        self.cost = self._since - began
        return self.cost
