"""Which part of the processor a search has, beside other processes."""

from __future__ import annotations

from beamwood.training.budget import Clock

__all__ = ["Share"]

# Less is not believed: a disk or a page that is waited for looks alike. So many seconds tell something.
_LEAST, _FEWEST = 0.25, 2.0


class Share:
    """The seconds of the processor over those of the clock since this was made; `processor` None: all."""

    def __init__(self, clock: Clock, processor: Clock | None) -> None:
        self._clock, self._processor = clock, processor
        self._began = clock(), 0.0 if processor is None else processor()

    def now(self) -> float:
        """From a quarter to 1; 1 before it is known."""
        if self._processor is None:
            return 1.0
        gone, worked = self._clock() - self._began[0], self._processor() - self._began[1]
        return min(1.0, max(_LEAST, worked / gone)) if gone >= _FEWEST else 1.0
