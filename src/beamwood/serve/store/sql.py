"""The common part of the SQL stores: statements in the dialect that SQLite and PostgreSQL share."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from beamwood.blocks import slices
from beamwood.serve.store.answer_text import answer_text, read_answer
from beamwood.serve.store.event import Event, Id, Owner, Session, id_text, owner_text, read_id, read_owner
from beamwood.serve.store.group import Batch, GroupWriter, checked_keys
from beamwood.serve.store.protocol import (
    KEY_SECONDS,
    LOOKED_THROUGH,
    Answered,
    Appended,
    KeyReused,
    Record,
    Retention,
    Stored,
    later_tombstone,
)

__all__ = ["TABLES", "Cursor", "SqlStore", "in_portions"]

_Result = TypeVar("_Result")
_Value = TypeVar("_Value")
_ALL = 2**31 - 1
_COLUMNS = "owner, time, item, type, weight, request_id, identity, content"
_INSERT = f"insert into beamwood_events ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)"
# At the owner's latest time after the second argument, if any, else at the third one.
_APPEND = f"""
insert into beamwood_events ({_COLUMNS}) values (
  ?, coalesce((select max(time) from beamwood_events where owner = ? and time > ?), ?), ?, ?, ?, ?, ?, ?)
"""
# The tombstone and the merge of an owner.
_GONE = """
select time from beamwood_erased where owner = ? union all select time from beamwood_merged where owner = ?
"""
_LATEST = """
select item, time, seq, type from beamwood_events where owner = ? and time > ? and seq <= ?
order by time desc, seq desc limit ?
"""
# Read in the order of the latest, without an order of its own, so that it ends early.
_OF_TYPES = f"select item, time, seq, type from ({_LATEST}) as latest where type in ({{types}}) limit ?"
_HISTORY = """
select 0, item, time, seq, type from ({found}) as found
union all select 1, null, null, max(seq), null from beamwood_events where owner = ? and seq <= ?
union all select 2, null, max(time), null, null from ({gone}) as gone
"""
_RECORD = "select seq, owner, time, item, type, weight, request_id from beamwood_events"
_SOME_OWNERS = "select distinct owner from beamwood_events where owner > ? order by owner limit ?"
_NEWEST_BEYOND = """
select time, seq from beamwood_events where owner = ? order by time desc, seq desc limit 1 offset ?
"""
_UP_TO = "owner = ? and (time, seq) <= (?, ?)"
_OLDEST = f"select time, seq from beamwood_events where {_UP_TO} order by time, seq limit ?"
_SPEND = f"insert into beamwood_spent select identity, content, owner, ? from beamwood_events where {_UP_TO}"
_FORGET = """
delete from beamwood_spent where identity in (
  select identity from beamwood_spent where time < ? order by time limit ?)
"""
# Rows that a transaction of `compact` deletes, as writes wait for it, its owners, and the seconds of a call.
_AT_ONCE, _OWNERS_AT_ONCE, _LONGEST = 2000, 20, 5.0
# Values that a statement lists.
_PORTION = 500
_PUT = "insert into beamwood_documents values (?, ?) on conflict (name) do update set value = excluded.value"
_ANSWER = f"""
insert into beamwood_answers (request_id, owner, time, category, body) select ?, ?, ?, ?, ?
where not exists (select 1 from ({_GONE}) as gone where time > ?) on conflict (request_id) do nothing
"""
_NOTED = "select request_id, owner, time, category, body from beamwood_answers where request_id in ({names})"
_MERGED = "insert into beamwood_merged values (?, ?) on conflict (owner) do update set time = excluded.time"
_TALLY = """
insert into beamwood_tallies values (?, ?, ?)
on conflict (category, name) do update set count = beamwood_tallies.count + ?
"""


TABLES = """
create table if not exists beamwood_documents (name text primary key, value text not null);
create table if not exists beamwood_answers (
  request_id text primary key, owner text, time double precision not null, category text not null, body text not null,
  hit integer not null default 0);
create table if not exists beamwood_erased (owner text primary key, time double precision not null);
create index if not exists beamwood_erased_time on beamwood_erased (time);
create table if not exists beamwood_merged (owner text primary key, time double precision not null);
create index if not exists beamwood_merged_time on beamwood_merged (time);
create index if not exists beamwood_answers_owner on beamwood_answers (owner);
create index if not exists beamwood_answers_time on beamwood_answers (time);
create table if not exists beamwood_tallies (
  category text, name text, count bigint not null, primary key (category, name));
