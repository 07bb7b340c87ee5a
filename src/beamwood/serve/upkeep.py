"""Background tasks: watching loop and store, and looking for newer models."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from beamwood.serve.awaited import settle
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service

__all__ = ["cancel_all", "close_in_time", "follow_folder", "load_changed", "upkeep"]

_LAG_EVERY, _LOOK_EVERY = 0.1, 2.0
_AGAIN_AFTER = 1.0
# What the store may take for the last writes.
_CLOSE_SECONDS = 5.0


@asynccontextmanager
async def upkeep(service: Service) -> AsyncIterator[None]:
    """A context in which these tasks run."""
    service.log.begin()
    works: list[Callable[[], Awaitable[None]]] = [partial(_watch_lag, service)]
    works += [service.histories.keep_up, service.outcomes.keep_up, service.outcomes.keep_judging]
    works += [service.experiments.keep_up, service.catalogue.keep_up, service.first_events.keep_up]
    tasks = [asyncio.create_task(_lasting(service, work)) for work in works]
    try:
        yield
    finally:
        await cancel_all(tasks)
        await service.first_events.finish()


async def close_in_time(service: Service) -> None:
    """Close the service; it stays unclosed where its store does not answer in time."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def close() -> None:
        error = None
        try:
            service.close()
        except BaseException as raised:
            error = raised
        # Nobody waits after the loop has ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, ended, None, error)

    service.closing = True
    # The loop goes on, for a second signal; a thread of a pool would be waited for.
    threading.Thread(target=close, name="closing", daemon=True).start()
    timer = loop.call_later(_CLOSE_SECONDS, settle, ended)
    try:
        await ended
    finally:
        timer.cancel()


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks, and wait for them; one that continues is cancelled again."""
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_AFTER)


async def _lasting(service: Service, work: Callable[[], Awaitable[None]]) -> None:
    """Run work forever: errors are logged, and it is restarted."""
    while True:
        try:
            await work()
        except Exception as error:
            print(f"upkeep: {''.join(traceback.format_exception(error))}", file=sys.stderr, flush=True)
            service.log.said("upkeep_failed", reason=f"{type(error).__name__}: {error}")
            await asyncio.sleep(_AGAIN_AFTER)


async def _watch_lag(service: Service) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_EVERY
        await asyncio.sleep(_LAG_EVERY)
        service.metrics.lag.observe(max(0.0, loop.time() - due))


async def follow_folder(service: Service, folder: Path) -> None:
    """Load the target of `folder` whenever it changes, as long as the service runs."""
    await _lasting(service, partial(_follow, service, folder))


async def _follow(service: Service, folder: Path) -> None:
    """An unreadable folder is reported once."""
    said = ""
    while True:
        await asyncio.sleep(_LOOK_EVERY)
        try:
            await load_changed(service, folder)
            said = ""
        except OSError as error:
            if str(error) != said:
                said = str(error)
                service.log.said("watch_failed", reason=said)


async def load_changed(service: Service, folder: Path, *, anew: bool = False) -> None:
    """Load the new target of `folder`, if any; see `Loader.changed`. Errors: `OSError`."""
    path = await asyncio.to_thread(service.loader.changed, folder, anew=anew)
    if path is not None:
        # The refusal is in the log.
        with suppress(Problem):
            await service.loader.load(path, waits=True)
