"""Search threads with a queue: callers before batches before warm-up, each in order; abandoned work is skipped.

Warm-up that has waited for long is next, as an overloaded service is given another model too: a fifth of one thread.

A thread that ends a brief search and finds another one waiting continues, and reports several results together: waking
thread and event loop for each costs half of such a search, as both wait for one interpreter. Brief searches that the
native core makes alone run on its own threads instead (`background`).

The narrowing of a search (`pressure` 0..1) comes from `admission`.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, Protocol, TypeVar

from beamwood.serve.admission import overloaded
from beamwood.serve.awaited import expire, leave, settle
from beamwood.serve.background import Background
from beamwood.serve.problems import late

__all__ = ["Engine", "InSteps", "Priority", "Ran"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
# The weight of a new search's time in the running mean.
_SHARE = 0.1
# Times are capped at this multiple of the mean: a search delayed, as by garbage collection, is no measure.
_MOST_TIMES = 4
_FIRST_GUESS = 0.005
# A lone search up to these seconds may run on the loop, where handing it over would cost half of it.
_BRIEF = 0.002
# The most brief results reported together: with more the first would wait long.
_TOGETHER = 8
# While others come before it, warm-up waits as long as so many searches take, and at most so many seconds: the trial of
# a model is of many searches.
_PATIENCE_SEARCHES, _PATIENCE = 4, 0.1
# The niceness of search threads above the event loop's.
_BEHIND = 4


class Priority(IntEnum):
    """The order of service."""

    CALLER = 0
    BATCH = 1
    WARM_UP = 2


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """The result of a search, the seconds that it waited and took, and its pressure."""

    value: T
    queued: float
    seconds: float
    pressure: float


class InSteps(Protocol[T_co]):
    """Work whose search the native core can make alone."""

    def __call__(self, pressure: float) -> T_co:
        """The work as a whole."""
        ...

    def begin(self, pressure: float) -> Any:
        """What precedes the search; returns its native task, None where the work has to be done as a whole."""
        ...

    def end(self, searched: float) -> T_co:
        """What follows the search, which took these seconds."""
        ...


class _Ticket:
    """A waiting search; its `future` is done once nobody waits for it any more."""

    __slots__ = ("brief", "deadline", "entered", "future", "loop", "pressure", "work")

    def __init__(
        self,
        work: Callable[[float], Any],
        loop: asyncio.AbstractEventLoop,
        entered: float,
        deadline: float,
        pressure: float,
        *,
        brief: bool,
    ) -> None:
        self.brief = brief
        self.work, self.loop, self.entered, self.deadline, self.pressure = work, loop, entered, deadline, pressure
        self.future: asyncio.Future[Any] = loop.create_future()


# A served ticket, and its result or error.
_Ended = tuple[_Ticket, Ran[Any] | None, BaseException | None]


class Engine:
    """Runs searches on `threads` threads; `run` and `run_here` are for the event loop only."""

    def __init__(self, threads: int, *, queued_rows: int = 4096) -> None:
        self.threads, self.queued_rows = threads, queued_rows
        self.seconds = _FIRST_GUESS
        """The mean CPU time of a search, without waiting for the interpreter."""
        self.running = 0
        """The searches that run on the engine's own threads."""
        self.long = 0
        """Waiting and running searches that are not brief: behind as many as threads a new one waits long."""
        self.expired = 0
        self._queues: tuple[deque[_Ticket], ...] = tuple(deque() for _ in Priority)
        # One permit for each ticket; threads block on it in C.
        self._permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._count = threading.Lock()
        self._threads = [
            threading.Thread(target=self._work, name=f"search-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()
        self._background = Background.open(threads, _BEHIND)

    def waiting(self, priority: Priority = Priority.CALLER) -> int:
        """The number of waiting searches."""
        native = self._background if priority is Priority.CALLER else None
        return len(self._queues[priority]) + (0 if native is None else len(native) - native.running)

    @property
    def searching(self) -> int:
        """The number of searches that run, on threads of either kind."""
        return self.running + (0 if self._background is None else self._background.running)

    @property
    def is_busy(self) -> bool:
        """Whether a search would have to wait."""
        return self.running + len(self._queues[0]) >= self.threads

    @property
    def is_brief(self) -> bool:
        """Whether searches are so short that handing one to a thread does not pay."""
        return self.seconds <= _BRIEF

    def run_here(self, work: Callable[[float], T], *, deadline: float, pressure: float = 0.0) -> Ran[T]:
        """The result of `work(pressure)` on the calling thread. Errors: "deadline" where it has passed; those of
        `work`.
        """
        if deadline <= time.monotonic():
            self.expired += 1
            raise late()
        return self._ran(work, 0.0, pressure)

    def _ran(self, work: Callable[[float], T], queued: float, pressure: float) -> Ran[T]:
        """Run it, and update the mean time."""
        began, processor = time.monotonic(), time.thread_time()
        value = work(pressure)
        self._took(time.thread_time() - processor)
        return Ran(value, queued, time.monotonic() - began, pressure)

    def _took(self, seconds: float) -> None:
        self.seconds += _SHARE * (min(seconds, _MOST_TIMES * self.seconds) - self.seconds)

    async def run_in_steps(self, work: InSteps[T], *, deadline: float, pressure: float = 0.0) -> Ran[T]:
        """The result of brief work, whose search runs on a native thread where it can. Errors: as `run`."""
        began = time.monotonic()
        task = None if self._background is None else work.begin(pressure)
        if task is None or self._background is None:
            return await self.run(work, deadline=deadline, pressure=pressure, brief=True)
        prepared = time.monotonic() - began
        try:
            await self._background.run(task, deadline)
        except BaseException:
            self.expired += 1
            raise
        self._took(task.processor)
        ended = time.monotonic()
        value = work.end(task.seconds)
        return Ran(value, task.waited, prepared + task.seconds + time.monotonic() - ended, pressure)

    async def run(
        self,
        work: Callable[[float], T],
        *,
        deadline: float,
        priority: Priority = Priority.CALLER,
        pressure: float = 0.0,
        brief: bool = False,
    ) -> Ran[T]:
        """The result of `work(pressure)` on a thread; `deadline` by `time.monotonic`; `brief`: may be reported together
        with others.

        Errors: `Problem` "overloaded" where too many batch rows wait, "deadline" where it passes; those of `work`. Work
        whose caller is cancelled, or whose deadline passes in the queue, never begins.
        """
        if priority is Priority.BATCH and len(self._queues[1]) >= self.queued_rows:
            raise overloaded(len(self._queues[1]) * self.seconds / self.threads)
        loop, now = asyncio.get_running_loop(), time.monotonic()
        ticket = _Ticket(work, loop, now, deadline, pressure, brief=brief)
        timer = loop.call_later(max(0.0, deadline - now), expire, ticket.future)
        self._queues[priority].append(ticket)
        self._permits.put(True)
        self.long += not brief
        try:
            ran: Ran[T] = await ticket.future
            return ran
        finally:
            self.long -= not brief
            leave(ticket.future)
            timer.cancel()

    def close(self) -> None:
        """Stop the threads after running work has ended."""
        for _ in self._threads:
            self._permits.put(False)
        for thread in self._threads:
            thread.join(timeout=10)
        if self._background is not None:
            self._background.close()

    def _work(self) -> None:
        _stand_behind()
        ended: list[_Ended] = []
        while self._permitted(ended):
            self._serve_next(ended)
        _tell(ended)

    def _permitted(self, ended: list[_Ended]) -> bool:
        """Wait for a ticket; results so far are reported first."""
        with suppress(queue.Empty):
            return self._permits.get_nowait()
        _tell(ended)
        return self._permits.get()

    def _serve_next(self, ended: list[_Ended]) -> None:
        # The ticket's references are released when it is reported, not with the next one.
        ticket = self._next()
        if not ticket.brief:
            _tell(ended)
        self._serve(ticket, ended)
        if not ticket.brief or len(ended) >= _TOGETHER:
            _tell(ended)

    def _serve(self, ticket: _Ticket, ended: list[_Ended]) -> None:
        began = time.monotonic()
        if ticket.future.done() or ticket.deadline <= began:
            self.expired += 1
            return
        with self._count:
            self.running += 1
        error: BaseException | None = None
        ran: Ran[Any] | None = None
        try:
            ran = self._ran(ticket.work, began - ticket.entered, ticket.pressure)
        except BaseException as raised:
            error = raised
        finally:
            with self._count:
                self.running -= 1
        ended.append((ticket, ran, error))

    def _next(self) -> _Ticket:
        last = self._queues[Priority.WARM_UP]
        with suppress(IndexError):
            if last and last[0].entered < time.monotonic() - min(_PATIENCE, _PATIENCE_SEARCHES * self.seconds):
                return last.popleft()
        while True:
            for waiting in self._queues:
                try:
                    return waiting.popleft()
                except IndexError:
                    continue


def _stand_behind() -> None:
    """Lower the priority of the calling thread below the event loop's, which does little but delays everyone."""
    if sys.platform == "linux":
        # Only Linux has priorities by thread; a container may forbid it.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(19, os.nice(0) + _BEHIND))


def _tell(ended: list[_Ended]) -> None:
    """Report results to the loop, and clear them."""
    if ended:
        # After the loop has ended nobody waits.
        with suppress(RuntimeError):
            ended[0][0].loop.call_soon_threadsafe(_deliver, tuple(ended))
        ended.clear()


def _deliver(ended: tuple[_Ended, ...]) -> None:
    for ticket, ran, error in ended:
        settle(ticket.future, ran, error)
