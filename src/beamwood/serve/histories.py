"""The store of a running service: reads that do not block the loop, writes that are acknowledged after their commit.

A store that is down costs no answers: reads fall back to the model's own history, and are marked as stale.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram

from beamwood.serve.answer.asking import Asking, StoredHistory
from beamwood.serve.answer.kept import kept_of, owner_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.awaited import leave, settle
from beamwood.serve.clock import Clock
from beamwood.serve.problems import Problem
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.event import Event, Owner
from beamwood.serve.store.protocol import Appended, HistoryStore, KeyReused, Retention, Stored, StoreUnavailable

__all__ = ["HistoryGateway"]

_Result = TypeVar("_Result")
# Of reads, and of other calls.
_THREADS = 4
_READS = ("open", "read", "erased")
# Calls that change nothing.
_READ_CALLS = frozenset((*_READS, "get", "noted", "page", "tallies"))
# After a read that failed the next are not tried for a while.
_PAUSE_SECONDS, _WRITE_SECONDS = 0.5, 10.0
_MOST_WAITING = 50_000
_ROUND_SECONDS, _COMPACT_SECONDS = 1.0, 10.0
# The document written to learn whether a store that refused a write takes one again: as large as the largest body, as
# a nearly full disk takes small ones, and random, as PostgreSQL compresses.
_PROBE, _PROBE_BYTES = "probe", 2**20
# The document that holds the time that was believed last, and when a doubt began; and how often it is written.
_CLOCK, _CLOCK_SECONDS = "clock", 3600.0
_Kept = tuple[float, float | None]
GRACE_SECONDS = 30.0
"""Seconds that a store may be down before the service reports itself as not ready."""
_COMMITS = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0)


class HistoryGateway:
    """The service's access to its store, whose opening is tried again until it succeeds.

    `said` logs a line about the service; `registry`: of its metrics.
    """

    def __init__(self, settings: ServeSettings, said: Callable[..., None], registry: CollectorRegistry) -> None:
        self._settings, self._said = settings, said
        # Apart, as a write waits for all writes before it, and reads are answered meanwhile.
        self._readers = ThreadPoolExecutor(_THREADS, thread_name_prefix="store-read")
        self._writers = ThreadPoolExecutor(_THREADS, thread_name_prefix="store-write")
        # Late reads may hold all readers of a store that answers.
        self._asker = ThreadPoolExecutor(1, thread_name_prefix="store-ask")
        self.store: HistoryStore | None = None
        self._erased: dict[Owner, float] = {}
        # All tombstones up to this time are known; nothing of a store that may have become another one.
        self._erased_until = -math.inf
        self._opening = threading.Lock()
        self._waiting, self._down_since, self._failed_at = 0, 0.0, -math.inf
        # When it last failed to answer a call of any kind.
        self._refused_at = -math.inf
        # Learns whether a store whose read was late is down.
        self._asking: asyncio.Task[None] | None = None
        # Since when it cannot be read, 0 while it can, and whether its last write failed.
        self._unread_since, self._is_refusing = 0.0, False
        self._clock: Clock | None = None
        # When it was stored, and with which doubt.
        self._clock_kept, self._is_doubted = -math.inf, False
        self._doubt_kept: float | None = None
        self.trouble: str | None = None
        """Why the store is down, None while it is up."""
        own: dict[str, Any] = {"namespace": "beamwood", "registry": registry}
        self._events = Counter("events", "Events that were sent, by what became of them", ["outcome"], **own)
        self._commit = Histogram("commit_seconds", "From an event to its commit", buckets=_COMMITS, **own)
        self._errors = Counter("store_errors", "Calls that the store did not answer", ["call"], **own)
        self._stale = Counter("stale_histories", "Answers without the store", **own)
        with suppress(StoreUnavailable):
            self._open()

    def _open(self) -> HistoryStore:
        asked = time.monotonic()
        # Serialised, as of a store opened twice one would leak.
        with self._opening:
            if self.store is not None:
                return self.store
            if self._failed_at > asked:
                raise StoreUnavailable(self.trouble or "it does not answer")
            try:
                store = self._settings.opened_store()
                self._note_erased(store.erased())
            except StoreUnavailable as error:
                self._failed("open", error)
                raise
            self.store = store
            self._answers()
            return store

    @property
    def durable(self) -> bool:
        """Whether an acknowledged event survives a power failure."""
        return self.store is not None and self.store.durable

    def unready(self) -> str | None:
        """Why the service is not ready, None if it is."""
        down = self._unread_since
        return "the store has been down for long; mend it" if down and time.monotonic() - down > GRACE_SECONDS else None

    async def kept(self, snapshot: Snapshot, body: Asking) -> StoredHistory:
        """The events after the end of the model's log, none for a body that names nobody; stale without the store."""
        owner = owner_of(body)
        if owner is None:
            return StoredHistory()
        limits = self._settings.limits
        found = await self._read_soon(lambda: kept_of(self._open(), owner, snapshot, body, limits), body.deadline_ms)
        if found is not None:
            return found
        self._stale.inc()
        at = self._erased.get(owner)
        return StoredHistory(stale=True, erased=snapshot.hides(at), tombstone=at)

    async def _read_soon(self, work: Callable[[], _Result], milliseconds: int | None = None) -> _Result | None:
        """The result of a read, None where the store does not answer it; `milliseconds`: the caller's deadline."""
        if time.monotonic() < self._failed_at + _PAUSE_SECONDS:
            return None
        # Half of the time; the search has the rest.
        longest = self._settings.timeout / 2
        seconds = longest if milliseconds is None else min(longest, milliseconds / 2000)
        try:
            return await _in_time(self._readers, work, seconds)
        except TimeoutError as error:
            # A store that is too slow for the early deadline of one caller may be well.
            if seconds == longest:
                self._late(error)
        except StoreUnavailable as error:
            self._failed("read", error)
        return None

    def _late(self, error: TimeoutError) -> None:
        """Ask a store that is not known to be down something brief: one history may take long."""
        if self._unread_since:
            self._failed("read", error)
            return
        self._errors.labels("read").inc()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        try:
            await _in_time(self._asker, lambda: self._open().get(_CLOCK), self._settings.timeout / 2)
        except (StoreUnavailable, TimeoutError) as error:
            self._failed("read", error)

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store the events. Errors: `Problem` where a key came with another body, or the store does not accept them."""
        if self._waiting + len(events) > _MOST_WAITING:
            message = f"{self._waiting} events wait for the store; send again later"
            raise Problem("overloaded", message, retry_after_ms=1000)
        began = time.monotonic()
        self._waiting += len(events)
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                store = self.store
                if store is None:
                    store = await _beside(self._writers, self._open)
                done: Appended = await asyncio.wrap_future(store.append(events))
        except KeyReused as error:
            raise Problem("key_reused", str(error), field="events") from None
        except (StoreUnavailable, TimeoutError) as error:
            raise self._refused("append", error) from None
        finally:
            self._waiting -= len(events)
        self._commit.observe(time.monotonic() - began)
        self._events.labels("accepted").inc(done.accepted)
        self._events.labels("duplicate").inc(done.duplicates)
        return done

    async def call(self, name: str, work: Callable[[HistoryStore], _Result]) -> _Result:
        """The result of `work` on the store, off the loop. Errors: `Problem` where it is down."""
        pool = self._readers if name in _READ_CALLS else self._writers
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                return await _beside(pool, lambda: work(self._open()))
        except (StoreUnavailable, TimeoutError) as error:
            raise self._refused(name, error) from None

    @asynccontextmanager
    async def in_turn(self, turn: asyncio.Lock) -> AsyncIterator[None]:
        """A context with the lock held. Errors: `Problem` where the store failed a call meanwhile: the next one would
        wait as long again.
        """
        asked = time.monotonic()
        async with turn:
            if self._refused_at >= asked:
                raise Problem("store_unavailable", "the store does not answer; ask again later", retry_after_ms=1000)
            yield

    async def erase(self, owner: Owner) -> int:
        """Delete all events of the owner; returns their number.

        The tombstone is later than all others, so that it holds for a model that was written without those.
        """
        gone, self._erased[owner] = await self.call("erase", lambda store: store.erase(owner, time.time()))
        return gone

    def _note_erased(self, found: Mapping[Owner, float]) -> None:
        self._erased |= found
        self._erased_until = max(found.values(), default=self._erased_until)

    async def is_as_before(
        self, owner: Owner, erased: float | None, seq: int | None, milliseconds: int | None = None
    ) -> bool:
        """Whether an owner's history of a tombstone and a seq was neither erased nor merged since, as far as known.

        `milliseconds`: the caller's deadline.
        """
        found = await self._read_soon(lambda: self._open().history(owner, last=0), milliseconds)
        if found is None:
            found = Stored(seq=seq or 0, erased=self._erased.get(owner))
        return (found.erased or -math.inf) <= (erased or -math.inf) and found.seq >= (seq or 0)

    async def is_erased(self, owner: Owner, snapshot: Snapshot) -> bool:
        """Whether a tombstone hides the model's data of the owner. Errors: `Problem` where the store is down."""
        stored = await self.call("read", lambda store: store.history(owner, last=0))
        return snapshot.hides(stored.erased)

    def _refused(self, name: str, error: BaseException) -> Problem:
        """What a caller is told; the reason, which may name servers and their users, is in the log."""
        self._failed(name, error)
        again = "send it again with the same keys" if name == "append" else "send it again"
        message = f"the store did not confirm it; {again}"
        if name in _READ_CALLS:
            message = "the store does not answer; ask again later"
        elif isinstance(error, TimeoutError):
            message = f"the store does not answer in time, and may do it later; {again}"
        return Problem("store_unavailable", message, retry_after_ms=1000)

    def _failed(self, name: str, error: BaseException) -> None:
        self._errors.labels(name).inc()
        if self.trouble is None:
            self.trouble = str(error) or "it does not answer in time"
            self._said("store_down", call=name, reason=self.trouble)
        self._refused_at = time.monotonic()
        self._down_since = self._down_since or self._refused_at
        # A store that cannot be written to, as on a full disk, may be read.
        if name in _READS:
            self._failed_at = self._refused_at
            self._unread_since = self._unread_since or self._failed_at
        else:
            self._is_refusing = True

    def _answers(self) -> None:
        if self.trouble is not None:
            self._said("store_up", seconds=round(time.monotonic() - self._down_since, 3))
            self._erased_until = -math.inf
        self._down_since = self._unread_since = 0.0
        self._is_refusing, self.trouble = False, None

    async def keep_up(self) -> None:
        """Maintain the store as long as the service runs: reconnect, follow erasures, apply retention."""
        compacted = 0.0
        while True:
            await asyncio.sleep(_ROUND_SECONDS)
            with suppress(Problem):
                self._note_erased(await self.call("erased", lambda store: store.erased(self._erased_until)))
                self._unread_since = 0.0
                if time.monotonic() - compacted > _COMPACT_SECONDS:
                    compacted = time.monotonic()
                    # A store that is full may delete, and so have room again.
                    with suppress(Problem):
                        await self._compact()
                if self._is_refusing:
                    await self.call("put", lambda store: store.put(_PROBE, secrets.token_hex(_PROBE_BYTES // 2)))
                    await self.call("put", lambda store: store.put(_PROBE, ""))
                self._answers()

    async def _compact(self) -> None:
        """Let go of what is beyond the retention, and old by a clock that is believed."""
        now, monotonic, retention = time.time(), time.monotonic(), self._settings.retention
        if self._clock is None:
            kept = await self.call("read", lambda store: store.get(_CLOCK))
            last, self._doubt_kept = _read_clock(kept)
            self._clock = Clock(last, now, monotonic, self._doubt_kept)
        was_doubted, believed = self._is_doubted, self._clock.believed(now, monotonic)
        doubted = self._clock.doubted
        self._is_doubted = doubted is not None
        if self._is_doubted and not was_doubted and retention != Retention():
            self._said("clock_ahead", reason="ages leave the jump out for a day; mend the clock")
        if retention != Retention():
            await self.call("compact", lambda store: store.compact(retention, believed))
        # A doubt outlasts the process, which may be restarted every day.
        if doubted != self._doubt_kept or (doubted is None and monotonic - self._clock_kept > _CLOCK_SECONDS):
            text = msgspec.json.encode([now if doubted is None else self._clock.last, doubted]).decode()
            await self.call("put", lambda store: store.put(_CLOCK, text))
            self._clock_kept, self._doubt_kept = monotonic, doubted

    def close(self) -> None:
        """Finish pending writes, and close the store."""
        for pool in (self._readers, self._writers, self._asker):
            pool.shutdown(cancel_futures=True)
        if self.store is not None:
            self.store.close()


def _read_clock(text: str | None) -> _Kept | tuple[None, None]:
    """The stored clock; none where there is none that can be read."""
    with suppress(msgspec.DecodeError):
        return (None, None) if text is None else msgspec.json.decode(text, type=_Kept)
    return None, None


def _beside(pool: ThreadPoolExecutor, work: Callable[[], _Result]) -> asyncio.Future[_Result]:
    return asyncio.get_running_loop().run_in_executor(pool, work)


async def _in_time(pool: ThreadPoolExecutor, work: Callable[[], _Result], seconds: float) -> _Result:
    """The result of `work` on a thread, at half the cost of `_beside` with a timeout: most requests read once.

    Errors: TimeoutError. Work that has not begun by then, or whose caller is cancelled, never begins. Unlike
    `asyncio.timeout` it may begin before its task (`Begun`).
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()
    timer = loop.call_later(seconds, settle, future, None, TimeoutError())
    pool.submit(_work_for, future, work)
    try:
        return await future
    finally:
        leave(future)
        timer.cancel()


def _work_for(future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
    if future.done():
        return
    value, error = None, None
    try:
        value = work()
    except BaseException as raised:
        error = raised
    # After the loop has ended nobody waits.
    with suppress(RuntimeError):
        future.get_loop().call_soon_threadsafe(settle, future, value, error)
