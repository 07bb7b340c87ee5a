"""The share of the CPU that a search gets beside other processes."""

from __future__ import annotations

from beamwood.training.budget import Clock

__all__ = ["Share"]

# The least share: waiting for a disk or a page looks the same. The fewest seconds that are informative.
_LEAST, _FEWEST = 0.25, 2.0


class Share:
    """CPU seconds over wall-clock seconds since creation; `processor` None: 1."""

    def __init__(self, clock: Clock, processor: Clock | None) -> None:
        self._clock, self._processor = clock, processor
        self._began = clock(), 0.0 if processor is None else processor()

    def now(self) -> float:
        """The share, from 0.25 to 1; 1 before it is known."""
        if self._processor is None:
            return 1.0
        elapsed, used = self._clock() - self._began[0], self._processor() - self._began[1]
        return min(1.0, max(_LEAST, used / elapsed)) if elapsed >= _FEWEST else 1.0
