"""What every history store promises, and what it answers with.

An answered append is committed. The order of a history is (time, seq), so that late events sort in. A read after an
answered append sees it, from any process on the same store.
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
    "Appended",
    "HistoryStore",
    "KeyReused",
    "Record",
    "Retention",
    "StoreUnavailable",
    "Stored",
    "later_tombstone",
    "stored_history",
]


class StoreUnavailable(Exception):
    """The store cannot be reached, or did not keep what it was given; nothing of it was acknowledged."""


class KeyReused(InputError):
    """An idempotency key came again with another body; nothing of the append was kept."""

    def __init__(self, key: str | None) -> None:
        super().__init__(f"key={key!r} was used for another event; give each event a key of its own")


@dataclass(frozen=True, slots=True)
class Appended:
    """How many events of an append are new, how many were there; `seq` is the store's last number after it."""

    accepted: int
    duplicates: int
    seq: int


@dataclass(frozen=True, slots=True)
class Record:
    """A kept event, without its key, under its number, which grows in the order of commits."""

    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class Stored:
    """The items of a history, oldest first, with the times and types of their events.

    `seq` is the owner's last number, 0 without events; `erased` the time of the owner's tombstone, None without one.
    """

    items: tuple[Id, ...] = ()
    times: tuple[float, ...] = ()
    types: tuple[str, ...] = ()
    seq: int = 0
    erased: float | None = None


def later_tombstone(latest: float | None, now: float) -> float:
    """The time of a tombstone that is set now, behind the latest."""
    return now if latest is None else max(now, math.nextafter(latest, math.inf))


def stored_history(records: Sequence[Record], seq: int, erased: float | None) -> Stored:
    """The history of these records, oldest first."""
    events = [record.event for record in records]
    items, times = tuple(event.item for event in events), tuple(event.time for event in events)
    return Stored(items, times, tuple(event.type for event in events), seq, erased)


class Answered(Struct, frozen=True, gc=False):
    """What was recommended: `group` is what is compared (experiment, arm, model), `text` what explains the answer."""

    request_id: str
    owner: Owner | None
    time: float
    group: str
    items: tuple[Id, ...]
    text: str = ""


@dataclass(frozen=True, slots=True)
class Retention:
    """What `compact` keeps: so many events of each owner, none older than so many days. None keeps all."""

    keep_events: int | None = None
    keep_days: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("keep_events", self.keep_events), ("keep_days", self.keep_days)):
            if value is not None and not value > 0:
                raise InputError(f"{name}={value} is not above 0; leave it out to keep everything")

    def oldest(self, now: float) -> float:
        """The time in seconds before which nothing is kept."""
        return -math.inf if self.keep_days is None else now - self.keep_days * 86400


class HistoryStore(Protocol):
    """An append-only log of events. Every method may be called from any thread.

    `kind` is "memory", "sqlite", "redis" or "postgres"; `durable` says whether an answered append outlives a power
    cut. Errors: `StoreUnavailable` from every method where the store is down.
    """

    kind: str
    durable: bool

    def append(self, events: Sequence[Event]) -> Future[Appended]:
        """Keep all of the events or none; done once they are committed. Fails with `KeyReused`."""
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
        """The owner's `last` events whose time is above `after` and whose type is among `types`, any if None.

        `until` leaves out those of a higher seq.
        """
        ...

    def page(self, owner: Owner, *, after: int = 0, limit: int = 100) -> list[Record]:
        """The owner's next events of a seq above `after`, by seq."""
        ...

    def erase(self, owner: Owner, now: float) -> tuple[int, float]:
        """Delete all of the owner, answers too, and leave a tombstone; how many events there were, and its time.

        That is `now`, or later than all tombstones so far: in the order of their commits times grow, whatever clocks
        say.
        """
        ...

    def erased(self, after: float = -math.inf) -> Mapping[Owner, float]:
        """The tombstones of a time above `after`: when each owner was erased last."""
        ...

    def merge(self, session: Session, user: Id) -> int:
        """Make the session's events the user's, under new numbers, and its answers too; how many events there were."""
        ...

    def records(self) -> Iterator[Record]:
        """Every event once, in no stated order."""
        ...

    def compact(self, retention: Retention, now: float, owners: int = 500) -> int:
        """Apply the retention to the next so many owners, in turn over the calls; how many events went."""
        ...

    def put(self, name: str, value: str) -> None:
        """Keep a small document, such as the experiments, for every process on the store."""
        ...

    def replace(self, name: str, before: str | None, value: str, beside: Mapping[str, str] | None = None) -> bool:
        """Keep a document where that of its name is `before`, None: where there is none; whether it was kept.

        With it, or not at all, those `beside` it are kept, by name, whatever was there.
        """
        ...

    def get(self, name: str) -> str | None:
        """The document of that name, None where there is none."""
        ...

    def note(self, answers: Sequence[Answered], seconds: float) -> None:
        """Keep answers for so many seconds, and count each in its group as "answers"; not as durable as events.

        The first of a request counts. Those of an owner who was erased since are left out.
        """
        ...

    def noted(self, request_id: str) -> Answered | None:
        """The answer of that request, None where it is not kept (any more)."""
        ...

    def hit(self, request_id: str) -> bool:
        """Count the answer's group as "hits", once for each answer that is kept; whether it was the first time."""
        ...

    def tally(self, group: str, name: str) -> None:
        """Count one more of a name in a group."""
        ...

    def tallies(self) -> Mapping[tuple[str, str], int]:
        """All counts by group and name."""
        ...

    def close(self) -> None:
        """Finish what was appended and let go of the store; may be called again."""
        ...
