"""Connections whose clients send many requests at once: what is not answered yet stays with the system."""

import asyncio
import socket
from contextlib import closing

import pytest
from uvicorn.server import ServerState

from beamwood.serve.server import _Running
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from served import saved

BODY = b'{"user": 11, "k": 2}'
PADDED = b"host: x\r\nx-more: %s\r\n" % (b"x" * 8000)
ENDPOINTS = {
    "the fast path": b"POST /v1/recommend HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%s\r\n%s"
    % (len(BODY), PADDED, BODY),
    "ASGI": b"GET /livez HTTP/1.1\r\n%s\r\n" % PADDED,
}
# More than a few reads.
NUMBER = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("pipelining") / "model")[0]


async def answers(client, number):
    """The bytes of so many answers."""
    loop, got = asyncio.get_running_loop(), b""
    while got.count(b"HTTP/1.1 200 OK") < number:
        more = await loop.sock_recv(client, 1 << 20)
        assert more, "the connection was closed"
        got += more
    return got


def run(folder, main, received=lambda protocol: None):
    """Run `main(client, protocol)` with a client of a service, and its connection; `received(protocol)` is called as
    bytes come.
    """
    here, there = socket.socketpair()
    here.setblocking(False)
    settings = ServeSettings(timeout=60, max_wait=60, log="none")
    with closing(Service.open(folder, settings)) as service, here, there:
        config = _Running(service, folder, there).server.config
        config.load()

        class Noted(config.http_protocol_class):
            def data_received(self, data):
                received(self)
                super().data_received(data)

        async def connected():
            connect, state = asyncio.get_running_loop().create_connection, ServerState()
            _, protocol = await connect(lambda: Noted(config, state, {}), sock=there)
            async with asyncio.timeout(60):
                await main(here, protocol)

        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(connected())


def held_up(protocol):
    """The event for which all requests of ASGI wait from now on."""
    app, held = protocol.app, asyncio.Event()

    async def slow(*asked):
        await held.wait()
        await app(*asked)

    protocol.app = slow
    return held


@pytest.mark.parametrize("request_", ENDPOINTS.values(), ids=ENDPOINTS)
def test_no_more_is_read_while_requests_wait(folder, request_):
    waiting = []

    async def main(client, protocol):
        sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(client, request_ * NUMBER))
        await answers(client, NUMBER)
        await sending

    run(folder, main, lambda protocol: waiting.append(len(protocol.pipeline)))
    assert len(waiting) > 1
    assert set(waiting) == {0}


def test_a_head_whose_end_is_not_read_yet_is_not_slow(folder):
    request_ = ENDPOINTS["ASGI"]

    async def main(client, protocol):
        loop, cut, held = asyncio.get_running_loop(), len(request_) // 2, held_up(protocol)
        await loop.sock_sendall(client, request_ * 2 + request_[:cut])
        while not protocol.flow.read_paused:
            await asyncio.sleep(0)
        await loop.sock_sendall(client, request_[cut:])
        # As the time for a head ends.
        protocol._too_slow()
        held.set()
        await answers(client, 3)

    run(folder, main)


def test_what_waits_of_a_connection_that_is_lost_is_let_go(folder):
    async def main(client, protocol):
        held = held_up(protocol)
        await asyncio.get_running_loop().sock_sendall(client, ENDPOINTS["ASGI"] * 3)
        while not protocol.pipeline:
            await asyncio.sleep(0)
        protocol.transport.abort()
        while protocol.connections:
            await asyncio.sleep(0)
        assert not protocol.pipeline
        held.set()

    run(folder, main)
