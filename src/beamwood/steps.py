"""Progress reporting: long work runs in a `step` with a description and, where known, a total.

Progress is shown only where a listener is set, as by the command line; messages for people go through `tell`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

__all__ = ["Listener", "Step", "heard_by", "is_quiet", "step", "tell"]


class Step:
    """One step of work: its description, how much of `total` is done (None: unknown), and when it began."""

    def __init__(self, words: str, total: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.words, self.total, self.done = words, total, 0.0
        self._clock, self._began = clock, clock()

    def advance(self, count: float = 1.0) -> None:
        """Count more of the total as done."""
        self.done += count

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Estimated seconds left at the pace so far; None where unknown."""
        if self.total is None or self.done <= 0:
            return None
        return self.seconds / self.done * max(self.total - self.done, 0.0)


class Listener(Protocol):
    """Receives steps and lines; `quiet`: it shows neither."""

    @property
    def quiet(self) -> bool: ...
    def began(self, step: Step) -> None: ...
    def ended(self, step: Step) -> None: ...
    def told(self, line: str) -> None: ...


_LISTENER: ContextVar[Listener | None] = ContextVar("beamwood_listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """A context in which steps and lines of this thread go to `listener`; None: no steps, lines to stderr."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def is_quiet() -> bool:
    """Whether only results and errors are to be shown."""
    listener = _LISTENER.get()
    return listener is not None and listener.quiet


@contextmanager
def step(words: str, total: float | None = None) -> Iterator[Step]:
    """A context for one step of work, which calls `advance`."""
    own, listener = Step(words, total), _LISTENER.get()
    if listener is None:
        yield own
        return
    listener.began(own)
    try:
        yield own
    finally:
        listener.ended(own)


def tell(line: str) -> None:
    """Show a line to people: through the listener, else on stderr."""
    listener = _LISTENER.get()
    if listener is None:
        print(line, file=sys.stderr, flush=True)
    else:
        listener.told(line)
