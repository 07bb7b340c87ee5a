"""Opening a store by its address."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from beamwood.errors import InputError, nearest
from beamwood.extras import asking_for
from beamwood.own_file import own_names
from beamwood.serve.store.protocol import HistoryStore

__all__ = ["absolute_address", "check_address", "open_store"]

_KINDS = ("memory", "sqlite:", "redis://", "rediss://", "unix://", "valkey://", "postgresql://", "postgres://")
# A user's own: a .py file, and what its `STORE` is called with.
_OWN = re.compile(rf"(?!{'|'.join(_KINDS[1:])})(.+?\.py)(?::(.*))?", re.DOTALL)


def open_store(address: str, *, read_only: bool = False) -> HistoryStore:
    """The store of `memory`, `sqlite:PATH`, `redis://...` (or valkey), `postgresql://...`, or `FILE.py:PLACE`.

    The last is what `STORE(place, read_only=...)` of a user's file returns. `read_only`: for a file that a running
    server uses. Errors: `InputError` on an unknown address or a missing extra, `StoreUnavailable` if it is down.
    """
    check_address(address)
    own = _OWN.fullmatch(address)
    if own is not None:
        return _store_in(own[1])(own[2] or "", read_only=read_only)
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
    """Errors: an unknown address, or a file without a store."""
    if (own := _OWN.fullmatch(address)) is not None:
        _store_in(own[1])
        return
    if address in _KINDS[1:]:
        raise InputError(
            f"the store {address!r} names no place; write sqlite:PATH, or {_KINDS[2]}HOST:PORT and the like"
        )
    if os.path.isfile(address):
        raise InputError(f"the store {address!r} is a path alone; write sqlite:{address}")
    if address != "memory" and not re.match(rf"(?:{'|'.join(_KINDS[1:])}).", address):
        # A password must not appear in a log.
        shown = re.sub(r"^([a-z+]*:)?.*@", r"\1//..@", address, flags=re.DOTALL)
        raise InputError(f"the store {shown!r} is unknown{nearest(shown, _KINDS)}")


def absolute_address(address: str) -> str:
    """The address with the path of a SQLite file, or of a user's file, from the root."""
    if (own := _OWN.fullmatch(address)) is not None:
        return f"{Path(own[1]).absolute()}:{own[2] or ''}"
    if address.startswith("sqlite:"):
        return f"sqlite:{Path(address.removeprefix('sqlite:')).absolute()}"
    return address


def _store_in(file: str) -> Callable[..., HistoryStore]:
    """The `STORE` of a user's file. Errors: those of `own_names`; there is none."""
    store = own_names(file, "store")[0].get("STORE")
    if not callable(store):
        raise InputError(f"the store file {file} defines no STORE; write STORE = MyStore, the class of the store")
    made: Callable[..., HistoryStore] = store
    return made
