"""Connections that are to be closed, whose clients do not read what is left for them: none stays forever."""

import asyncio
import socket
from contextlib import closing

import pytest
from uvicorn.server import ServerState

from beamwood.serve.server import _Running
from beamwood.serve.service import Service
from beamwood.serve.settings import Limits, ServeSettings
from served import saved

PAGE = b"GET /page.js HTTP/1.1\r\nhost: x\r\n"
BODY = b'{"user": 11, "k": 80}'
POST = b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
UNREAD = {
    "the last answer": POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY,
    "the last answer, of ASGI": PAGE + b"connection: close\r\n\r\n",
    "a refusal": PAGE + b"\r\nnothing\r\n\r\n",
    "a slow head": PAGE + b"\r\nGET",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("unread") / "model")[0]


@pytest.mark.parametrize("sent", UNREAD.values(), ids=UNREAD)
def test_a_client_that_never_reads_is_disconnected(folder, monkeypatch, sent):
    monkeypatch.setattr("beamwood.serve.http.protocol._LAST_SECONDS", 0.1)
    limits = Limits(idle_seconds=0.2, header_seconds=0.1)
    here, there = socket.socketpair()
    with closing(Service.open(folder, ServeSettings(limits=limits, timeout=60))) as service, here, there:
        # Less than an answer fits in, and less is left than what stops the writing.
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        config = _Running(service, folder, there).server.config
        config.load()
        state = ServerState()

        async def main():
            connect = asyncio.get_running_loop().create_connection
            await connect(lambda: config.http_protocol_class(config, state, {}), sock=there)
            here.sendall(sent)
            async with asyncio.timeout(30):
                while state.connections or not state.total_requests:
                    await asyncio.sleep(0.01)

        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(main())
