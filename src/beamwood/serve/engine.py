"""T threads that search: who waits longest is next, callers before batches before warm-up; what nobody awaits is left.

The estimated wait is the queue times the mean time of a search, divided by T. Above half of `max_wait` searches are
narrowed (`pressure` 0..1), above `max_wait` callers are refused at once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from beamwood.serve.admission import overloaded
from beamwood.serve.problems import Problem

__all__ = ["Engine", "Priority", "Ran"]

T = TypeVar("T")
# How much a new search's time counts in their mean.
_SHARE = 0.1
_FIRST_GUESS = 0.002
# A search as short as this may run on the loop, where handing it over would cost half of it.
_BRIEF = 0.001


class Priority(IntEnum):
    """Who is served first."""

    CALLER = 0
    BATCH = 1
    WARM_UP = 2


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """What came of a search, the seconds that it waited and took, and the pressure under which it ran."""

    value: T
    queued: float
    seconds: float
    pressure: float


class _Ticket:
    """A search that waits."""

    __slots__ = ("deadline", "entered", "future", "gone", "loop", "work")

    def __init__(
        self, work: Callable[[float], Any], loop: asyncio.AbstractEventLoop, entered: float, deadline: float
    ) -> None:
        self.work, self.loop, self.entered, self.deadline = work, loop, entered, deadline
        self.future: asyncio.Future[Any] = loop.create_future()
        self.gone = False


class Engine:
    """Runs searches on `threads` threads; `run` and `run_here` are for the event loop alone."""

    def __init__(self, threads: int, *, max_wait: float, queued_rows: int = 4096) -> None:
        self.threads, self.max_wait, self.queued_rows = threads, max_wait, queued_rows
        self.seconds = _FIRST_GUESS
        self.running = 0
        self.expired = 0
        self._queues: tuple[deque[_Ticket], ...] = tuple(deque() for _ in Priority)
        # One permit for each ticket: the threads wait here, in C.
        self._permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._count = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"search-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def waiting(self, priority: Priority = Priority.CALLER) -> int:
        """How many wait."""
        return len(self._queues[priority])

    @property
    def estimated_wait(self) -> float:
        """Seconds that a caller would wait."""
        return len(self._queues[0]) * self.seconds / self.threads

    @property
    def is_busy(self) -> bool:
        """Would a search have to wait?"""
        return self.running + len(self._queues[0]) >= self.threads

    @property
    def pressure(self) -> float:
        """0: no search need be narrowed, 1: as far as they may be."""
        half = self.max_wait / 2
        return min(1.0, max(0.0, (self.estimated_wait - half) / half)) if half > 0 else 0.0

    @property
    def is_brief(self) -> bool:
        """Do searches take so little that handing one to a thread would not pay?"""
        return self.seconds <= _BRIEF

    def run_here(self, work: Callable[[float], T]) -> Ran[T]:
        """What `work` gives, on the calling thread. Errors: what it raises."""
        return self._ran(work, 0.0, 0.0)

    def _ran(self, work: Callable[[float], T], queued: float, pressure: float) -> Ran[T]:
        """Do it, and count what it took in the mean."""
        began = time.monotonic()
        value = work(pressure)
        seconds = time.monotonic() - began
        self.seconds += _SHARE * (seconds - self.seconds)
        return Ran(value, queued, seconds, pressure)

    async def run(self, work: Callable[[float], T], *, deadline: float, priority: Priority = Priority.CALLER) -> Ran[T]:
        """What `work(pressure)` gives on a thread; `deadline` by `time.monotonic`.

        Errors: `Problem` "overloaded" at once where it would wait too long, "deadline" where it passes; what `work`
        raises. When the caller is cancelled or the deadline passes in the queue, the work is never begun.
        """
        wait = self.estimated_wait
        if priority is Priority.CALLER and wait > self.max_wait:
            raise overloaded(wait)
        if priority is Priority.BATCH and len(self._queues[1]) >= self.queued_rows:
            raise overloaded(len(self._queues[1]) * self.seconds / self.threads)
        loop, now = asyncio.get_running_loop(), time.monotonic()
        ticket = _Ticket(work, loop, now, deadline)
        timer = loop.call_later(max(0.0, deadline - now), _expire, ticket)
        self._queues[priority].append(ticket)
        self._permits.put(True)
        try:
            ran: Ran[T] = await ticket.future
            return ran
        finally:
            ticket.gone = True
            timer.cancel()

    def close(self) -> None:
        """End the threads once what runs has ended."""
        for _ in self._threads:
            self._permits.put(False)
        for thread in self._threads:
            thread.join(timeout=10)

    def _work(self) -> None:
        # What a ticket holds is let go when it is done, not when the next one comes.
        while self._permits.get():
            self._serve(self._next())

    def _serve(self, ticket: _Ticket) -> None:
        began = time.monotonic()
        if ticket.gone or ticket.deadline <= began:
            self.expired += 1
            return
        pressure = self.pressure
        with self._count:
            self.running += 1
        error: BaseException | None = None
        ran: Ran[Any] | None = None
        try:
            ran = self._ran(ticket.work, began - ticket.entered, pressure)
        except BaseException as raised:
            error = raised
        finally:
            with self._count:
                self.running -= 1
        _tell(ticket, ran, error)

    def _next(self) -> _Ticket:
        while True:
            for waiting in self._queues:
                try:
                    return waiting.popleft()
                except IndexError:
                    continue


def _tell(ticket: _Ticket, ran: Ran[Any] | None, error: BaseException | None) -> None:
    # Once the loop has ended, nobody waits.
    with suppress(RuntimeError):
        ticket.loop.call_soon_threadsafe(_deliver, ticket.future, ran, error)


def _deliver(future: asyncio.Future[Any], ran: Ran[Any] | None, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(ran)
    else:
        future.set_exception(error)


def _expire(ticket: _Ticket) -> None:
    ticket.gone = True
    if not ticket.future.done():
        message = "the answer was not ready in time; raise deadline_ms (or --timeout), or ask later"
        ticket.future.set_exception(Problem("deadline", message))
