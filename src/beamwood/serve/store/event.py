"""Stored events: user, item and time, with a key that makes a retried send idempotent."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Any

from beamwood.data.cells.ids import LONGEST
from beamwood.errors import InputError

__all__ = [
    "AHEAD_SECONDS",
    "UNTYPED",
    "Event",
    "Id",
    "Owner",
    "Session",
    "check_owner",
    "check_text",
    "owner_text",
    "read_id",
    "read_owner",
    "id_text",
]

Id = int | str
# The accepted lead of a client's clock.
AHEAD_SECONDS = 24 * 3600.0
UNTYPED = ""
"""The type of an event sent without one."""
# What no store accepts: a null, and halves of characters.
_INVALID = re.compile("[\0\ud800-\udfff]")
# The range of representable dates, in seconds since 1970.
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0


@dataclass(frozen=True, slots=True)
class Session:
    """A visitor without a user id; `HistoryStore.merge` moves its events to a user."""

    name: str


Owner = int | str | Session


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `time` is in seconds, UTC. `key` is an idempotency key: events with the same key count once.

    Without a key, events with equal user, item, time and type are duplicates. `timed` is False if the client sent no
    time: `time` is then that of its arrival, which differs for a retried send. Errors: `InputError` on values that no
    store accepts.
    """

    user: Owner
    item: Id
    time: float
    type: str = UNTYPED
    weight: float = 1.0
    key: str | None = None
    request_id: str | None = None
    timed: bool = True

    def __post_init__(self) -> None:
        check_owner(self.user)
        _check_id("item", self.item)
        if self.type != UNTYPED:
            check_text("type", self.type)
        for name, value in (("key", self.key), ("request_id", self.request_id)):
            if value is not None:
                check_text(name, value)
        for name, number in (("time", self.time), ("weight", self.weight)):
            if not math.isfinite(number):
                raise InputError(f"{name}={number} is not finite; give a finite number")
        if not _FIRST <= self.time <= _LAST:
            raise InputError(f"time={self.time:g} is outside the years 1 to 9999; give seconds since 1970")

    @property
    def identity(self) -> bytes:
        """16 bytes, equal for retried sends of an event."""
        return _digest("derived", *self._what) if self.key is None else _digest("key", self.key)

    @property
    def content(self) -> bytes:
        """16 bytes that differ if a key is reused with a different body."""
        if self.key is None:
            return self.identity
        time = repr(self.time) if self.timed else ""
        return _digest(*self._what[:2], time, self.type, repr(self.weight), self.request_id or "")

    @property
    def _what(self) -> tuple[str, str, str, str]:
        return owner_text(self.user), id_text(self.item), repr(self.time), self.type


def check_owner(owner: Owner) -> None:
    """Errors: `InputError` naming `user` or `session`, on an id that no store accepts."""
    _check_id("session" if isinstance(owner, Session) else "user", _bare(owner))


def id_text(name: Id) -> str:
    """An id as text with its type, so that 42 and "42" differ."""
    return f"n{name}" if isinstance(name, int) else f"t{name}"


def read_id(text: str) -> Id:
    """The inverse of `id_text`."""
    return int(text[1:]) if text[0] == "n" else text[1:]


def owner_text(owner: Owner) -> str:
    """A user or a session as text; the two never coincide."""
    return f"s{owner.name}" if isinstance(owner, Session) else id_text(owner)


def read_owner(text: str) -> Owner:
    """The inverse of `owner_text`."""
    return Session(text[1:]) if text[0] == "s" else read_id(text)


def _bare(owner: Owner) -> Id:
    return owner.name if isinstance(owner, Session) else owner


def _check_id(name: str, value: Any) -> None:
    if isinstance(value, str):
        check_text(name, value)
    elif isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise InputError(f"{name}={value!r} is not an id; give text, or a whole number from -2^63 to 2^64 - 1")


def check_text(name: str, value: str) -> None:
    """Errors: `InputError` naming it, on text that is empty or too long, or that no store accepts."""
    if not 0 < len(value) <= LONGEST:
        raise InputError(f"{name} has {len(value)} characters; give 1 to {LONGEST}")
    if _INVALID.search(value):
        raise InputError(f"{name}={value!a} holds a character that is not valid text; remove it")


def _digest(*parts: str) -> bytes:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        found.update(len(encoded).to_bytes(4, "big") + encoded)
    return found.digest()
