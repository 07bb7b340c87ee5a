"""Histories in Redis or Valkey: one script per write, so that a key and its event are stored atomically.

A history is a sorted set with the time as score. Members start with the sequence number, which orders equal times.
"""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from beamwood.errors import InputError
from beamwood.serve.store.answer_text import answer_text, read_answer
from beamwood.serve.store.event import Event, Id, Owner, Session, id_text, owner_text, read_id, read_owner
from beamwood.serve.store.group import Batch, GroupWriter
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
    stored_history,
)
from beamwood.serve.store.scripts import SCRIPTS

__all__ = ["RedisStore"]

_Result = TypeVar("_Result")
_PREFIX = "beamwood:"
_OWNERS, _LAST, _ERASED = f"{_PREFIX}owners", f"{_PREFIX}last", f"{_PREFIX}erased"
_DOCUMENTS, _TALLIES = f"{_PREFIX}documents", f"{_PREFIX}tallies"
# The settings that determine whether an acknowledged write is on disk, and stays.
_KEEPING = ("append*", "maxmemory*")
_SEQ_DIGITS, _IDENTITY = 16, 16
# Events that a pipeline of `compact` deletes, as writes wait for it, its owners, and the seconds of a call.
_AT_ONCE, _OWNERS_AT_ONCE, _LONGEST = 2000, 20, 5.0
# Timeout of the server in seconds.
_SECONDS = 2.0
# Seconds without a word after which the network is asked for one, and again, and how often.
_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
# Above every sequence number and count; numbers of a script are exact up to here.
_ANY = 2**53


