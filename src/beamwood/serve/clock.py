"""Whether the clock may say what is old: one that jumps ahead is believed a day later, so that somebody can mend it."""

from __future__ import annotations

__all__ = ["DAY", "Clock"]

DAY = 86400.0


class Clock:
    """The wall clock, against one that never jumps; all times in seconds.

    `last`: the time that was believed last, by this process or an earlier one, None where there was none. A service
    that stood still for more than a day is ahead of it too.
    """

    def __init__(self, last: float | None, now: float, monotonic: float) -> None:
        self._last, self._since = now if last is None else last, monotonic
        self._doubted: float | None = None

    def is_believed(self, now: float, monotonic: float) -> bool:
        """Is it not more than a day ahead, or has it been so for a day?"""
        expected = self._last + monotonic - self._since
        if now > expected + DAY:
            self._doubted = monotonic if self._doubted is None else self._doubted
            if monotonic - self._doubted < DAY:
                return False
        self._last, self._since, self._doubted = max(now, expected), monotonic, None
        return True
