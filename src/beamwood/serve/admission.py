"""Who is let in: a process that cannot keep up says so at once, whatever it lacks: search threads or the interpreter.

The estimated wait of a caller is how many are being answered times the mean time between two answers while the process
was busy. HTTP costs as much as a fast search, so the queue of searches alone does not tell.
"""

from __future__ import annotations

import time

from beamwood.serve.problems import Problem

__all__ = ["Admission", "overloaded"]

# How much a new time counts in the mean.
_SHARE = 0.02
_FIRST_GUESS = 0.001


class Admission:
    """Counts callers between `enter` and `leave`, both for the event loop alone.

    `threads`: how many searches run side by side; twice as many callers are let in whatever the estimate says.
    `coming`: who has been read, and is to enter in this round of the loop.
    """

    def __init__(self, threads: int, *, max_wait: float) -> None:
        self.max_wait, self.threads, self.always = max_wait, threads, 2 * threads
        self.callers = self.coming = 0
        self.seconds = _FIRST_GUESS
        self._last = 0.0
        self._was_busy = False

    @property
    def estimated_wait(self) -> float:
        """Seconds until a caller who came now would be answered."""
        return (self.callers + self.coming) * self.seconds

    @property
    def refusal(self) -> Problem | None:
        """Why who is read now is not let in: the wait would be above `max_wait`. None where one is."""
        return self._refusal(self.callers + self.coming)

    def _refusal(self, before: int) -> Problem | None:
        wait = before * self.seconds
        return overloaded(wait) if wait > self.max_wait and before >= self.always else None

    def come(self) -> None:
        """Somebody has been read, and `came` once the round of the loop got there."""
        self.coming += 1

    def came(self) -> None:
        """See `come`."""
        self.coming -= 1

    def enter(self) -> None:
        """Let a caller in. Errors: `Problem` "overloaded" where one is not."""
        # Who was read later does not come before.
        refusal = self._refusal(self.callers)
        if refusal is not None:
            raise refusal
        self.callers += 1

    def leave(self) -> None:
        """A caller has been answered, or is gone."""
        now = time.monotonic()
        if self._was_busy:
            self.seconds += _SHARE * (now - self._last - self.seconds)
        self.callers -= 1
        # Fewer than are always let in, so that a mean that was once too long is seen to be so.
        self._last, self._was_busy = now, self.callers >= self.threads


def overloaded(wait: float) -> Problem:
    """What is said to who would wait so many seconds."""
    milliseconds = max(1, round(1000 * wait))
    return Problem("overloaded", "too many requests wait; try again later", retry_after_ms=milliseconds)
