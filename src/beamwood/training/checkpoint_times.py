"""When checkpoints are saved: often enough that a kill loses little, without taking much of the time."""

from __future__ import annotations

from beamwood.training.budget import Clock

__all__ = ["CheckpointTimes"]

MAX_SHARE = 0.02
"""The largest share of the time that checkpoints may take."""

MAX_LOST = 60.0
"""The most seconds of training that a kill may lose, where checkpoints are fast enough."""


class CheckpointTimes:
    """Spaces checkpoints so that they take at most `MAX_SHARE` of the time, and otherwise one every `MAX_LOST` seconds.

    A checkpoint of up to `MAX_SHARE * MAX_LOST` = 1.2 seconds satisfies both bounds. For slower ones only the first
    holds: kills are rare, and the time of checkpoints is always lost. `cost`: the estimated seconds of one; `clock` is
    monotonic.
    """

    def __init__(self, clock: Clock, cost: float = 0.0) -> None:
        self.clock, self.cost = clock, cost
        self._since = clock()

    def is_due(self, ahead: float = 0.0) -> bool:
        """Whether to save before the next work, during which nothing can be saved for `ahead` seconds."""
        apart = self.clock() - self._since
        return apart >= self.cost / MAX_SHARE - self.cost and apart + ahead >= MAX_LOST - self.cost

    def saved(self, began: float) -> float:
        """Record a checkpoint that began at `began`; returns its seconds."""
        self._since = self.clock()
        self.cost = self._since - began
        return self.cost
