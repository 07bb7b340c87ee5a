"""Who waits, who is refused, and what is never searched."""

import asyncio
import threading
import time

import pytest

from beamwood.serve.engine import Engine, Priority
from beamwood.serve.problems import Problem


class Gate:
    """Work that holds a thread until it is let go."""

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


async def queued(engine, work, priority=Priority.CALLER, deadline=None):
    task = asyncio.create_task(engine.run(work, deadline=deadline or soon(), priority=priority))
    await asyncio.sleep(0)
    return task


async def held(engine, gate):
    """A task that keeps the one thread busy."""
    task = await queued(engine, gate.hold())
    while engine.running < 1:
        await asyncio.sleep(0.001)
    return task


def run(main, **settings):
    engine = Engine(settings.pop("threads", 1), **({"max_wait": 60.0} | settings))

    async def whole():
        try:
            return await main(engine)
        finally:
            await asyncio.to_thread(engine.close)

    return asyncio.run(whole())


def test_callers_go_before_batches_before_warm_up(gate):
    async def main(engine):
        tasks = [await held(engine, gate)]
        for name, priority in (("warm", Priority.WARM_UP), ("batch", Priority.BATCH), ("caller", Priority.CALLER)):
            tasks.append(await queued(engine, gate.note(name), priority))
        gate.open.set()
        await asyncio.gather(*tasks)

    run(main)
    assert gate.done == ["held", "caller", "batch", "warm"]


def test_what_nobody_awaits_is_never_begun(gate):
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


def test_who_would_wait_too_long_is_refused_at_once(gate):
    async def main(engine):
        first = await held(engine, gate)
        engine.seconds = 0.04
        tasks = [await queued(engine, gate.note(number)) for number in range(3)]
        assert engine.estimated_wait == pytest.approx(0.12)
        assert engine.pressure == 1
        with pytest.raises(Problem) as raised:
            await engine.run(gate.note("refused"), deadline=soon())
        assert (raised.value.status, raised.value.retry_after_ms) == (429, 120)
        gate.open.set()
        await asyncio.gather(first, *tasks)
        assert engine.pressure == 0

    run(main, max_wait=0.1)
    assert "refused" not in gate.done


def test_batches_are_bounded(gate):
    async def main(engine):
        first = await held(engine, gate)
        tasks = [await queued(engine, gate.note("row"), Priority.BATCH) for _ in range(5)]
        with pytest.raises(Problem, match="too many"):
            await engine.run(gate.note("row"), deadline=soon(), priority=Priority.BATCH)
        assert not engine.estimated_wait, "a caller waits for no batch"
        gate.open.set()
        await asyncio.gather(first, *tasks)

    run(main, queued_rows=5)


def test_searches_are_narrowed_before_any_is_refused(gate):
    async def main(engine):
        first = await held(engine, gate)
        engine.seconds = 0.01
        tasks = [await queued(engine, gate.note(number)) for number in range(9)]
        gate.open.set()
        ran = await asyncio.gather(first, *tasks)
        return [each.pressure for each in ran[1:]]

    pressures = run(main, max_wait=0.1)
    assert pressures[0] == pytest.approx(0.6, abs=0.5)
    assert pressures[-1] == 0
    assert pressures[0] > 0


def test_what_fails_is_told(gate):
    def wrong(pressure):
        raise ZeroDivisionError("here")

    async def main(engine):
        with pytest.raises(ZeroDivisionError, match="here"):
            await engine.run(wrong, deadline=soon())
        assert (await engine.run(gate.note("next"), deadline=soon())).value[0] == "next"

    run(main)
