"""What a clock that jumps ahead may say is old: it is believed later, so that somebody can mend it."""

from __future__ import annotations

from collections import deque

__all__ = ["DAY", "Clock", "Steady"]

DAY = 86400.0
# Less is a clock that runs unevenly.
_JUMP = 1.0


class Clock:
    """The wall clock, against one that never jumps; all times in seconds.

    `last`: the time that was believed last, by this process or an earlier one, None where there was none. A service
    that stood still for more than a day is ahead of it too.
    """

    def __init__(self, last: float | None, now: float, monotonic: float) -> None:
        self._last, self._since = now if last is None else last, monotonic
        self._doubted: float | None = None

    def believed(self, now: float, monotonic: float) -> float:
        """The time: `now`, unless that is more than a day ahead, and has been so for less than a day."""
        expected = self._last + monotonic - self._since
        if now > expected + DAY:
            self._doubted = monotonic if self._doubted is None else self._doubted
            if monotonic - self._doubted < DAY:
                return expected
        self._last, self._since, self._doubted = max(now, expected), monotonic, None
        return now


class Steady:
    """The wall clock without its jumps ahead, each for `seconds`: what is kept for so long stays so long."""

    def __init__(self, seconds: float, now: float, monotonic: float) -> None:
        self._seconds, self._now, self._since = seconds, now, monotonic
        self._jumps: deque[tuple[float, float]] = deque()

    def at(self, now: float, monotonic: float) -> float:
        """The time by it."""
        ahead = now - self._now - (monotonic - self._since)
        self._now, self._since = now, monotonic
        if ahead > _JUMP:
            self._jumps.append((monotonic, ahead))
        while self._jumps and monotonic - self._jumps[0][0] > self._seconds:
            self._jumps.popleft()
        return now - sum(size for _, size in self._jumps)
