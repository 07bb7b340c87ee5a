"""The engine's queue: order, refusals, and requests that are never searched."""

import asyncio
import gc
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamwood.serve import engine as engine_module
from beamwood.serve import histories
from beamwood.serve.engine import Engine, Priority
from beamwood.serve.http.begun import Begun
from beamwood.serve.problems import Problem


class Gate:
    """Work that blocks a thread until it is released."""

    def __init__(self):
        self.open, self.done = threading.Event(), []

    def hold(self, name="held"):
        def work(pressure):
            self.open.wait(30)
            self.done.append(name)
            return name

        return work

    def note(self, name):
        def work(pressure):
            self.done.append(name)
            return name, pressure

        return work


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


def soon():
    return time.monotonic() + 30


async def queued(engine, work, priority=Priority.CALLER, deadline=None, **more):
    task = asyncio.create_task(engine.run(work, deadline=deadline or soon(), priority=priority, **more))
    await asyncio.sleep(0)
    return task


async def held(engine, gate):
    """A task that keeps the only thread busy."""
    task = await queued(engine, gate.hold())
    while engine.running < 1:
        await asyncio.sleep(0.001)
    return task


def run(main, **settings):
    engine = Engine(settings.pop("threads", 1), **settings)

    async def whole():
        try:
            return await main(engine)
        finally:
            await asyncio.to_thread(engine.close)

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("patience", "seconds", "order"),
    [
        (60.0, 30.0, ["caller", "batch", "warm"]),
        (0.0, 30.0, ["warm", "caller", "batch"]),
        (60.0, 0.0, ["warm", "caller", "batch"]),
    ],
)
def test_callers_precede_batches_and_these_warm_up_that_has_not_waited_for_long(
    gate, monkeypatch, patience, seconds, order
):
    """Else no other model could be loaded during an overload."""
    monkeypatch.setattr("beamwood.serve.engine._PATIENCE", patience)

    async def main(engine):
        # Of a brief search a few are not long either.
        engine.seconds = seconds
        tasks = [await held(engine, gate)]
        for name, priority in (("warm", Priority.WARM_UP), ("batch", Priority.BATCH), ("caller", Priority.CALLER)):
            tasks.append(await queued(engine, gate.note(name), priority))
        gate.open.set()
        await asyncio.gather(*tasks)

    run(main)
    assert gate.done == ["held", *order]


def test_cancelled_work_is_never_started(gate):
    async def main(engine):
        first = await held(engine, gate)
        left = await queued(engine, gate.note("left"))
        late = await queued(engine, gate.note("late"), deadline=time.monotonic() + 0.02)
        left.cancel()
        with pytest.raises(Problem) as raised:
            await late
        assert (raised.value.code, raised.value.status) == ("deadline", 504)
        gate.open.set()
        await first
        await (await queued(engine, gate.note("next")))
        assert engine.expired == 2

    run(main)
    assert gate.done == ["held", "next"]


def test_batches_are_bounded(gate):
    async def main(engine):
        first = await held(engine, gate)
        tasks = [await queued(engine, gate.note("row"), Priority.BATCH) for _ in range(5)]
        with pytest.raises(Problem, match="too many"):
            await engine.run(gate.note("row"), deadline=soon(), priority=Priority.BATCH)
        gate.open.set()
        await asyncio.gather(first, *tasks)

    run(main, queued_rows=5)


def test_searches_are_narrowed_as_far_as_requested(gate):
    async def main(engine):
        there = await engine.run(lambda pressure: pressure, deadline=soon(), pressure=0.75)
        return there, engine.run_here(lambda pressure: pressure, deadline=soon(), pressure=0.25)

    there, here = run(main)
    assert (there.value, there.pressure) == (0.75, 0.75)
    assert (here.value, here.pressure, here.queued) == (0.25, 0.25, 0.0)


def test_late_requests_are_not_searched(gate):
    async def main(engine):
        with pytest.raises(Problem, match="not ready in time"):
            engine.run_here(gate.note("late"), deadline=time.monotonic() - 0.001)
        assert engine.expired == 1

    run(main)
    assert gate.done == []


