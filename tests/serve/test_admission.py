"""Admission control by the service time of callers, whatever they wait for."""

import asyncio
import json
import urllib.request

import pytest

from beamwood.serve import admission
from beamwood.serve.admission import Admission
from beamwood.serve.problems import Problem
from served import Server, saved


class Clock:
    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(admission, "time", clock)
    return clock


def busy(one, clock, seconds, times=500):
    """This many callers were answered in sequence, each in this many seconds, while others waited."""
    for _ in range(one.always):
        one.enter()
    for _ in range(times):
        clock.now += seconds
        one.leave()
        one.enter()
    for _ in range(one.always):
        one.leave()


def test_the_expected_wait_is_the_service_time_times_the_queue_length(clock):
    one = Admission(1, max_wait=0.1)
    busy(one, clock, 0.02)
    assert one.seconds == pytest.approx(0.02, rel=0.05)
    for _ in range(6):
        one.enter()
    assert one.estimated_wait == pytest.approx(0.12, rel=0.05)
    with pytest.raises(Problem) as refused:
        one.enter()
    assert (refused.value.code, refused.value.status) == ("overloaded", 429)
    assert refused.value.retry_after_ms == pytest.approx(120, rel=0.05)
    one.leave()
    one.leave()
    assert one.refusal is None


def test_enough_callers_to_keep_the_threads_busy_are_always_admitted(clock):
    one = Admission(2, max_wait=0.1)
    busy(one, clock, 50.0)
    for _ in range(4):
        one.enter()
    assert one.refusal is not None
    one.leave()
    assert one.refusal is None
    one.enter()
    for _ in range(600):
        clock.now += 0.01
        one.leave()
        one.enter()
    assert one.refusal is None, "an old slow period is forgotten"


def test_idle_time_does_not_count_as_service_time(clock):
    one = Admission(1, max_wait=0.1)
    before = one.seconds
    for _ in range(100):
        one.enter()
        clock.now += 60.0
        one.leave()
    assert one.seconds == before


class Turns:
    """Callers who wait for their turn in an event loop."""

    def __init__(self, one):
        self.one, self.begun = one, []

    def come(self, number, *, gone=False):
        def begin():
            if not gone:
                self.begun.append(number)
            return not gone

        self.one.wait(begin)


def test_one_caller_starts_per_round_and_few_run_at_a_time():
    async def main():
        one = Admission(1, max_wait=60.0)
        turns, lengths = Turns(one), []
        for number in range(30):
            turns.come(number)
        for _ in range(20):
            lengths.append(len(turns.begun))
            await asyncio.sleep(0)
        assert lengths == [*range(1, 17), 16, 16, 16, 16]
        assert (one.callers, one.before) == (16, 30)
        one.leave()
        one.leave()
        assert len(turns.begun) == 16, "a ready answer does not wait for the next one"
        await asyncio.sleep(0)
        assert turns.begun == list(range(17))
        await asyncio.sleep(0)
        assert turns.begun == list(range(18))

    asyncio.run(main())


def test_several_callers_start_per_round_while_many_wait():
    async def main():
        one = Admission(1, max_wait=60.0)
        turns, lengths = Turns(one), []
        for number in range(40):
            turns.come(number, gone=number == 2)
        for _ in range(6):
            lengths.append(len(turns.begun))
            await asyncio.sleep(0)
        assert lengths == [1, 5, 9, 10, 11, 12], "one at a time again once at most 32 wait"
        assert turns.begun == [0, 1, *range(3, 14)]
        assert one.callers == 13

    asyncio.run(main())


def test_a_caller_who_leaves_the_queue_is_skipped():
    async def main():
        one = Admission(1, max_wait=60.0)
        turns = Turns(one)
        for number in range(17):
            turns.come(number)
            await asyncio.sleep(0)
        for number in range(17, 21):
            turns.come(number, gone=True)
        turns.come(21)
        one.leave()
        one.leave()
        await asyncio.sleep(0)
        assert turns.begun == [*range(17)]
        await asyncio.sleep(0)
        assert turns.begun == [*range(17), 21]
        assert (one.callers, one.before) == (16, 16)

    asyncio.run(main())


def test_searches_are_narrowed_before_requests_are_refused():
    async def main():
        one = Admission(1, max_wait=0.09)
        one.seconds = 0.02
        turns, seen = Turns(one), []
        while one.refusal is None:
            seen.append(one.pressure)
            turns.come(len(seen))
        return [*seen, one.pressure]

    seen = asyncio.run(main())
    assert seen == pytest.approx([0, 0, 0, 0.33, 0.78, 1.0], abs=0.05)


def test_a_slow_body_does_not_block_others(tmp_path):
    folder, _ = saved(tmp_path / "model")
    with Server(folder, "--threads", "1", "--timeout", "10s") as server:
        body = b'{"user": 11, "k": 1}'
        head = b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        whole = head + b"content-length: %d\r\n\r\n" % len(body) + body
        slow = [server.socket() for _ in range(20)]
        for each in slow:
            each.sendall(whole[:-5])
        quick = server.socket()
        for _ in range(3):
            quick.sendall(whole)
            assert answered(quick, body)[0] == 200
        for each in slow:
            each.sendall(whole[-5:])
        assert [answered(each, body)[0] for each in slow] == [200] * 20
        # Two pipelined requests on one connection, the second in two parts.
        quick.sendall(whole + whole[:-5])
        assert answered(quick, body)[0] == 200
        quick.sendall(whole[-5:])
        assert answered(quick, body)[0] == 200
        for each in (quick, *slow):
            each.close()


def test_every_request_of_a_flood_is_answered_or_refused_on_its_connection(tmp_path):
    folder, _ = saved(tmp_path / "model")
    with Server(folder, "--threads", "1", "--max-wait", "1ms", "--timeout", "10s") as server:
        sockets = [server.socket() for _ in range(60)]
        body = b'{"user": 11, "k": 1, "beam_width": 90}'
        head = b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-request-id: mine\r\n"
        statuses = []
        for _ in range(5):
            for each in sockets:
                each.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            statuses += [answered(each, body) for each in sockets]
        assert {status for status, _ in statuses} == {200, 429}
        for status, answer in statuses:
            assert answer.get("request_id", answer.get("error", {}).get("request_id")) == "mine"
            assert status == 200 or answer["error"]["code"] == "overloaded"
        with urllib.request.urlopen(f"{server.address}/metrics", timeout=30) as figures:
            text = figures.read().decode()
        refused = sum(status == 429 for status, _ in statuses)
        assert f'beamwood_rejected_total{{reason="overloaded"}} {float(refused)}' in text
        for each in sockets:
            each.close()


def answered(each, body):
    """The status and the JSON of the next response."""
    content = b""
    while b"\r\n\r\n" not in content:
        content += each.recv(65536)
    head, _, rest = content.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(rest) < length:
        rest += each.recv(65536)
    assert len(rest) == length
    return int(head.split()[1]), json.loads(rest)
