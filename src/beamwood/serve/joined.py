"""Searches that wait at the same time are one search of many rows, so that a thread is handed them together.

To hand over one alone costs half of a brief search, as thread and event loop wait for one interpreter.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np

from beamwood.serve.engine import Engine, Priority, Ran, late
from beamwood.types import Hits, ItemLists, Query, Searcher, SearchOptions

__all__ = ["JoinedSearches"]

# So many rows at once: of more, the first would wait long for the last.
_MOST_ROWS = 8


class _Waiting:
    """A search of one row that waits; `alike`: whose is equal may be searched with it."""

    __slots__ = ("alike", "asked", "deadline", "entered", "future", "searcher")

    def __init__(self, searcher: Searcher, asked: tuple[Query, int, SearchOptions], deadline: float) -> None:
        self.searcher, self.asked, self.deadline, self.entered = searcher, asked, deadline, time.monotonic()
        self.future: asyncio.Future[Ran[Hits]] = asyncio.get_running_loop().create_future()
        query, k, options = asked
        columns = (query.context or {}).items()
        context = tuple((name, values.dtype, values.shape[1:]) for name, values in columns)
        ways = options.beam_width, options.effort, options.excluded is None
        self.alike: Hashable = (id(searcher), k, ways, context)


class JoinedSearches:
    """Searches of one priority by the threads of `engine`, at most one call for each; for the event loop alone.

    As many as wait go together, so nobody waits for others to come.
    """

    def __init__(self, engine: Engine, priority: Priority = Priority.CALLER) -> None:
        self._engine, self._priority = engine, priority
        self._waiting: deque[_Waiting] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def search(
        self, searcher: Searcher, query: Query, k: int, options: SearchOptions, *, deadline: float
    ) -> Ran[Hits]:
        """The hits of a query of one row, equal to those of it alone; `options` without a filter, `explain`, `good`.

        Errors: `Problem` "deadline" where it passes; what the search of this row raises.
        """
        waiting = _Waiting(searcher, (query, k, options), deadline)
        left = max(0.0, deadline - waiting.entered)
        timer = asyncio.get_running_loop().call_later(left, self._expire, waiting)
        self._waiting.append(waiting)
        self._begin()
        try:
            return await waiting.future
        finally:
            timer.cancel()

    def _expire(self, waiting: _Waiting) -> None:
        if not waiting.future.done():
            self._engine.expired += 1
            waiting.future.set_exception(late())

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._engine.threads:
            rows = self._next()
            if rows:
                task = asyncio.create_task(self._run(rows))
                self._running.add(task)

    def _next(self) -> list[_Waiting]:
        """Those that go with the one that has waited longest, without who is gone or late."""
        rows: list[_Waiting] = []
        others: deque[_Waiting] = deque()
        while self._waiting and len(rows) < _MOST_ROWS:
            each = self._waiting.popleft()
            if each.future.done():
                continue
            if rows and each.alike != rows[0].alike:
                others.append(each)
            else:
                rows.append(each)
        self._waiting.extendleft(reversed(others))
        return rows

    async def _run(self, rows: Sequence[_Waiting]) -> None:
        began, deadline = time.monotonic(), max(each.deadline for each in rows)
        try:
            ran = await self._engine.run(
                partial(_searched, rows), deadline=deadline, priority=self._priority, searches=len(rows)
            )
        except Exception as error:
            for each in rows:
                _tell(each, error)
        else:
            for each, found in zip(rows, ran.value, strict=True):
                queued = began - each.entered + ran.queued
                _tell(each, found if isinstance(found, Exception) else Ran(found, queued, ran.seconds, ran.pressure))
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._running.discard(task)
            self._begin()


def _tell(waiting: _Waiting, found: Ran[Hits] | Exception) -> None:
    if waiting.future.done():
        return
    if isinstance(found, Exception):
        waiting.future.set_exception(found)
    else:
        waiting.future.set_result(found)


def _searched(rows: Sequence[_Waiting], pressure: float) -> list[Hits | Exception]:  # noqa: ARG001
    """What each row has; where all together fail, each is searched alone, so that the fault of one is its own."""
    if len(rows) == 1:
        return [rows[0].searcher.search(*rows[0].asked)]
    try:
        hits = rows[0].searcher.search(*_together([each.asked for each in rows]))
    except Exception:
        return [_alone(each) for each in rows]
    cuts = [slice(row, row + 1) for row in range(len(rows))]
    return [Hits(hits.items[cut], hits.scores[cut], hits.scored[cut]) for cut in cuts]


def _alone(waiting: _Waiting) -> Hits | Exception:
    try:
        return waiting.searcher.search(*waiting.asked)
    except Exception as error:
        return error


def _together(asked: Sequence[tuple[Query, int, SearchOptions]]) -> tuple[Query, int, SearchOptions]:
    """One query of all rows."""
    queries = [query for query, _, _ in asked]
    _, k, first = asked[0]
    context = queries[0].context and {
        name: np.concatenate([(query.context or {})[name] for query in queries]) for name in queries[0].context
    }
    histories = ItemLists.concatenate([query.histories for query in queries])
    left_out = [options.excluded for _, _, options in asked if options.excluded is not None]
    excluded = ItemLists.concatenate(left_out) if left_out else None
    query = Query(np.concatenate([query.users for query in queries]), histories, context)
    return query, k, SearchOptions(excluded, beam_width=first.beam_width, effort=first.effort)