def test_failures_are_reported(gate):
    def wrong(pressure):
        raise ZeroDivisionError("here")

    async def main(engine):
        with pytest.raises(ZeroDivisionError, match="here"):
            await engine.run(wrong, deadline=soon())
        assert (await engine.run(gate.note("next"), deadline=soon())).value[0] == "next"

    run(main)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone gives each thread a priority of its own")
def test_search_threads_have_lower_priority_than_the_event_loop():
    engine = Engine(1)
    try:
        ran = asyncio.run(engine.run(lambda _: os.nice(0), deadline=time.monotonic() + 5, priority=Priority.CALLER))
    finally:
        engine.close()
    assert ran.value == min(19, os.nice(0) + 4)


def test_a_stalled_search_does_not_change_the_service_time():
    engine = Engine(1)

    def busy(seconds):
        def work(pressure):
            until = time.thread_time() + seconds
            while time.thread_time() < until:
                pass

        return work

    try:
        engine.seconds = 0.001
        engine.run_here(busy(0.05), deadline=time.monotonic() + 60)
        assert 0.001 < engine.seconds < 0.0014, "a pause is not a search"
        assert engine.is_brief
        for _ in range(30):
            engine.run_here(busy(0.004), deadline=time.monotonic() + 60)
        assert engine.seconds > 0.003, "but a lasting change is noticed"
        assert not engine.is_brief
    finally:
        engine.close()


@pytest.fixture
def told(monkeypatch):
    """The number of results reported together, each time."""
    counts = []
    deliver = engine_module._deliver

    def noted(ended):
        counts.append(len(ended))
        deliver(ended)

    monkeypatch.setattr(engine_module, "_deliver", noted)
    return counts


def test_results_of_short_searches_are_reported_together(gate, told):
    async def main(engine):
        first = await held(engine, gate)
        tasks = [await queued(engine, gate.note(number), brief=True) for number in range(11)]
        gate.open.set()
        await asyncio.gather(first, *tasks)
        lone = await engine.run(gate.note("lone"), deadline=soon(), brief=True)
        return [task.result().value[0] for task in tasks] + [lone.value[0]]

    assert run(main) == [*range(11), "lone"]
    assert told == [1, 8, 3, 1]


def test_a_finished_search_does_not_wait_for_a_long_one(gate, told):
    async def main(engine):
        later = Gate()
        first = await held(engine, gate)
        brief = await queued(engine, gate.note("brief"), brief=True)
        long = await queued(engine, later.hold("long"))
        last = await queued(engine, gate.note("last"), brief=True)
        gate.open.set()
        await asyncio.gather(first, brief)
        assert not long.done()
        assert not last.done()
        later.open.set()
        await asyncio.gather(long, last)

    run(main)
    assert told == [1, 1, 1, 1]


def test_a_failed_short_search_does_not_affect_others(gate, told):
    def wrong(pressure):
        raise ZeroDivisionError("here")

    async def main(engine):
        first = await held(engine, gate)
        tasks = [await queued(engine, work, brief=True) for work in (gate.note("a"), wrong, gate.note("b"))]
        late = await queued(engine, gate.note("late"), brief=True, deadline=time.monotonic() + 0.001)
        await asyncio.sleep(0.01)
        gate.open.set()
        found = await asyncio.gather(first, *tasks, late, return_exceptions=True)
        assert [type(each) for each in found[2::2]] == [ZeroDivisionError, Problem]
        return engine.expired

    assert run(main) == 1
    assert gate.done == ["held", "a", "b"]
    assert told == [1, 3]


@pytest.mark.parametrize(
    "run",
    [
        lambda engine, pool, work: engine.run(lambda pressure: work(), deadline=soon()),
        lambda engine, pool, work: histories._in_time(pool, work, 30),
    ],
)
def test_an_error_after_the_caller_was_cancelled_is_not_reported(run):
    engine, began, goes_on, reported = Engine(1), threading.Event(), threading.Event(), []

    def work():
        began.set()
        goes_on.wait(30)
        raise ValueError("nobody is told")

    async def main(pool):
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(context["message"]))
        begun = Begun(run(engine, pool, work))
        assert began.wait(30)
        task = asyncio.create_task(begun)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        goes_on.set()
        await asyncio.to_thread(engine.close)
        await asyncio.to_thread(pool.shutdown)

    asyncio.run(main(ThreadPoolExecutor(1)))
    gc.collect()
    assert reported == []
