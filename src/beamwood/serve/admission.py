"""Admission control: an overloaded process refuses at once, whether it lacks threads or the interpreter.

The estimated wait of a caller is the number of callers before it times the mean time between two answers while busy.
HTTP costs as much as a fast search, so the search queue alone is no measure. Only a few requests are processed at a
time, and one is begun in each iteration of the event loop, a few where many wait: waiting requests cost next to
nothing, hundreds of begun ones evict each other from CPU caches, and timers wait for a few searches at most.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from beamwood.serve.problems import Problem

__all__ = ["Admission", "overloaded"]

# The weight of a new time in the running mean.
_SHARE = 0.02
_FIRST_GUESS = 0.001
# Requests processed at a time for each search thread: searching, or waiting for the store.
_AT_ONCE = 16
# Begun in one iteration of the loop where more than `_MANY` wait: what arrives meanwhile is read together, so that a
# refusal costs less.
_BURST, _MANY = 4, 32


class Admission:
    """Counts callers until they `leave`; used by the event loop only.

    `threads`: concurrent searches; twice as many callers are admitted whatever the estimate.
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
        """The callers waiting for their turn."""
        return len(self._waiting)

    @property
    def before(self) -> int:
        """The callers being answered or waiting."""
        return self.callers + len(self._waiting)

    @property
    def estimated_wait(self) -> float:
        """Seconds until a new caller would be answered."""
        return self.before * self.seconds

    @property
    def pressure(self) -> float:
        """0: searches need no narrowing, 1: as narrow as possible; it rises from half of `max_wait`."""
        half = self.max_wait / 2
        return min(1.0, max(0.0, (self.estimated_wait - half) / half)) if half > 0 else 0.0

    @property
    def refusal(self) -> Problem | None:
        """The refusal of a new caller: the wait would exceed `max_wait`. None if admitted."""
        wait = self.estimated_wait
        return overloaded(wait) if wait > self.max_wait and self.before >= self.always else None

    def enter(self) -> None:
        """Admit a caller at once. Errors: `Problem` "overloaded"."""
        refusal = self.refusal
        if refusal is not None:
            raise refusal
        self.callers += 1

    def wait(self, begin: Callable[[], bool]) -> None:
        """Queue a caller; `begin` starts it in its turn, after which it counts; it returns false if the client left."""
        self._waiting.append(begin)
        if not self._has_begun:
            self._next()

    def leave(self) -> None:
        """A caller was answered, or left."""
        now = time.monotonic()
        if self._was_busy:
            self.seconds += _SHARE * (now - self._last - self.seconds)
        self.callers -= 1
        # Measured below the always admitted number, so that too long a mean can recover.
        self._last, self._was_busy = now, self.before >= self.threads
        if self._waiting and not self._has_begun:
            # A finished answer is sent before the next request begins.
            self._has_begun = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin the next requests, the first of a loop iteration."""
        self._has_begun = bool(self._waiting) and self.callers < _AT_ONCE * self.threads
        if self._has_begun:
            asyncio.get_running_loop().call_soon(self._next)
        left = _BURST if len(self._waiting) > _MANY else 1
        while left and self._waiting and self.callers < _AT_ONCE * self.threads:
            # It counts while it begins.
            self.callers += 1
            if self._waiting.popleft()():
                left -= 1
            else:
                self.callers -= 1


def overloaded(wait: float) -> Problem:
    """The refusal of a caller who would wait this many seconds."""
    milliseconds = max(1, round(1000 * wait))
    return Problem("overloaded", "too many requests wait; try again later", retry_after_ms=milliseconds)
