"""What takes long says so: a step of work has words, and a total where it is known, for whoever listens.

Nothing is shown unless a program listens, as the command line does; lines for people go through `tell`.
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
    """One step of work: its words, how much of `total` is done (None: nobody knows), and when it began."""

    def __init__(self, words: str, total: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.words, self.total, self.done = words, total, 0.0
        self._clock, self._began = clock, clock()

    def advance(self, count: float = 1.0) -> None:
        """So much more is done."""
        self.done += count

    @property
    def seconds(self) -> float:
        """What is gone."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds that the rest takes at the pace of what is done, None where that is not known."""
        if self.total is None or self.done <= 0:
            return None
        return self.seconds / self.done * max(self.total - self.done, 0.0)


class Listener(Protocol):
    """Who hears of steps and lines; `quiet`: who wants neither."""

    @property
    def quiet(self) -> bool: ...
    def began(self, step: Step) -> None: ...
    def ended(self, step: Step) -> None: ...
    def told(self, line: str) -> None: ...


_LISTENER: ContextVar[Listener | None] = ContextVar("beamwood_listener", default=None)


@contextmanager
def heard_by(listener: Listener | None) -> Iterator[None]:
    """Within it steps and lines of this thread go to `listener`; None: to nobody, lines to stderr."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def is_quiet() -> bool:
    """Does whoever listens want nothing but results and errors?"""
    listener = _LISTENER.get()
    return listener is not None and listener.quiet


@contextmanager
def step(words: str, total: float | None = None) -> Iterator[Step]:
    """A step of work; what is done within it calls `advance`."""
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
    """A line for people, on stderr unless somebody listens."""
    listener = _LISTENER.get()
    if listener is None:
        print(line, file=sys.stderr, flush=True)
    else:
        listener.told(line)
