"""The contract of history stores, and their data types.

An acknowledged append is committed. A history is ordered by (time, seq), so late events are sorted in. An untimed event
is at least as late as its owner's events before it, whatever the clocks of processes say. A read after an acknowledged
append sees it, from any process on the same store.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from beamwood.errors import InputError
from beamwood.serve.store.event import Event, Id, Owner, Session

__all__ = [
    "Answered",
    "KEY_SECONDS",
    "Appended",
    "HistoryStore",
    "KeyReused",
    "LOOKED_THROUGH",
    "Record",
    "Retention",
    "StoreUnavailable",
    "Stored",
    "later_tombstone",
    "stored_history",
]


KEY_SECONDS = 86400.0
"""The key of an event that retention removed is known for so long after that: a client may send the event again."""

LOOKED_THROUGH = 20_000
"""The latest events of an owner among which those of asked types are looked for, so that no read takes long."""


class StoreUnavailable(Exception):
    """The store cannot be reached, or a write failed; the write was not acknowledged."""


class KeyReused(InputError):
    """An idempotency key was reused with a different body; nothing of the append was stored."""

    def __init__(self, key: str | None) -> None:
        super().__init__(f"key={key!r} was used for another event; give each event a key of its own")


@dataclass(frozen=True, slots=True)
class Appended:
    """The places of an append's new events, in order, and the number of duplicates; `seq`: the store's last sequence
    number after it.
    """

    new: Sequence[int]
    duplicates: int
    seq: int

    @property
    def accepted(self) -> int:
        """The number of new events."""
        return len(self.new)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored event without its key; `seq` grows in commit order."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class Stored:
    """The items of a history, oldest first, with the times and types of their events.

    `seq`: the owner's last sequence number, 0 without events; `erased`: the time of the owner's tombstone, or of a
    session's merge, whichever is later, if any.
    """

    items: tuple[Id, ...] = ()
    times: tuple[float, ...] = ()
    types: tuple[str, ...] = ()
    seq: int = 0
    erased: float | None = None


def later_tombstone(latest: float | None, now: float) -> float:
    """The time of a new tombstone or merge: `now`, or just after the latest."""
    return now if latest is None else max(now, math.nextafter(latest, math.inf))


def stored_history(records: Sequence[Record], seq: int, erased: float | None) -> Stored:
    """The history of records that are ordered oldest first."""
    events = [record.event for record in records]
    items, times = tuple(event.item for event in events), tuple(event.time for event in events)
    return Stored(items, times, tuple(event.type for event in events), seq, erased)


class Answered(Struct, frozen=True, gc=False):
    """A recommendation; `group`: the compared unit (experiment, arm, model); `text`: data to explain the answer.

    `erased`: that of the history it was given by (see `Stored`); `noted` does not return it.
    """

    request_id: str
    owner: Owner | None
    time: float
    group: str
    items: tuple[Id, ...]
    text: str = ""
    erased: float | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention of events: their maximum number per owner, and their maximum age in days. None: unlimited."""

    keep_events: int | None = None
    keep_days: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("keep_events", self.keep_events), ("keep_days", self.keep_days)):
            if value is not None and not value > 0:
                raise InputError(f"{name}={value} is not above 0; leave it out to keep everything")

    def oldest(self, now: float) -> float:
        """The time in seconds before which events are deleted."""
        return -math.inf if self.keep_days is None else now - self.keep_days * 86400


class HistoryStore(Protocol):
    """An append-only log of events. Every method may be called from any thread.

    `kind` is "memory", "sqlite", "redis", "postgres" or a word of one's own; `durable`: whether an acknowledged append
    is kept, also through a power loss. Errors: `StoreUnavailable` from every method if the store is down.
    """

    kind: str
    durable: bool

    def append(self, events: Sequence[Event]) -> Future[Appended]:
        """Append all events in one transaction; the future completes after the commit. Errors: `KeyReused`.

        It does not wait, as the service calls it on its event loop; see `GroupWriter`.
        """
        ...

    def history(
        self,
        owner: Owner,
        *,
        after: float = -math.inf,
        last: int | None = None,
        until: int | None = None,
        types: Collection[str] | None = None,
    ) -> Stored:
        """The owner's `last` events with a time above `after` and one of `types`; None: any type.

        `until`: the highest seq to include. `types` are looked for among the latest `LOOKED_THROUGH` of them alone.
        """
        ...

    def page(self, owner: Owner, *, after: int = 0, limit: int = 100) -> list[Record]:
        """The owner's next `limit` events with a seq above `after`, by seq."""
        ...

    def erase(self, owner: Owner, now: float) -> tuple[int, float]:
        """Delete the owner's events and answers, and set a tombstone; return the number of events and its time.

        The time is `now`, or just after the latest tombstone and the owner's merge: times grow in commit order,
        whatever the clocks say.
        """
        ...

    def erased(self, after: float = -math.inf) -> Mapping[Owner, float]:
        """The tombstones with a time above `after`: the latest erasure of each owner."""
        ...

    def merge(self, session: Session, user: Id, now: float) -> int:
        """Move the session's events, with new seqs, and its answers to the user; return the number of events.

        Its time, `now` or just after the session's tombstone and merge, is known for `KEY_SECONDS`.
        """
        ...

    def owners(self) -> Iterator[Owner]:
        """Every owner with an event once, in any order."""
        ...

    def records(self) -> Iterator[Record]:
        """Every event once, in any order."""
        ...

    def compact(self, retention: Retention, now: float, owners: int = 500) -> int:
        """Apply the retention to the next `owners` owners, in turn over calls; return the number of deleted events.

        Appends wait for a few thousand deleted events at most. A call takes seconds; what is left is for later ones.
        Their identities are known for `KEY_SECONDS` more, or until their owner is erased: sent again they are
        duplicates.
        """
        ...

    def put(self, name: str, value: str) -> None:
        """Store a small document, such as the experiments, for all processes on the store."""
        ...

    def replace(self, name: str, before: str | None, value: str, beside: Mapping[str, str] | None = None) -> bool:
        """Store a document if its current value is `before` (None: it must not exist); return whether it was stored.

        The documents `beside` it, by name, are overwritten in the same transaction.
        """
        ...

    def get(self, name: str) -> str | None:
        """The document of that name, if any."""
        ...

    def note(self, answers: Sequence[Answered], seconds: float, now: float) -> None:
        """Store answers for a number of seconds, and count each in its group as "answers"; less durable than events.

        `now`: the time by which earlier ones are too old, unless the store has a clock of its own.
        Only the first answer of a request counts. Answers whose owner was erased or merged since they were given are
        not stored: the owner's `Stored.erased` is later than theirs.
        """
        ...

    def noted(self, request_ids: Sequence[str]) -> Mapping[str, Answered]:
        """The answers of these requests, by request, without those that are not stored or have expired.

        Their number costs few reads, as each may be a way to a server and back.
        """
        ...

    def hit(self, request_ids: Sequence[str]) -> set[str]:
        """Count a hit in the group of each of these answers, once per stored answer; return those that were counted.

        It is one transaction, as each may wait for a disk.
        """
        ...

    def tally(self, group: str, name: str) -> None:
        """Increment the count of a name in a group."""
        ...

    def tallies(self) -> Mapping[tuple[str, str], int]:
        """All counts by group and name."""
        ...

    def close(self) -> None:
        """Complete pending appends and release the store; idempotent."""
        ...
