"""Who is let in, and when: a process that cannot keep up says so at once, whatever it lacks, threads or interpreter.

The estimated wait of a caller is how many are before it times the mean time between two answers while the process was
busy. HTTP costs as much as a fast search, so the queue of searches alone does not tell. Only a few are answered at a
time, and one is begun in a round of the event loop: a request that has not begun costs next to nothing, hundreds that
have begun push each other out of the processor's caches, and timers wait for one search at most.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from beamwood.serve.problems import Problem

__all__ = ["Admission", "overloaded"]

# How much a new time counts in the mean.
_SHARE = 0.02
_FIRST_GUESS = 0.001
# How many are answered at a time, for each search thread: those that search, and those that wait for the store.
_AT_ONCE = 8


class Admission:
    """Counts callers until they `leave`; for the event loop alone.

    `threads`: how many searches run side by side; twice as many callers are let in whatever the estimate says.
    """

    def __init__(self, threads: int, *, max_wait: float) -> None:
        self.max_wait, self.threads, self.always = max_wait, threads, 2 * threads
        self.callers = 0
        self.seconds = _FIRST_GUESS
        self._last = 0.0
        self._was_busy = False
        self._waiting: deque[Callable[[], bool]] = deque()
        self._has_begun = False

    @property
    def waiting(self) -> int:
        """How many callers wait for their turn."""
        return len(self._waiting)

    @property
    def before(self) -> int:
        """How many callers are answered or wait."""
        return self.callers + len(self._waiting)

    @property
    def estimated_wait(self) -> float:
        """Seconds until a caller who came now would be answered."""
        return self.before * self.seconds

    @property
    def pressure(self) -> float:
        """0: no search need be narrowed, 1: as far as they may be; it begins at half of `max_wait`."""
        half = self.max_wait / 2
        return min(1.0, max(0.0, (self.estimated_wait - half) / half)) if half > 0 else 0.0

    @property
    def refusal(self) -> Problem | None:
        """Why who came now is not let in: the wait would be above `max_wait`. None where one is."""
        wait = self.estimated_wait
        return overloaded(wait) if wait > self.max_wait and self.before >= self.always else None

    def enter(self) -> None:
        """Let a caller in at once. Errors: `Problem` "overloaded" where one is not."""
        refusal = self.refusal
        if refusal is not None:
            raise refusal
        self.callers += 1

    def wait(self, begin: Callable[[], bool]) -> None:
        """Let a caller in, who is begun by `begin` in its turn and then counts; false: it is gone."""
        self._waiting.append(begin)
        if not self._has_begun:
            self._next()

    def leave(self) -> None:
        """A caller has been answered, or is gone."""
        now = time.monotonic()
        if self._was_busy:
            self.seconds += _SHARE * (now - self._last - self.seconds)
        self.callers -= 1
        # Fewer than are always let in, so that a mean that was once too long is seen to be so.
        self._last, self._was_busy = now, self.before >= self.threads
        if self._waiting and not self._has_begun:
            # Whose answer is ready does not wait for the next one's.
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin the next, the first of a round of the loop."""
        self._has_begun = bool(self._waiting) and self.callers < _AT_ONCE * self.threads
        if self._has_begun:
            asyncio.get_running_loop().call_soon(self._next)
        while self._waiting and self.callers < _AT_ONCE * self.threads:
            self.callers += 1
            if self._waiting.popleft()():
                return
            self.callers -= 1


def overloaded(wait: float) -> Problem:
    """What is said to who would wait so many seconds."""
    milliseconds = max(1, round(1000 * wait))
    return Problem("overloaded", "too many requests wait; try again later", retry_after_ms=milliseconds)
