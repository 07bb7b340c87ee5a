"""What runs beside the requests: writing the log, watching loop and store, and looking for newer models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from beamwood.serve.problems import Problem
from beamwood.serve.service import Service

__all__ = ["follow", "upkeep"]

_LAG_EVERY, _LOOK_EVERY = 0.1, 2.0


@asynccontextmanager
async def upkeep(service: Service) -> AsyncIterator[None]:
    """Within it, these tasks run."""
    works = [service.log.keep_writing(), _watch_lag(service), service.histories.keep_up()]
    works += [service.answers.keep_up(), service.experiments.keep_up(), service.catalogue.keep_up()]
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch_lag(service: Service) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_EVERY
        await asyncio.sleep(_LAG_EVERY)
        service.metrics.lag.observe(max(0.0, loop.time() - due))


async def follow(service: Service, folder: Path, *, every: float = _LOOK_EVERY) -> None:
    """Load what `folder` comes to mean, whenever that changes; a model that was refused is not tried again."""
    assert service.loader is not None
    refused: set[Path] = set()
    while True:
        await asyncio.sleep(every)
        path = await asyncio.to_thread(service.loader.changed, folder)
        if path is not None and path not in refused:
            with suppress(Problem):
                await service.loader.load(path)
                continue
            refused.add(path)
