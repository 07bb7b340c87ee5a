"""Futures of work on other threads, whose callers may leave at any time."""

from __future__ import annotations

import asyncio
from typing import Any

__all__ = ["leave", "settle"]


def settle(future: asyncio.Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Set the result, or the error, unless one is set or the caller has left."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


def leave(future: asyncio.Future[Any]) -> None:
    """End waiting: an error that comes later, or that a cancelled caller has not seen, is reported to nobody."""
    if not future.cancel() and not future.cancelled():
        future.exception()
