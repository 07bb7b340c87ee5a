"""Searches on the native core's own threads, which need no interpreter; the event loop learns of their ends together.

A Python thread and the event loop wait for each other's interpreter twice in a search, which costs half of a brief one.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from typing import Any, Self

from beamwood.kernels.dispatch import native
from beamwood.serve.awaited import expire, leave, settle

__all__ = ["Background"]

_READ_BYTES = 4096
# Seconds to a deadline that is as good as none.
_LONGEST = 1e9


class Background:
    """Native threads, and the pipe by which they wake the event loop; used by the loop only.

    `behind`: how much higher their niceness is than the caller's, on Linux.
    """

    def __init__(self, module: Any, threads: int, behind: int) -> None:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self._threads, self._num_threads = module.Background(threads, behind, self._write), threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[Any, asyncio.Future[None]] = {}

    @classmethod
    def open(cls, threads: int, behind: int) -> Self | None:
        """None where the native core, or a pipe that an event loop can watch, is missing."""
        module = native()
        return None if module is None or os.name != "posix" else cls(module, threads, behind)

    def __len__(self) -> int:
        """The searches that wait or run."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """The searches that run: each thread has one while any wait."""
        return min(len(self), self._num_threads)

    async def run(self, task: Any, deadline: float) -> None:
        """Wait until a native task ran, whose result may be an error. Errors: `Problem` "deadline" where that, by
        `time.monotonic`, passes first.

        A task whose caller is cancelled, or whose deadline passes in the queue, never begins.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            loop.add_reader(self._read, self._collect)
            self._loop = loop
        seconds = min(max(0.0, deadline - time.monotonic()), _LONGEST)
        self._threads.submit(task, seconds)
        ended = self._waiting[task] = loop.create_future()
        timer = loop.call_later(seconds, expire, ended)
        try:
            await ended
        except BaseException:
            task.abandon()
            raise
        finally:
            leave(ended)
            timer.cancel()

    def _collect(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read, _READ_BYTES)
        for task in self._threads.ended():
            ended = self._waiting.pop(task)
            if not task.ran:
                expire(ended)
            else:
                settle(ended)

    def close(self) -> None:
        """End the threads after their running searches."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.remove_reader, self._read)
        self._threads.close()
        for end in (self._read, self._write):
            os.close(end)