class RedisStore:
    """A fast store for several servers. `durable` only with `appendfsync always` and without eviction of any key.

    Errors: `InputError` on an invalid address; `StoreUnavailable` if the server is down, also when the store is opened.
    """

    kind = "redis"

    def __init__(self, url: str) -> None:
        # A lost idle connection is replaced; after a timeout the command may run still, and must not run twice.
        again = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
        try:
            self._client = redis.Redis.from_url(
                url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS, retry=again, **_kept_alive(url)
            )
            pool = self._client.connection_pool
            pool.connection_class(**pool.connection_kwargs)  # raises on unknown parameters
        except (ValueError, TypeError):
            # The parser's message may quote a password.
            hint = (
                "use redis://USER:PASSWORD@HOST:PORT/DATABASE, and escape characters of a password: %2F for / and %3F "
                "for ?"
            )
            raise InputError(f"the address of Redis is invalid; {hint}") from None
        self._scripts = {name: self._client.register_script(text) for name, text in SCRIPTS.items()}
        # The place of compactions among all owners, and those that were read and are not done.
        self._cursor, self._left = 0, list[str]()
        self._asked(self._client.ping)
        self.durable = _is_kept(self._asked(self._settings))
        self._writer = GroupWriter("redis", self._commit)

    def _settings(self) -> list[Any]:
        with self._client.pipeline(transaction=False) as pipe:
            _ask_settings(pipe)
            return list(pipe.execute(raise_on_error=False))

    def _asked(self, work: Callable[[], _Result]) -> _Result:
        try:
            return work()
        except redis.RedisError as error:
            if isinstance(error, redis.exceptions.ReadOnlyError):
                # Another server has become the primary; the next command connects to it.
                self._client.connection_pool.disconnect(inuse_connections=False)
            raise StoreUnavailable(f"Redis does not answer: {error}") from error

    def _run(self, name: str, *arguments: Any, client: Any = None) -> Any:
        return self._scripts[name](keys=[_PREFIX], args=arguments, client=client)

    def append(self, events: Sequence[Event]) -> Future[Appended]:
        return self._writer.append(events)

    def _commit(self, batches: list[Batch]) -> list[Appended | KeyReused]:
        def work() -> list[Any]:
            with self._client.pipeline(transaction=False) as pipe:
                for batch in batches:
                    self._run("append", *(part for event in batch for part in _parts(event)), client=pipe)
                # The primary may have changed.
                _ask_settings(pipe)
                found = list(pipe.execute(raise_on_error=False))
            answers, settings = found[: len(batches)], found[len(batches) :]
            for answer in answers:
                if isinstance(answer, redis.RedisError):
                    raise answer
            self.durable = _is_kept(settings)
            return answers

        return [_appended(batch, answer) for batch, answer in zip(batches, self._asked(work), strict=True)]

    def history(
        self,
        owner: Owner,
        *,
        after: float = -math.inf,
        last: int | None = None,
        until: int | None = None,
        types: Collection[str] | None = None,
    ) -> Stored:
        name, highest = owner_text(owner), _ANY if until is None else until
        some = () if types is None else (LOOKED_THROUGH, *types)
        asked = name, f"({after!r}", _ANY if last is None else last, highest, *some
        seq, erased, *latest = self._asked(lambda: cast("list[Any]", self._run("history", *asked)))
        found = [_record(name, member, float(time)) for member, time in zip(latest[::2], latest[1::2], strict=True)]
        return stored_history(found[::-1], min(int(seq or 0), highest), float(erased) if erased else None)

    def page(self, owner: Owner, *, after: int = 0, limit: int = 100) -> list[Record]:
        found = sorted(self._of(owner_text(owner)), key=lambda record: record.seq)
        return [record for record in found if record.seq > after][:limit]

    def _of(self, name: str) -> list[Record]:
        members = self._asked(lambda: self._client.zrange(_events(name), 0, -1, withscores=True))
        return [_record(name, member, time) for member, time in cast("list[Any]", members)]

    def erase(self, owner: Owner, now: float) -> tuple[int, float]:
        gone, at = self._write(lambda: cast("list[Any]", self._run("erase", owner_text(owner), repr(now))))
        return int(gone), float(at)

    def _write(self, work: Callable[[], _Result]) -> _Result:
        return self._writer.call(lambda: self._asked(work))

    def erased(self, after: float = -math.inf) -> Mapping[Owner, float]:
        found = self._asked(lambda: self._client.zrangebyscore(_ERASED, f"({after!r}", "+inf", withscores=True))
        return {read_owner(name.decode()): float(time) for name, time in cast("list[Any]", found)}

    def merge(self, session: Session, user: Id, now: float) -> int:
        about = owner_text(session), owner_text(user), repr(now), int(KEY_SECONDS)
        return self._write(lambda: int(self._run("merge", *about)))

    def owners(self) -> Iterator[Owner]:
        return map(read_owner, self._every_owner())

    def records(self) -> Iterator[Record]:
        for name in self._every_owner():
            yield from self._of(name)

    def _every_owner(self) -> Iterator[str]:
        cursor, known = 0, set[str]()
        while True:
            cursor, names = self._owners(cursor, 500)
            # A scan may return an owner twice.
            yield from dict.fromkeys(name for name in names if name not in known)
            known.update(names)
            if cursor == 0:
                return

    def _owners(self, cursor: int, count: int) -> tuple[int, list[str]]:
        found = self._asked(lambda: self._client.sscan(_OWNERS, cursor, count=count))
        following, names = cast("tuple[int, list[bytes]]", found)
        return following, [name.decode() for name in names]

    def compact(self, retention: Retention, now: float, owners: int = 500) -> int:
        if not self._left:
            self._cursor, self._left = self._owners(self._cursor, owners)
        gone, until = 0, time.monotonic() + _LONGEST
        while self._left:
            # Between pipelines the writes that wait have their turn.
            some = self._left[:_OWNERS_AT_ONCE]
            most = _AT_ONCE // len(some)
            counts = self._write(partial(self._trim, some, most, retention, now))
            more = [name for name, count in zip(some, counts, strict=True) if count == most]
            gone, self._left = gone + sum(counts), more + self._left[len(some) :]
            if time.monotonic() > until:
                break
        return gone

    def _trim(self, names: list[str], most: int, retention: Retention, now: float) -> list[int]:
        about = repr(retention.oldest(now)), retention.keep_events or 0, repr(now), int(KEY_SECONDS), most
        with self._client.pipeline(transaction=False) as pipe:
            for name in names:
                self._run("trim", name, *about, client=pipe)
            return [int(count) for count in pipe.execute()]

    def put(self, name: str, value: str) -> None:
        self._write(lambda: self._client.hset(_DOCUMENTS, name, value))

    def replace(self, name: str, before: str | None, value: str, beside: Mapping[str, str] | None = None) -> bool:
        others = [each for pair in (beside or {}).items() for each in pair]
        known = (0, "") if before is None else (1, before)
        return self._write(lambda: bool(self._run("replace", name, value, *known, *others)))

    def get(self, name: str) -> str | None:
        found = cast("bytes | None", self._asked(lambda: self._client.hget(_DOCUMENTS, name)))
        return None if found is None else found.decode()

    def note(self, answers: Sequence[Answered], seconds: float, now: float) -> None:  # noqa: ARG002
        keep = math.ceil(seconds)

        def work() -> None:
            with self._client.pipeline(transaction=False) as pipe:
                for each in answers:
                    body = json.dumps([each.time, each.group, answer_text(each)])
                    tally = json.dumps([each.group, "answers"])
                    erased = "" if each.erased is None else repr(each.erased)
                    owner = "" if each.owner is None else owner_text(each.owner)
                    about = each.request_id, owner, erased, body, keep, tally
                    self._run("note", *about, client=pipe)
                pipe.execute()

        self._write(work)

    def noted(self, request_ids: Sequence[str]) -> Mapping[str, Answered]:
        if not request_ids:
            return {}
        names = [f"{_PREFIX}answer:{each}" for each in request_ids]
        found = cast("list[bytes | None]", self._asked(lambda: self._client.mget(names)))
        return {each: _answered(each, text) for each, text in zip(request_ids, found, strict=True) if text is not None}

    def hit(self, request_ids: Sequence[str]) -> set[str]:
        found = list(self.noted(request_ids).values())

        def work() -> list[Any]:
            with self._client.pipeline(transaction=False) as pipe:
                for each in found:
                    self._run("hit", each.request_id, json.dumps([each.group, "hits"]), client=pipe)
                return list(pipe.execute())

        return {each.request_id for each, is_first in zip(found, self._write(work), strict=True) if is_first}

    def tally(self, group: str, name: str) -> None:
        self._write(lambda: self._client.hincrby(_TALLIES, json.dumps([group, name]), 1))

    def tallies(self) -> Mapping[tuple[str, str], int]:
        found = cast("dict[bytes, bytes]", self._asked(lambda: self._client.hgetall(_TALLIES)))
        return {(names[0], names[1]): int(count) for names, count in ((json.loads(n), c) for n, c in found.items())}

    def close(self) -> None:
        self._writer.close()
        self._client.close()


