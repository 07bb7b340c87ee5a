"""Opening a store by its address."""

from __future__ import annotations

import re

from beamwood.errors import InputError, nearest
from beamwood.extras import asking_for
from beamwood.serve.store.protocol import HistoryStore

__all__ = ["check_address", "open_store"]

_KINDS = ("memory", "sqlite:", "redis://", "rediss://", "unix://", "valkey://", "postgresql://", "postgres://")


def open_store(address: str, *, read_only: bool = False) -> HistoryStore:
    """The store of `memory`, `sqlite:PATH`, `redis://...` (or valkey) or `postgresql://...`.

    `read_only`: for a SQLite file that a running server uses. Errors: `InputError` on an unknown address or a missing
    extra, `StoreUnavailable` if its server is down.
    """
    check_address(address)
    with asking_for(f"the store {address.split(':')[0]}"):
        if address == "memory":
            from beamwood.serve.store.memory import MemoryStore

            return MemoryStore()
        if address.startswith("sqlite:"):
            from beamwood.serve.store.sqlite import SqliteStore

            return SqliteStore(address.removeprefix("sqlite:"), read_only=read_only)
        if address.startswith(("redis://", "rediss://", "unix://", "valkey://")):
            from beamwood.serve.store.redis import RedisStore

            return RedisStore(address.replace("valkey://", "redis://", 1))
        if address.startswith(("postgresql://", "postgres://")):
            from beamwood.serve.store.postgres import PostgresStore

            return PostgresStore(address)
    raise AssertionError


def check_address(address: str) -> None:
    """Errors: an unknown address."""
    if address in _KINDS[1:]:
        raise InputError(
            f"the store {address!r} names no place; write sqlite:PATH, or {_KINDS[2]}HOST:PORT and the like"
        )
    if address != "memory" and not re.match(rf"(?:{'|'.join(_KINDS[1:])}).", address):
        # A password must not appear in a log.
        shown = re.sub(r"^([a-z+]*:)?.*@", r"\1//..@", address, flags=re.DOTALL)
        raise InputError(f"the store {shown!r} is unknown{nearest(shown, _KINDS)}")
