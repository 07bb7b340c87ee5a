"""Requests of disconnected clients are not searched, and slow senders get an error."""

import asyncio
import json
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

import beamwood
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.app import build_app
from beamwood.serve.engine import Priority
from beamwood.serve.http.begun import Begun
from beamwood.serve.messages import Recommend
from beamwood.serve.service import Service
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.upkeep import cancel_all, upkeep
from served import recommend, saved, serving


def scope_of(path):
    return {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json")],
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
    }


def test_requests_of_disconnected_clients_are_not_searched(tmp_path):
    folder, _ = saved(tmp_path / "model")
    service = Service.open(folder, ServeSettings(threads=1, timeout=60, max_wait=60, log="none"))
    app, hold, sent = build_app(service), threading.Event(), []

    async def main():
        leave = asyncio.Event()
        messages = iter([{"type": "http.request", "body": json.dumps({"user": 11, "beam_width": 9}).encode()}])

        async def receive():
            message = next(messages, None)
            if message is None:
                await leave.wait()
                return {"type": "http.disconnect"}
            return message

        async def send(message):
            sent.append(message)

        def busy(pressure):
            hold.wait(30)

        loop = asyncio.get_running_loop()
        first = asyncio.create_task(service.engine.run(busy, deadline=loop.time() + 1e6, priority=Priority.CALLER))
        while service.engine.running < 1:
            await asyncio.sleep(0.001)
        request = asyncio.create_task(app(scope_of("/v1/recommend"), receive, send))
        while service.engine.waiting() < 1:
            await asyncio.sleep(0.001)
        leave.set()
        await request
        hold.set()
        await first
        while service.engine.waiting():
            await asyncio.sleep(0.001)
        await service.engine.run(lambda pressure: None, deadline=loop.time() + 1e6)

    asyncio.run(main())
    assert sent == []
    assert (service.engine.expired, service.in_flight, len(service.loader.recorded)) == (1, 0, 0)
    assert 'route="/v1/recommend"' in service.metrics.text().decode()
    assert 'code="499"' in service.metrics.text().decode()
    service.close()


def test_a_client_who_leaves_at_once_holds_no_turn(tmp_path):
    folder, _ = saved(tmp_path / "model")
    service = Service.open(folder, ServeSettings(threads=1, timeout=60, max_wait=60, log="none"))
    hold, app = threading.Event(), build_app(service)
    (endpoint,) = (each for (_, path), each in app.waited.items() if path == b"/v1/recommend")
    content = json.dumps({"user": 11, "beam_width": 9}).encode()

    async def gone():
        return {"type": "http.disconnect"}

    async def main():
        loop = asyncio.get_running_loop()
        first = asyncio.create_task(service.engine.run(lambda pressure: hold.wait(30), deadline=loop.time() + 1e6))
        while service.engine.running < 1:
            await asyncio.sleep(0.001)
        # As the protocol does in its turn: the client is seen to have left before the task's first step.
        service.admission.enter()
        call, headers = endpoint.call([(b"content-type", b"application/json")], gone, loop.time())
        begun = Begun(endpoint.answered(call, headers, content, print))
        call.task = asyncio.create_task(begun)
        await asyncio.wait([call.task], timeout=30)
        hold.set()
        await first

    asyncio.run(main())
    assert (service.in_flight, service.admission.callers, service.engine.long) == (0, 0, 0)
    assert 'code="499"' in service.metrics.text().decode()
    service.close()


def test_what_has_begun_ends_with_a_task_that_is_cancelled_at_once():
    steps = []

    async def work(wait):
        try:
            steps.append(await wait)
        finally:
            steps.append("end")
        return 5

    async def main(cancel):
        wait = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(Begun(work(wait)))
        if cancel:
            task.cancel()
        asyncio.get_running_loop().call_later(0.01, wait.set_result, 3)
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    assert asyncio.run(main(cancel=True)) is None
    assert steps == ["end"]
    assert asyncio.run(main(cancel=False)) == 5
    assert steps == ["end", 3, "end"]


