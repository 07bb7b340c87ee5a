"""Group commit: concurrent appends share one commit on a dedicated thread."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

from beamwood.serve.store.event import Event
from beamwood.serve.store.protocol import Appended, KeyReused, StoreUnavailable

__all__ = ["Batch", "Commit", "GroupWriter", "checked_keys"]

Batch = Sequence[Event]
# The result of each batch, after the commit.
Commit = Callable[[list[Batch]], list[Appended | KeyReused]]
_Result = TypeVar("_Result")
_EVENTS, _SECONDS = 500, 0.010


class GroupWriter:
    """Runs all writes of a store on one thread, in order; no other thread may write.

    Appends within 10 ms are committed together, up to 500 events. A group does not wait for further appends: a single
    one is committed at once, and appends during its commit form the next group. An append that is cancelled before its
    commit starts is not written; later it cannot be cancelled.
    """

    def __init__(self, name: str, commit: Commit) -> None:
        self._commit, self._queue = commit, queue.SimpleQueue[tuple[Any, Future[Any]] | None]()
        self._closed = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._run, name=f"{name}-writer", daemon=True)
        self._thread.start()

    def append(self, batch: Batch) -> Future[Appended]:
        """A future that completes after the commit of the batch."""
        return cast("Future[Appended]", self._put(list(batch)))

    def call(self, work: Callable[[], _Result]) -> _Result:
        """The result of `work`, run on the writer thread after all earlier appends."""
        return cast("Future[_Result]", self._put(work)).result()

    def close(self) -> None:
        """Complete all queued writes; later writes fail."""
        with self._closed:
            if self._open:
                self._open = False
                self._queue.put(None)
        self._thread.join()

    def _put(self, work: Any) -> Future[Any]:
        future: Future[Any] = Future()
        with self._closed:
            if self._open:
                self._queue.put((work, future))
                return future
        future.set_exception(StoreUnavailable("the store is closed"))
        return future

    def _run(self) -> None:
        waiting = self._queue.get()
        while waiting is not None:
            work, future = waiting
            if not future.set_running_or_notify_cancel():
                waiting = self._queue.get()
                continue
            if callable(work):
                _finish(future, work)
                waiting = self._queue.get()
                continue
            group, waiting = self._gather(work, future)
            self._write(group)
            waiting = waiting or self._queue.get()

    def _gather(self, batch: Batch, future: Future[Any]) -> tuple[list[tuple[Batch, Future[Any]]], Any]:
        """The group that starts with this batch, and the next queued call that is not an append."""
        group, size, end = [(batch, future)], len(batch), time.monotonic() + _SECONDS
        while size < _EVENTS and time.monotonic() < end:
            try:
                following = self._queue.get_nowait()
            except queue.Empty:
                break
            if following is None:
                self._queue.put(None)
                break
            if callable(following[0]):
                return group, following
            if following[1].set_running_or_notify_cancel():
                group.append(following)
                size += len(following[0])
        return group, None

    def _write(self, group: list[tuple[Batch, Future[Any]]]) -> None:
        try:
            results = self._commit([batch for batch, _ in group])
        except BaseException as error:
            for _, future in group:
                future.set_exception(error)
            return
        for (_, future), result in zip(group, results, strict=True):
            if isinstance(result, KeyReused):
                future.set_exception(result)
            else:
                future.set_result(result)


def checked_keys(batch: Batch, known: dict[bytes, bytes]) -> list[int] | KeyReused:
    """The places of the new events of a batch, without duplicates; `known`: content by identity of stored events.

    New events are added to `known`, unless a key is reused with a different body.
    """
    new: list[int] = []
    contents: dict[bytes, bytes] = {}
    for place, event in enumerate(batch):
        identity, content = event.identity, event.content
        before = known.get(identity, contents.get(identity))
        if before is not None and before != content:
            return KeyReused(event.key)
        if before is None:
            new.append(place)
            contents[identity] = content
    known |= contents
    return new


def _finish(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
