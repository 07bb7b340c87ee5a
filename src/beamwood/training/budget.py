"""What a fit may still take: one clock that starts, training and saving share, and what was left out for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from beamwood.errors import InputError

__all__ = ["Budget"]


class Budget:
    """The seconds of one fit, counted from when this was made; `limit` is infinite where none was set.

    `clock` gives seconds that never fall. `left_out` holds a line for each thing that there was no time for.
    """

    def __init__(self, limit: float | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if limit is not None and not limit > 0:
            raise InputError(f"time_limit={limit} is not above 0 seconds; leave it out for no limit")
        self.limit = math.inf if limit is None else float(limit)
        self.clock = clock
        self.left_out: list[str] = []
        self._began, self._before = clock(), 0.0
        self._whole: Budget | None = None

    @classmethod
    def of(cls, limit: float | Budget | None) -> Budget:
        """A budget as it is, or one of so many seconds that begins here."""
        return limit if isinstance(limit, Budget) else cls(limit)

    @property
    def limited(self) -> bool:
        """Is there a limit?"""
        return math.isfinite(self.limit)

    @property
    def seconds(self) -> float:
        """What is gone, with what earlier parts of a resumed run took."""
        return self._before + self.clock() - self._began

    @property
    def left(self) -> float:
        """What is left; below 0 once it is overdrawn."""
        return self.limit - self.seconds

    def count(self, seconds: float) -> None:
        """Count what earlier parts of a resumed run took, unless more of them is counted already."""
        self._before = max(self._before, seconds)
        if self._whole is not None:
            self._whole.count(seconds)

    def share(self, part: float) -> Budget:
        """A budget from here on, of at most that part of the whole limit and of what is left."""
        share = Budget(max(min(part * self.limit, self.left), 1e-3) if self.limited else None, clock=self.clock)
        share._whole = self
        return share

    def leave_out(self, line: str) -> None:
        """Note what there was no time for."""
        self.left_out.append(line)
