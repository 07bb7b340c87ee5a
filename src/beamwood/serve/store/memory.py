"""Histories in memory, for trials and tests; lost when the process ends."""

from __future__ import annotations

import bisect
import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import takewhile

from msgspec import structs

from beamwood.serve.store.event import Event, Id, Owner, Session
from beamwood.serve.store.group import checked_keys
from beamwood.serve.store.protocol import (
    KEY_SECONDS,
    LOOKED_THROUGH,
    Answered,
    Appended,
    KeyReused,
    Record,
    Retention,
    Stored,
    StoreUnavailable,
    later_tombstone,
    stored_history,
)

__all__ = ["MemoryStore"]


# The maximum number of stored answers, so that memory stays bounded.
_MOST_ANSWERS = 2000


class MemoryStore:
    """The reference store in plain Python: one lock, and a list of records per owner in history order."""

    kind, durable = "memory", False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[Owner, list[Record]] = {}
        self._known: dict[bytes, bytes] = {}
        # The identity of each event by seq, to detect duplicates.
        self._identities: dict[int, bytes] = {}
        # Of events that retention removed: by identity the owner, and when.
        self._spent: dict[bytes, tuple[Owner, float]] = {}
        self._erased: dict[Owner, float] = {}
        self._merged: dict[Owner, float] = {}
        self._documents: dict[str, str] = {}
        self._answers = OrderedDict[str, Answered]()
        self._hits: set[str] = set()
        self._tallies: Counter[tuple[str, str]] = Counter()
        self._seq, self._turn, self._open = 0, 0, True

    def append(self, events: Sequence[Event]) -> Future[Appended]:
        done: Future[Appended] = Future()
        try:
            with self._lock:
                self._check()
                done.set_result(self._append(list(events)))
        except (KeyReused, StoreUnavailable) as error:
            done.set_exception(error)
        return done

    def _append(self, events: list[Event]) -> Appended:
        new = checked_keys(events, self._known)
        if isinstance(new, KeyReused):
            raise new
        for event in (events[at] for at in new):
            kept, time = self._records.get(event.user, ()), event.time
            if kept and not event.timed:
                time = max(time, kept[-1].event.time)
            self._insert(replace(event, time=time, key=None, timed=True), event.identity)
        return Appended(new, len(events) - len(new), self._seq)

    def _insert(self, event: Event, identity: bytes) -> None:
        self._seq += 1
        self._identities[self._seq] = identity
        kept = self._records.setdefault(event.user, [])
        bisect.insort(kept, Record(self._seq, event), key=_place)

    def history(
        self,
        owner: Owner,
        *,
        after: float = -math.inf,
        last: int | None = None,
        until: int | None = None,
        types: Collection[str] | None = None,
    ) -> Stored:
        with self._lock:
            self._check()
            kept = self._records.get(owner, [])
            found = [r for r in kept if r.event.time > after and (until is None or r.seq <= until)]
            found = found if types is None else [r for r in found[-LOOKED_THROUGH:] if r.event.type in types]
            found = found if last is None else found[max(len(found) - last, 0) :]
            seq = max((r.seq for r in kept), default=0)
            return stored_history(found, seq if until is None else min(seq, until), self._gone_at(owner))

    def _gone_at(self, owner: Owner) -> float | None:
        """The owner's tombstone or merge, whichever is later."""
        return max((each[owner] for each in (self._erased, self._merged) if owner in each), default=None)

    def page(self, owner: Owner, *, after: int = 0, limit: int = 100) -> list[Record]:
        with self._lock:
            self._check()
            kept = sorted(self._records.get(owner, []), key=lambda r: r.seq)
            return [r for r in kept if r.seq > after][:limit]

    def erase(self, owner: Owner, now: float) -> tuple[int, float]:
        with self._lock:
            self._check()
            gone = self._records.pop(owner, [])
            self._forget(gone)
            for identity in [each for each, (whose, _) in self._spent.items() if whose == owner]:
                del self._known[identity], self._spent[identity]
            # Ordered by time, as each new tombstone is the latest.
            latest = self._erased[next(reversed(self._erased))] if self._erased else None
            at = later_tombstone(self._gone_at(owner), later_tombstone(latest, now))
            self._erased.pop(owner, None)
            self._erased[owner] = at
            self._answers = OrderedDict(each for each in self._answers.items() if each[1].owner != owner)
            self._hits &= self._answers.keys()
            return len(gone), at

    def _forget(self, records: list[Record]) -> None:
        for record in records:
            del self._known[self._identities.pop(record.seq)]

    def erased(self, after: float = -math.inf) -> Mapping[Owner, float]:
        with self._lock:
            self._check()
            return dict(takewhile(lambda each: each[1] > after, reversed(self._erased.items())))

    def merge(self, session: Session, user: Id, now: float) -> int:
        with self._lock:
            self._check()
            moved = self._records.pop(session, [])
            for record in sorted(moved, key=lambda r: r.seq):
                self._insert(replace(record.event, user=user), self._identities.pop(record.seq))
            self._spent |= {each: (user, at) for each, (whose, at) in self._spent.items() if whose == session}
            for name, answer in self._answers.items():
                if answer.owner == session:
                    self._answers[name] = structs.replace(answer, owner=user)
            at = later_tombstone(self._gone_at(session), now)
            self._merged.pop(session, None)
            self._merged[session] = at
            return len(moved)

    def owners(self) -> Iterator[Owner]:
        with self._lock:
            self._check()
            return iter(list(self._records))

    def records(self) -> Iterator[Record]:
        with self._lock:
            self._check()
            every = [record for kept in self._records.values() for record in kept]
        return iter(every)

    def compact(self, retention: Retention, now: float, owners: int = 500) -> int:
        with self._lock:
            self._check()
            for identity in [each for each, (_, at) in self._spent.items() if at < now - KEY_SECONDS]:
                del self._known[identity], self._spent[identity]
            names = list(self._records)[self._turn : self._turn + owners]
            self._turn = self._turn + owners if len(names) == owners else 0
            return sum(self._trim(name, retention, now) for name in names)

    def _trim(self, owner: Owner, retention: Retention, now: float) -> int:
        kept = self._records[owner]
        first = bisect.bisect_left(kept, retention.oldest(now), key=lambda r: r.event.time)
        if retention.keep_events is not None:
            first = max(first, len(kept) - retention.keep_events)
        self._spent |= {self._identities.pop(record.seq): (owner, now) for record in kept[:first]}
        if first == len(kept):
            del self._records[owner]
        else:
            self._records[owner] = kept[first:]
        return first

    def put(self, name: str, value: str) -> None:
        with self._lock:
            self._check()
            self._documents[name] = value

    def replace(self, name: str, before: str | None, value: str, beside: Mapping[str, str] | None = None) -> bool:
        with self._lock:
            self._check()
            if self._documents.get(name) != before:
                return False
            self._documents |= {name: value, **(beside or {})}
            return True

    def get(self, name: str) -> str | None:
        with self._lock:
            self._check()
            return self._documents.get(name)

    def note(self, answers: Sequence[Answered], seconds: float, now: float) -> None:
        with self._lock:
            self._check()
            for each in answers:
                at = None if each.owner is None else self._gone_at(each.owner)
                is_gone = at is not None and (each.erased is None or at > each.erased)
                if not is_gone and each.request_id not in self._answers:
                    self._answers[each.request_id] = structs.replace(each, erased=None)
                    self._tallies[each.group, "answers"] += 1
            # Answers are ordered by time, so the scan stops at the first that stays.
            while self._answers and self._is_spent(name := next(iter(self._answers)), now - seconds):
                del self._answers[name]
                self._hits.discard(name)
            while self._merged and self._merged[session := next(iter(self._merged))] < now - KEY_SECONDS:
                del self._merged[session]

    def _is_spent(self, name: str, oldest: float) -> bool:
        return len(self._answers) > _MOST_ANSWERS or self._answers[name].time < oldest

    def noted(self, request_ids: Sequence[str]) -> Mapping[str, Answered]:
        with self._lock:
            self._check()
            return {each: self._answers[each] for each in request_ids if each in self._answers}

    def hit(self, request_ids: Sequence[str]) -> set[str]:
        with self._lock:
            self._check()
            counted = (self._answers.keys() & request_ids) - self._hits
            self._hits |= counted
            self._tallies.update((self._answers[each].group, "hits") for each in counted)
            return counted

    def tally(self, group: str, name: str) -> None:
        with self._lock:
            self._check()
            self._tallies[group, name] += 1

    def tallies(self) -> Mapping[tuple[str, str], int]:
        with self._lock:
            self._check()
            return dict(self._tallies)

    def close(self) -> None:
        with self._lock:
            self._open = False

    def _check(self) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")


def _place(record: Record) -> tuple[float, int]:
    return record.event.time, record.seq
