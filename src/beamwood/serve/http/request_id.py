"""Unguessable ids of requests: 64 random bits each, read from the system in blocks."""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["new_id"]

_BYTES, _AT_ONCE = 8, 256


def _ids() -> Iterator[str]:
    while True:
        drawn = os.urandom(_BYTES * _AT_ONCE).hex()
        for start in range(0, len(drawn), 2 * _BYTES):
            yield drawn[start : start + 2 * _BYTES]


_drawn = _ids()


def new_id() -> str:
    """Another id; for the event loop's thread only."""
    return next(_drawn)