def test_slow_and_long_bodies_are_refused(tmp_path):
    folder, _ = saved(tmp_path / "model")
    limits = Limits(body_seconds=0.05, body_bytes=1000)
    service = Service.open(folder, ServeSettings(threads=1, timeout=60, log="none", limits=limits))
    app = build_app(service)

    async def status(*messages):
        coming, sent = iter(messages), []

        async def receive():
            message = next(coming, None)
            if message is None:
                await asyncio.sleep(60)
            return message

        async def send(message):
            sent.append(message)

        await app(scope_of("/v1/recommend"), receive, send)
        return sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]

    def part(body, more):
        return {"type": "http.request", "body": body, "more_body": more}

    async def main():
        assert await status(part(b'{"us', True)) == (408, "slow_body")
        assert await status() == (408, "slow_body")
        assert await status(part(b" " * 600, True), part(b" " * 600, True)) == (413, "too_large")
        assert await status(part(b" " * 1200, False)) == (413, "too_large")
        assert await status(part(b'{"us', True), {"type": "http.disconnect"}) == (499, "client_gone")

    asyncio.run(main())
    service.close()


def test_beams_narrow_under_load_and_answers_report_it(tmp_path):
    folder, _ = saved(tmp_path / "model")
    snapshot = open_snapshot(folder, min_beam=2)
    body = Recommend(user=11, k=2)

    def answer(pressure, body=body):
        return recommended(snapshot, body, StoredHistory(), Limits(), request_id="", pressure=pressure)[0]

    widths = [answer(pressure).beam_width for pressure in (0, 0.01, 0.5, 1)]
    assert widths[0] == 8
    assert widths[-1] == 2
    assert widths == sorted(widths, reverse=True)
    assert not answer(0).degraded
    assert answer(0.01).degraded
    assert not answer(1, Recommend(user=11, k=2, beam_width=8)).degraded, "a requested width is used"
    assert open_snapshot(folder, min_beam=50).rungs[1:] == (), "no beam is wider than requested"


def test_a_task_cancelled_as_its_answer_arrives_ends(tmp_path):
    """`asyncio.wait_for` of Python 3.11 loses such a cancellation, so a service that awaits its tasks would hang."""
    folder, _ = saved(tmp_path / "model")
    service = Service.open(folder, ServeSettings(threads=1, log="none"))

    async def main():
        histories, answer = service.histories, asyncio.get_running_loop().create_future()
        histories._in_pool = lambda _: answer
        work = asyncio.create_task(histories.call("read", lambda store: store))
        await asyncio.sleep(0)
        answer.set_result(None)
        work.cancel()
        await asyncio.wait([work], timeout=30)
        assert work.cancelled()

    asyncio.run(main())
    service.close()
    for file in Path(beamwood.__file__).parent.rglob("*.py"):
        assert "wait_for(" not in file.read_text(), f"{file} loses cancellations; write asyncio.timeout"


def test_maintenance_survives_failures_and_ends(tmp_path, capsys):
    folder, _ = saved(tmp_path / "model")
    service, calls = Service.open(folder, ServeSettings(threads=1, log="none")), []

    async def wrong():
        calls.append("wrong")
        raise ZeroDivisionError("here")

    async def stubborn():
        while True:
            calls.append("begun")
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            if calls.count("begun") > 1:
                return

    async def main():
        service.catalogue.keep_up = wrong
        async with asyncio.timeout(60):
            async with upkeep(service):
                while calls.count("wrong") < 2:
                    await asyncio.sleep(0.01)
            task = asyncio.create_task(stubborn())
            await asyncio.sleep(0)
            await cancel_all([task])

    asyncio.run(main())
    service.close()
    assert calls.count("begun") == 2
    assert "ZeroDivisionError: here" in capsys.readouterr().err


def test_a_failure_of_the_last_upkeep_loses_no_answers(tmp_path, monkeypatch):
    folder, retriever = saved(tmp_path / "model")
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr(store, "close", lambda: None)

    async def wrong():
        raise ZeroDivisionError("here")

    with suppress(ZeroDivisionError), serving(folder) as client:
        client.service.first_events.finish = wrong
        name = recommend(client, {"history": retriever.items.decode(np.arange(3))})["request_id"]
    assert client.service.closed
    assert [*store.noted([name])] == [name]
