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
    that stood still for more than a day is ahead of it too. `doubted`: the wall clock's own time at which an earlier
    process began to doubt it, None if it did not.
    """

    def __init__(self, last: float | None, now: float, monotonic: float, doubted: float | None = None) -> None:
        self.last = now if last is None else last
        """The time that was believed last."""
        # A clock that was set back since, or jumped further, is not the one that was doubted.
        self.doubted = doubted if doubted is not None and doubted <= now < doubted + 2 * DAY else None
        """The wall clock's own time at which the doubt began, None while it is believed."""
        self._since = monotonic
        # The start of the doubt by the other clock, as a further jump must not end it.
        self._doubted_at = monotonic - (now - (self.doubted or now))

    def believed(self, now: float, monotonic: float) -> float:
        """The time: `now`, unless that is more than a day ahead, and has been so for less than a day."""
        expected = self.last + monotonic - self._since
        if now > expected + DAY:
            if self.doubted is None:
                self.doubted, self._doubted_at = now, monotonic
            if monotonic - self._doubted_at < DAY:
                return expected
        self.last, self._since, self.doubted = max(now, expected), monotonic, None
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
