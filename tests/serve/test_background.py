"""Searches beside the interpreter: told together, late ones refused, abandoned ones never begun."""

import asyncio
import threading
import time

import numpy as np
import pytest

from beamwood.kernels import native
from beamwood.serve.background import Background
from beamwood.serve.engine import Engine
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from beamwood.types import ItemLists, Query, SearchOptions
from kernels.test_background import WAYS, Case, Threads, equal
from served import saved

pytestmark = pytest.mark.skipif(native() is None, reason="the native core was not built")


def soon():
    return time.monotonic() + 60


@pytest.fixture
def background():
    opened = Background.open(2, 0)
    yield opened
    opened.close()


class Work:
    """A search in steps; `steps` lists what was done."""

    def __init__(self, case, row, begins=True):
        self.case, self.row, self.begins, self.steps = case, row, begins, []

    def __call__(self, pressure):
        self.steps.append("whole")
        return self.case.direct(self.row, WAYS[1])

    def begin(self, pressure):
        self.steps.append("begin")
        if not self.begins:
            return None
        self.later = self.case.later(self.row)
        return self.later.task

    def end(self, searched):
        assert searched > 0
        self.steps.append("end")
        return self.later.found()


def test_many_searches_at_once_each_have_their_own_result(background):
    case = Case()
    laters = [case.later(at % 8) for at in range(40)]

    async def main():
        await asyncio.gather(*(background.run(later.task, soon()) for later in laters))

    asyncio.run(main())
    # A later loop has to be told too.
    again = case.later(3)
    asyncio.run(background.run(again.task, soon()))
    assert len(background) == 0
    for at, later in enumerate([*laters, again]):
        assert equal(later.found(), case.direct(at % 8 if at < 40 else 3, WAYS[1]))


def test_a_deadline_that_passed_is_an_error(background):
    case = Case()
    with pytest.raises(Problem) as raised:
        asyncio.run(background.run(case.later(0).task, time.monotonic() - 1))
    assert (raised.value.code, raised.value.status) == ("deadline", 504)


def test_a_deadline_may_be_as_far_away_as_any(background):
    later = Case().later(0)
    asyncio.run(background.run(later.task, time.monotonic() + 1e13))
    assert later.task.ran


class Held:
    """Native threads that begin nothing; their tasks end when they are collected."""

    def __init__(self):
        self.tasks = []

    def Background(self, threads, behind, signal):
        return self

    def submit(self, task, seconds):
        self.tasks.append(task)

    def ended(self):
        return self.tasks

    def close(self):
        pass


def begins(task):
    """Whether a task still runs where threads take it."""
    with Threads(1) as threads:
        threads.native.submit(task, 60.0)
        threads.ended(1)
    return task.ran


def test_a_deadline_that_passes_in_the_queue_is_an_error_at_once():
    late, held = Case().later(0).task, Background(Held(), 1, 0)
    with pytest.raises(Problem, match="not ready in time"):
        asyncio.run(held.run(late, time.monotonic() + 0.001))
    assert len(held) == 1
    held._collect()
    assert len(held) == 0
    held.close()
    assert not begins(late)


def test_the_search_of_a_caller_who_left_never_begins():
    left, held = Case().later(0).task, Background(Held(), 1, 0)

    async def main():
        leaving = asyncio.create_task(held.run(left, soon()))
        await asyncio.sleep(0)
        assert held._threads.tasks == [left]
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving

    asyncio.run(main())
    held._collect()
    assert len(held) == 0
    held.close()
    assert not begins(left)


def test_the_engine_searches_in_steps_where_it_can():
    case, engine = Case(), Engine(2)

    async def main():
        works = [Work(case, row, begins=row % 2 == 0) for row in range(8)]
        found = await asyncio.gather(*(engine.run_in_steps(work, deadline=soon()) for work in works))
        with pytest.raises(Problem, match="not ready in time"):
            await engine.run_in_steps(Work(case, 0), deadline=time.monotonic() - 1)
        return works, found

    try:
        works, found = asyncio.run(main())
    finally:
        engine.close()
    assert [work.steps for work in works] == [["begin", "end"], ["begin", "whole"]] * 4
    assert all(equal(ran.value, case.direct(row, WAYS[1])) for row, ran in enumerate(found))
    assert all(ran.seconds > 0 for ran in found)
    assert engine.expired == 1


def test_the_gauges_count_native_searches(tmp_path):
    folder, _ = saved(tmp_path / "model")
    service = Service.open(folder, ServeSettings(threads=2, log="none"))
    case, engine = Case(), service.engine

    def read():
        names = [("queue", {"priority": "caller"}), ("searches_running", {}), ("searches_abandoned_total", {})]
        return [service.metrics.registry.get_sample_value(f"beamwood_{name}", labels) for name, labels in names]

    async def main():
        works = [Work(case, at % 8) for at in range(7)]
        tasks = [asyncio.create_task(engine.run_in_steps(work, deadline=soon())) for work in works]
        await asyncio.sleep(0)
        # The loop learns of the ends in a later round.
        begun = read()
        tasks[-1].cancel()
        await asyncio.wait(tasks)
        wait = time.monotonic() + 30
        while engine.searching and time.monotonic() < wait:
            await asyncio.sleep(0.001)
        return begun

    begun = asyncio.run(main())
    assert (begun, read()) == ([5, 2, 0], [0, 0, 1])
    service.close()


def test_the_loop_does_not_wait_for_long_searches(tmp_path):
    folder, _ = saved(tmp_path / "model", num_items=2000)
    service = Service.open(folder, ServeSettings(threads=1, log="none"))
    tree, engine, ended = service.models.current.tree, service.engine, threading.Event()
    query = Query.of(ItemLists.from_lists([np.arange(5, dtype=np.int32)]))

    def long(pressure):
        while not ended.is_set():
            tree.search(query, 100, SearchOptions(beam_width=2000))

    async def main():
        held = asyncio.create_task(engine.run(long, deadline=soon()))
        while engine.running < 1:
            await asyncio.sleep(0.001)
        for _ in range(200):
            engine.run_here(lambda pressure: tree.search(query, 5), deadline=soon())
        ended.set()
        await held

    asyncio.run(main())
    assert (tree.queue.asked > 200, tree.queue.waited) == (True, 0)
    service.close()


def test_without_the_native_core_there_is_none(monkeypatch):
    monkeypatch.setenv("BEAMWOOD_KERNELS", "reference")
    assert Background.open(1, 0) is None
    case, engine = Case.__new__(Case), Engine(1)
    case.direct = lambda row, way: (row,)
    try:
        work = Work(case, 5)
        assert asyncio.run(engine.run_in_steps(work, deadline=soon())).value == (5,)
    finally:
        engine.close()
    assert work.steps == ["whole"]
