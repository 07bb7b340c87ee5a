"""Futures of work on other threads, whose callers may leave at any time."""

from __future__ import annotations

import asyncio
from typing import Any

from beamwood.serve.problems import late

__all__ = ["expire", "leave", "settle"]


def settle(future: asyncio.Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Set the result, or the error, unless one is set or the caller has left."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def expire(future: asyncio.Future[Any]) -> None:
    """Set the error of a deadline that has passed, as `settle`."""
    settle(future, error=late())


def leave(future: asyncio.Future[Any]) -> None:
    """End waiting: an error that comes later, or that a cancelled caller has not seen, is reported to nobody."""
    if not future.cancel() and not future.cancelled():
        future.exception()