def _kept_alive(url: str) -> dict[str, Any]:
    """Settings by which no network forgets an idle connection in silence; the path of a socket takes none."""
    if url.startswith("unix://"):
        return {}
    # Not every system has each.
    known = {vars(socket)[name]: value for name, value in _ALIVE.items() if name in vars(socket)}
    return {"socket_keepalive": True, "socket_keepalive_options": known}


def _events(owner: str) -> str:
    return f"{_PREFIX}events:{owner}"


def _parts(event: Event) -> tuple[Any, ...]:
    body = json.dumps([id_text(event.item), event.type, event.weight, event.request_id])
    return event.identity, event.content, owner_text(event.user), repr(float(event.time)), int(event.timed), body


def _record(owner: str, member: bytes, time: float) -> Record:
    item, kind, weight, request_id = json.loads(member[_SEQ_DIGITS + _IDENTITY :])
    seq = int(member[:_SEQ_DIGITS])
    return Record(seq, Event(read_owner(owner), read_id(item), time, kind, weight, None, request_id))


def _appended(batch: Batch, answer: Sequence[int]) -> Appended | KeyReused:
    seq, *places = answer
    if seq < 0:
        return KeyReused(batch[places[0]].key)
    return Appended(places, len(batch) - len(places), seq)


def _answered(request_id: str, text: bytes) -> Answered:
    length, _, rest = text.partition(b" ")
    time, group, body = json.loads(rest[int(length) :])
    return read_answer(request_id, rest[: int(length)].decode() or None, time, group, body)


def _ask_settings(pipe: Any) -> None:
    for names in _KEEPING:
        pipe.config_get(names)


def _is_kept(settings: Sequence[Any]) -> bool:
    """Whether writes are synced to disk and never evicted; False where a hosted server does not reveal its settings."""
    if any(isinstance(each, redis.RedisError) for each in settings):
        return False
    plain = {_text(name): _text(value) for each in settings for name, value in each.items()}
    # Other policies evict only keys that expire, which no events are in.
    is_evicting = plain.get("maxmemory") != "0" and plain.get("maxmemory-policy", "allkeys").startswith("allkeys")
    return plain.get("appendonly") == "yes" and plain.get("appendfsync") == "always" and not is_evicting


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
