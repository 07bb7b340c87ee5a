"""The load generator against a small server: answers in pieces, connections that end, and a server that takes none."""

import random
import select
import socket
import socketserver
import threading
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.serve_load import Counts, Load

from benchmarks import serve_load

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="the load generator needs Linux")
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{"degraded":true}'


@contextmanager
def answering(answer):
    """The address of a server that calls `answer(write)` for each request, and closes where that returns True."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            while head := self.rfile.readline():
                length = 0
                while head.strip():
                    name, _, value = head.partition(b":")
                    length = int(value) if name == b"content-length" else length
                    head = self.rfile.readline()
                self.rfile.read(length)
                if answer(self.wfile.write):
                    return

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads, block_on_close = True, False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


@pytest.fixture
def refusing():
    """An address where nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def clock(monkeypatch):
    """Time that passes by looking at it, and by pauses."""
    ticks, slept = count(), []

    def now():
        return next(ticks) / 1000 + sum(slept)

    monkeypatch.setattr(serve_load, "time", SimpleNamespace(perf_counter=now, sleep=slept.append))
    return slept


def load_on(address, **plan):
    """A load that has sent nothing yet."""
    return Load({"bodies": [{"user": 1}], "path": "/recommend", "address": address, **plan}, Counts())


def statuses(load):
    return {status: len(seconds) for status, seconds in load.counts.seconds.items()}


def answered(load):
    """The load after one request."""
    load.send(0.0)
    while load.running:
        load.collect(None)
    return load


def test_an_answer_in_two_pieces():
    seen = threading.Event()

    def answer(write):
        write(ANSWER[:50])
        seen.wait(60)
        write(ANSWER[50:])

    with answering(answer) as address:
        load = load_on(address)
        load.send(0.0)
        load.collect(None)
        assert (load.running, statuses(load)) == (1, {})
        seen.set()
        while load.running:
            load.collect(None)
        assert (statuses(load), load.counts.errors, load.counts.degraded) == ({200: 1}, 0, 1)
        assert len(load.free) == 1


def test_a_connection_that_ends_while_idle_is_no_error():
    with answering(lambda write: write(ANSWER) and True) as address:
        load = answered(load_on(address))
        assert len(load.free) == 1
        load.collect(None)
        assert (statuses(load), load.counts.errors) == ({200: 1}, 0)
        assert not load.connections
        assert not load.free


@pytest.mark.parametrize("header", [b"connection: close", b"Connection:close"])
def test_a_connection_that_the_server_will_close_is_not_used_again(header):
    with answering(
        lambda write: write(ANSWER.replace(b"\r\n\r\n", b"\r\n" + header + b"\r\n\r\n")) and False
    ) as address:
        load = answered(load_on(address))
        assert (statuses(load), load.counts.errors) == ({200: 1}, 0)
        assert not load.connections
        assert not load.free
        assert statuses(answered(load)) == {200: 2}


@pytest.mark.parametrize("wrong", [ANSWER[:50], b"HTTP/1.1 \r\n\r\n", ANSWER.replace(b"200", b"two")])
def test_a_wrong_answer_is_an_error_and_ends_the_connection(wrong):
    with answering(lambda write: write(wrong) and True) as address:
        load = answered(load_on(address))
        assert (statuses(load), load.counts.errors, load.running) == ({}, 1, 0)
        assert not load.connections
        assert not load.free


def test_a_closed_loop_ends_with_its_seconds(clock):
    with answering(lambda write: write(ANSWER) and False) as address:
        load = load_on(address, connections=3, seconds=0.5)
        load.closed()
    assert load.sent > 3
    assert (statuses(load), load.counts.errors, load.running) == ({200: load.sent}, 0, 0)
    assert not clock


def test_a_closed_loop_lasts_its_seconds_where_nobody_listens(refusing, clock):
    load = load_on(refusing, connections=3, seconds=0.5)
    load.closed()
    assert len(clock) > 3
    assert load.counts.errors == load.sent >= 3 * len(clock)
    assert sum(clock) <= 0.5


def test_an_open_loop_counts_every_connection_that_was_not_made(refusing):
    load = load_on(refusing, connections=3, seconds=0.05, rate=1000)
    load.opened()
    assert load.counts.errors == 3 + load.sent
    assert statuses(load) == {}


def test_an_open_loop_keeps_its_arrivals_and_counts_how_late_it_sends(clock):
    load, arrived, drawn = load_on("nowhere:1", connections=0, seconds=0.3, rate=100), [], random.Random(1)

    def slow(due):
        arrived.append(due)
        for _ in range(50):
            serve_load.time.perf_counter()

    load.send, load.collect = slow, lambda seconds: None
    load.opened()
    gaps = [drawn.expovariate(100) for _ in arrived]
    assert np.diff(arrived) == pytest.approx(gaps[1:])
    assert len(load.counts.late) == len(arrived) > 20
    assert min(load.counts.late) >= 0
    assert load.counts.late[-1] > 0.5


def test_a_connection_that_cannot_be_made_keeps_no_other_waiting(clock, monkeypatch):
    whole, made = serve_load.Connection, []

    def only_one(address):
        if made:
            raise ConnectionRefusedError
        made.append(whole(address))
        return made[0]

    monkeypatch.setattr(serve_load, "Connection", only_one)
    with answering(lambda write: write(ANSWER) and False) as address:
        load = load_on(address, connections=2, seconds=0.5)
        load.closed()
    (answers,) = statuses(load).values()
    assert answers > 3
    assert load.counts.errors <= answers + 1