"""
"""The tables with the same definition in both dialects."""


class Cursor(Protocol):
    """The part of a database cursor that the stores use."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last call changed, summed up over those of `executemany`."""
        ...

    def execute(self, statement: str, arguments: Sequence[Any] = (), /) -> Any: ...
    def executemany(self, statement: str, arguments: Sequence[Sequence[Any]], /) -> Any: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class SqlStore(ABC):
    """A history store whose subclass runs the statements; placeholders are `?`.

    `last_seq`: the statement that returns the last sequence number; `clock`: the one that returns the time of a clock
    that all processes share, if any.
    """

    last_seq: str
    clock: str | None = None

    def __init__(self, name: str) -> None:
        self._writer = GroupWriter(name, self._commit)
        self._turn = ""

    @abstractmethod
    def _read(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one read statement; called on any thread."""

    @abstractmethod
    def _transaction(self, work: Callable[[Cursor], _Result]) -> _Result:
        """The result of `work`, run in one transaction and committed; called only on the writer thread."""

    @abstractmethod
    def _contents(self, cursor: Cursor, identities: list[bytes]) -> dict[bytes, bytes]:
        """The content of the stored events among these identities, and of those that retention removed lately."""

    def append(self, events: Sequence[Event]) -> Future[Appended]:
        return self._writer.append(events)

    def _commit(self, batches: list[Batch]) -> list[Appended | KeyReused]:
        def work(cursor: Cursor) -> list[Appended | KeyReused]:
            known = self._contents(cursor, list({event.identity for batch in batches for event in batch}))
            return [self._insert(cursor, batch, known) for batch in batches]

        return self._transaction(work)

    def _insert(self, cursor: Cursor, batch: Batch, known: dict[bytes, bytes]) -> Appended | KeyReused:
        new = checked_keys(batch, known)
        if isinstance(new, KeyReused):
            return new
        if new:
            cursor.executemany(_APPEND, [_appending(batch[at]) for at in new])
        return Appended(new, len(batch) - len(new), _only(cursor, self.last_seq) or 0)

    def history(
        self,
        owner: Owner,
        *,
        after: float = -math.inf,
        last: int | None = None,
        until: int | None = None,
        types: Collection[str] | None = None,
    ) -> Stored:
        name, highest = owner_text(owner), 2**62 if until is None else until
        limit, found = _ALL if last is None else last, _LATEST
        wanted: tuple[Any, ...] = (limit,)
        if types is not None:
            found = _OF_TYPES.format(types=", ".join("?" * len(types)) or "null")
            wanted = LOOKED_THROUGH, *types, limit
        statement = _HISTORY.format(found=found, gone=_GONE)
        rows = self._read(statement, (name, after, highest, *wanted, name, highest, name, name))
        latest = sorted((time, seq, item, kind) for part, item, time, seq, kind in rows if part == 0)
        seq = next((seq for part, _, _, seq, _ in rows if part == 1), None)
        erased = next((time for part, _, time, _, _ in rows if part == 2), None)
        items, times = tuple(read_id(item) for _, _, item, _ in latest), tuple(time for time, *_ in latest)
        return Stored(items, times, tuple(kind for *_, kind in latest), seq or 0, erased)

    def page(self, owner: Owner, *, after: int = 0, limit: int = 100) -> list[Record]:
        where = f"{_RECORD} where owner = ? and seq > ? order by seq limit ?"
        return [_record(row) for row in self._read(where, (owner_text(owner), after, limit))]

    def erase(self, owner: Owner, now: float) -> tuple[int, float]:
        def work(cursor: Cursor) -> tuple[int, float]:
            cursor.execute("delete from beamwood_events where owner = ?", (owner_text(owner),))
            gone = cursor.rowcount
            stone = "insert into beamwood_erased values (?, ?) on conflict (owner) do update set time = ?"
            at = later_tombstone(_only(cursor, "select max(time) from beamwood_erased"), now)
            at = _after_gone(cursor, owner, at)
            cursor.execute(stone, (owner_text(owner), at, at))
            cursor.execute("delete from beamwood_answers where owner = ?", (owner_text(owner),))
            cursor.execute("delete from beamwood_spent where owner = ?", (owner_text(owner),))
            return gone, at

        return self._writer.call(lambda: self._transaction(work))

    def erased(self, after: float = -math.inf) -> Mapping[Owner, float]:
        rows = self._read("select owner, time from beamwood_erased where time > ?", (after,))
        return {read_owner(name): time for name, time in rows}

    def merge(self, session: Session, user: Id, now: float) -> int:
        def work(cursor: Cursor) -> int:
            name = owner_text(session)
            cursor.execute(f"select {_COLUMNS} from beamwood_events where owner = ? order by seq", (name,))
            moved = cursor.fetchall()
            cursor.execute("delete from beamwood_events where owner = ?", (name,))
            if moved:
                cursor.executemany(_INSERT, [(owner_text(user), *row[1:]) for row in moved])
            for table in ("answers", "spent"):
                cursor.execute(f"update beamwood_{table} set owner = ? where owner = ?", (owner_text(user), name))
            cursor.execute(_MERGED, (name, _after_gone(cursor, session, now)))
            return len(moved)

        return self._writer.call(lambda: self._transaction(work))

    def owners(self) -> Iterator[Owner]:
        last = ""
        while rows := self._read(_SOME_OWNERS, (last, 10_000)):
            yield from (read_owner(name) for (name,) in rows)
            last = rows[-1][0]

    def records(self) -> Iterator[Record]:
        seq = 0
        while rows := self._read(f"{_RECORD} where seq > ? order by seq limit 10000", (seq,)):
            yield from map(_record, rows)
            seq = rows[-1][0]

    def compact(self, retention: Retention, now: float, owners: int = 500) -> int:
        names = [name for (name,) in self._read(_SOME_OWNERS, (self._turn, owners))]
        left, gone, until = deque(names), 0, time.monotonic() + _LONGEST
        while True:
            # Between transactions the writes that wait have their turn.
            gone += self._writer.call(lambda: self._transaction(lambda cursor: _compact(cursor, left, retention, now)))
            if not left or time.monotonic() > until:
                break
        done = names[: len(names) - len(left)]
        if not left:
            self._turn = names[-1] if len(names) == owners else ""
        elif done:
            self._turn = done[-1]
        return gone

    def put(self, name: str, value: str) -> None:
        self._writer.call(lambda: self._transaction(lambda cursor: cursor.execute(_PUT, (name, value))))

    def replace(self, name: str, before: str | None, value: str, beside: Mapping[str, str] | None = None) -> bool:
        def work(cursor: Cursor) -> bool:
            if before is None:
                new = "insert into beamwood_documents values (?, ?) on conflict (name) do nothing"
                cursor.execute(new, (name, value))
            else:
                changed = "update beamwood_documents set value = ? where name = ? and value = ?"
                cursor.execute(changed, (value, name, before))
            kept = cursor.rowcount == 1
            if kept and beside:
                cursor.executemany(_PUT, list(beside.items()))
            return kept

        return self._writer.call(lambda: self._transaction(work))

    def get(self, name: str) -> str | None:
        rows = self._read("select value from beamwood_documents where name = ?", (name,))
        return rows[0][0] if rows else None

    def note(self, answers: Sequence[Answered], seconds: float, now: float) -> None:
        def work(cursor: Cursor) -> None:
            # By turn, as of a request with several answers the first one that can be stored counts.
            turns = Counter[str]()
            groups: dict[tuple[int, str], list[tuple[Any, ...]]] = defaultdict(list)
            for each in answers:
                groups[turns[each.request_id], each.group].append(_noting(each))
                turns[each.request_id] += 1
            for (_, group), rows in sorted(groups.items()):
                # The drivers send them together, as the whole fleet waits, and sum up the new ones.
                cursor.executemany(_ANSWER, rows)
                _count(cursor, group, "answers", cursor.rowcount)
            # A process whose clock is ahead must not delete the answers of the others.
            at = now if self.clock is None else min(now, _only(cursor, self.clock))
            cursor.execute("delete from beamwood_answers where time < ?", (at - seconds,))
            cursor.execute("delete from beamwood_merged where time < ?", (at - KEY_SECONDS,))

        self._writer.call(lambda: self._transaction(work))

    def noted(self, request_ids: Sequence[str]) -> Mapping[str, Answered]:
        found: dict[str, Answered] = {}
        for some in in_portions(request_ids):
            rows = self._read(_NOTED.format(names=", ".join("?" * len(some))), some)
            found |= {row[0]: read_answer(*row) for row in rows}
        return found

    def hit(self, request_ids: Sequence[str]) -> set[str]:
        def work(cursor: Cursor) -> set[str]:
            groups: dict[str, str] = {}
            for some in in_portions(request_ids):
                first = f"hit = 0 and request_id in ({', '.join('?' * len(some))})"
                cursor.execute(f"select request_id, category from beamwood_answers where {first}", some)
                groups |= dict(cursor.fetchall())
                cursor.execute(f"update beamwood_answers set hit = 1 where {first}", some)
            for group, count in Counter(groups.values()).items():
                _count(cursor, group, "hits", count)
            return set(groups)

        return self._writer.call(lambda: self._transaction(work))

    def tally(self, group: str, name: str) -> None:
        self._writer.call(lambda: self._transaction(lambda cursor: _count(cursor, group, name, 1)))

    def tallies(self) -> Mapping[tuple[str, str], int]:
        rows = self._read("select category, name, count from beamwood_tallies")
        return {(group, name): count for group, name, count in rows}


def in_portions(values: Sequence[_Value]) -> Iterator[Sequence[_Value]]:
    """The values in parts, of which each fits into a statement."""
    return (values[part] for part in slices(len(values), _PORTION))


def _after_gone(cursor: Cursor, owner: Owner, now: float) -> float:
    """`now`, or just after the owner's tombstone and merge."""
    name = owner_text(owner)
    return later_tombstone(_only(cursor, f"select max(time) from ({_GONE}) as gone", (name, name)), now)


def _compact(cursor: Cursor, names: deque[str], retention: Retention, now: float) -> int:
    """Delete some of what is beyond the retention, and take the owners without more off `names`; return the number of
    deleted events.
    """
    cursor.execute(_FORGET, (now - KEY_SECONDS, _AT_ONCE))
    room, gone, last = _AT_ONCE - cursor.rowcount, 0, len(names) - _OWNERS_AT_ONCE
    while len(names) > max(0, last) and room > 0:
        found = _beyond(cursor, names[0], retention, now, room)
        if found:
            latest = names[0], *found[-1]
            cursor.execute(_SPEND, (now, *latest))
            cursor.execute(f"delete from beamwood_events where {_UP_TO}", latest)
        gone, room = gone + len(found), room - len(found)
        if room > 0:
            names.popleft()
    return gone


def _beyond(cursor: Cursor, owner: str, retention: Retention, now: float, most: int) -> list[tuple[Any, ...]]:
    """Time and seq of the owner's oldest events beyond the retention."""
    # No event is numbered below 1.
    latest: tuple[Any, ...] = retention.oldest(now), 0
    if retention.keep_events is not None:
        cursor.execute(_NEWEST_BEYOND, (owner, retention.keep_events))
        latest = max([latest, *cursor.fetchall()])
    cursor.execute(_OLDEST, (owner, *latest, most))
    return cursor.fetchall()


def _count(cursor: Cursor, group: str, name: str, more: int) -> None:
    if more > 0:
        cursor.execute(_TALLY, (group, name, more, more))


def _appending(event: Event) -> tuple[Any, ...]:
    """The arguments of `_APPEND`: the time of an untimed event is its owner's latest where that is later."""
    who, at, after = owner_text(event.user), event.time, math.inf if event.timed else event.time
    more = id_text(event.item), event.type, event.weight, event.request_id, event.identity, event.content
    return who, who, after, at, *more


def _noting(answer: Answered) -> tuple[Any, ...]:
    """The arguments of `_ANSWER`."""
    owner = None if answer.owner is None else owner_text(answer.owner)
    erased = -math.inf if answer.erased is None else answer.erased
    return answer.request_id, owner, answer.time, answer.group, answer_text(answer), owner, owner, erased


def _record(row: tuple[Any, ...]) -> Record:
    seq, owner, time, item, kind, weight, request_id = row
    return Record(seq, Event(read_owner(owner), read_id(item), time, kind, weight, None, request_id))


def _only(cursor: Cursor, statement: str, arguments: Sequence[Any] = ()) -> Any:
    cursor.execute(statement, arguments)
    rows = cursor.fetchall()
    return rows[0][0] if rows else None
