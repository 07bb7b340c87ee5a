"""HTTP at the level of bytes: the fast path without ASGI answers like the ASGI application."""

import json
import re
import socket
import time
import urllib.request
from pathlib import Path

import pytest

from beamwood.serve.http.host_name import check_host
from served import Server, saved, wait_until

BODY = b'{"user": 11, "k": 2}'


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder, _ = saved(tmp_path_factory.mktemp("protocol") / "model")
    limits = ("--limit", "idle_seconds=1s", "--limit", "header_seconds=1s", "--limit", "body_bytes=4KB")
    limits += ("--limit", "body_seconds=1s")
    with Server(folder, "--timeout", "20s", "--max-wait", "20s", *limits) as server:
        yield server


def request(body=BODY, *more, path=b"/v1/recommend", version=b"1.1", kind=b"application/json"):
    lines = [b"POST %s HTTP/%s" % (path, version), b"host: x", b"content-type: " + kind, *more]
    if not any(each.startswith(b"transfer-encoding") for each in more):
        lines.append(b"content-length: %d" % len(body))
    return b"\r\n".join([*lines, b"", body])


class Asking:
    """A connection, and the bytes read from it."""

    def __init__(self, server):
        self.socket, self.left = server.socket(), b""

    def send(self, content):
        self.socket.sendall(content)
        return self

    def more(self):
        got = self.socket.recv(65536)
        self.left += got
        return bool(got)

    def answer(self):
        """The status, the headers and the JSON of the next answer."""
        while b"\r\n\r\n" not in self.left:
            assert self.more(), "the connection was closed"
        head, _, self.left = self.left.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        assert len(headers) == len(lines), "a header occurs twice"
        while len(self.left) < int(headers["content-length"]):
            assert self.more(), "the connection was closed"
        content, self.left = (
            self.left[: int(headers["content-length"])],
            self.left[int(headers["content-length"]) :],
        )
        return int(first.split()[1]), headers, json.loads(content)

    def is_closed(self):
        return not self.left and not self.more()


def test_the_fast_path_has_the_headers_of_all_answers(server):
    asking = Asking(server).send(request())
    status, headers, answer = asking.answer()
    assert (status, len(answer["items"])) == (200, 2)
    assert headers["x-request-id"] == answer["request_id"]
    assert "connection" not in headers
    # The same through ASGI, which handles query strings and older versions.
    other, others, said = asking.send(request(path=b"/v1/recommend?")).answer()
    assert (other, said["items"]) == (status, answer["items"])
    assert others.keys() == headers.keys()
    lasting = ("content-type", "cache-control", "content-security-policy", "x-content-type-options")
    assert {name: headers[name] for name in lasting} == {name: others[name] for name in lasting}
    asking.socket.close()


@pytest.mark.parametrize(
    ("sent", "closes"),
    [
        (request(BODY, b"connection: close"), True),
        (request(BODY, version=b"1.0"), True),
        (request(b"14\r\n" + BODY + b"\r\n0\r\n\r\n", b"transfer-encoding: chunked"), False),
        (b"\r\n" + request(), False),
    ],
)
def test_requests_of_every_form_are_answered(server, sent, closes):
    asking = Asking(server).send(sent)
    status, headers, answer = asking.answer()
    assert (status, len(answer["items"])) == (200, 2)
    assert (headers.get("connection") == "close") == closes
    if closes:
        assert asking.is_closed()
    else:
        assert asking.send(request()).answer()[0] == 200
    asking.socket.close()


def test_protocol_upgrades_are_ignored(server):
    """Such a request is answered by HTTP, and does not keep its connection open forever."""
    upgrade = b"host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    asking = Asking(server).send(b"GET /livez HTTP/1.1\r\n" + upgrade + b"\r\n")
    assert asking.answer()[0] == 200
    asking.socket.close()
    asking = Asking(server).send(request(BODY, *upgrade.split(b"\r\n")[1:3]))
    asking.socket.settimeout(5)
    assert asking.answer()[0] == 200
    asking.socket.close()


def test_expect_100_continue_is_answered(server):
    asking = Asking(server).send(request(BODY, b"expect: 100-continue")[: -len(BODY)])
    while b"\r\n\r\n" not in asking.left:
        assert asking.more()
    assert asking.left == b"HTTP/1.1 100 Continue\r\n\r\n"
    asking.left = b""
    assert asking.send(BODY).answer()[0] == 200
    asking.socket.close()


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (request(b"{"), 400, "invalid_json"),
        (request(b'{"user": 11, "kk": 2}'), 422, "invalid_request"),
        (request(kind=b"text/plain"), 415, "unsupported_media_type"),
        (request(BODY + b" " * 5000), 413, "too_large"),
        (request(b"1400\r\n" + b" " * 5120 + b"\r\n0\r\n\r\n", b"transfer-encoding: chunked"), 413, "too_large"),
        (request(b""), 400, "invalid_json"),
    ],
)
def test_an_invalid_request_gets_an_error_and_keeps_the_connection(server, sent, status, code):
    asking = Asking(server).send(sent)
    got, headers, answer = asking.answer()
    assert (got, answer["error"]["code"]) == (status, code)
    assert answer["error"]["request_id"] == headers["x-request-id"]
    assert asking.send(request()).answer()[0] == 200
    asking.socket.close()


def flood(asking):
    for _ in range(1000):
        asking.send(b"y" * 10_000)
        time.sleep(0.001)


def test_headers_that_are_too_long_are_refused(server):
    asking = Asking(server).send(request(BODY, *(b"x-%d: %s" % (n, b"y" * 1000) for n in range(40))))
    assert asking.answer()[0] == 200
    asking.send(b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\nx-long: ")
    with pytest.raises(OSError, match=r"reset|pipe"):
        flood(asking)
    asking.socket.close()
    for more in (b"y" * 66_000, b"y" * 1_000_000):
        # The client may still send when the server has answered.
        other = Asking(server).send(b"GET /")
        time.sleep(0.3)
        status, headers, answer = other.send(more).answer()
        assert (status, headers["connection"], answer["error"]["code"]) == (431, "close", "headers_too_large")
        assert other.is_closed()
        other.socket.close()


def test_whole_headers_that_are_too_long_are_refused(server):
    asking = Asking(server).send(request(BODY, *(b"x-%d: %s" % (n, b"y" * 1000) for n in range(70))))
    status, headers, answer = asking.answer()
    assert (status, headers["connection"], answer["error"]["code"]) == (431, "close", "headers_too_large")
    assert asking.is_closed()
    asking.socket.close()
    # Long bodies and many requests in one packet are no headers.
    asking = Asking(server).send(request(b" " * 3000 + BODY) * 60)
    assert [asking.answer()[0] for _ in range(60)] == [200] * 60
    asking.socket.close()


@pytest.mark.parametrize(
    ("kind", "more", "status", "said"),
    [
        (b"Application/JSON; charset=UTF-8", (), 200, ""),
        (b"application/json ;charset=utf-8", (b"content-encoding: identity",), 200, ""),
        (b"application/json-patch+json", (), 415, "must be JSON"),
        (b"application/json", (b"content-encoding: gzip",), 415, "compressed"),
        (b"text/plain", (b"Content-Type: application/json",), 400, "'content-type' is sent twice; send it once"),
        (b"application/json", (b"host: y",), 400, "'host' is sent twice"),
        (b"application/json", (b"accept: a", b"accept: b"), 200, ""),
    ],
)
def test_headers_about_the_request(server, kind, more, status, said):
    asking = Asking(server).send(request(BODY, *more, kind=kind))
    got, _, answer = asking.answer()
    assert got == status
    assert said in answer.get("error", {"message": ""})["message"]
    asking.socket.close()


@pytest.mark.parametrize("line", [b"POST /v1/recommend", b"GET /livez", b"GET /nowhere"])
def test_only_a_request_of_the_earlier_version_may_lack_a_host(server, line):
    for version, more, expected in ((b"1.1", b"", 400), (b"1.1", b"Host:\r\n", None), (b"1.0", b"", None)):
        asking = Asking(server).send(b"%s HTTP/%s\r\n%scontent-length: 0\r\n\r\n" % (line, version, more))
        status, _, answer = asking.answer()
        assert ("'host' is missing" in answer.get("error", {"message": ""})["message"]) == (expected == 400)
        assert expected in (None, status)
        asking.socket.close()


@pytest.mark.parametrize("line", [b"POST /v1/recommend", b"GET /v1/users/11/history"])
@pytest.mark.parametrize("host", [b"shop.example", b"127.0.0.1.shop.example:8000", b"localhost.shop.example"])
def test_a_page_with_its_own_name_for_this_machine_reads_nothing(server, line, host):
    asking = Asking(server).send(b"%s HTTP/1.1\r\nhost: %s\r\ncontent-length: 0\r\n\r\n" % (line, host))
    status, headers, answer = asking.answer()
    assert (status, answer["error"]["code"], headers["connection"]) == (400, "invalid_http", "close")
    assert f"not as '{host.decode()}'" in answer["error"]["message"]
    asking.socket.close()


def test_the_addresses_of_this_machine_and_names_of_no_page_are_its_own():
    for host in (b"127.0.0.1:8000", b"[::1]:8000", b"localhost:8000", b"LOCALHOST", b"box", b"app.localhost:80", b""):
        check_host(host)


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip", b"chunked, chunked", b"identity", b"Chunked"])
def test_a_body_may_come_in_chunks_and_in_no_other_coding(server, coding):
    """What it was encoded by would be read as the body, and by a proxy perhaps as another one."""
    head = b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: %s\r\n\r\n"
    asking = Asking(server).send(head % coding + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
    status, headers, answer = asking.answer()
    if coding == b"Chunked":
        assert status == 200
    else:
        assert (status, headers["connection"], answer["error"]["code"]) == (400, "close", "invalid_http")
        assert "chunk" in answer["error"]["message"] or "not valid" in answer["error"]["message"]
        assert asking.is_closed()
    asking.socket.close()


def test_a_body_that_never_comes_ends_the_connection(server):
    asking = Asking(server).send(request()[:-5])
    status, headers, answer = asking.answer()
    assert (status, headers["connection"], answer["error"]["code"]) == (408, "close", "slow_body")
    assert asking.is_closed()
    asking.socket.close()


def test_pipelined_requests_are_answered_in_order(server):
    ids = [b"one", b"two", b"three", b"four"]
    whole = b"".join(request(BODY, b"x-request-id: " + name) for name in ids)
    asking = Asking(server).send(whole)
    assert [asking.answer()[2]["request_id"].encode() for _ in ids] == ids
    # Split at any byte.
    for at in range(1, len(whole), 97):
        asking.send(whole[:at])
        time.sleep(0.001)
        asking.send(whole[at:])
        assert [asking.answer()[2]["request_id"].encode() for _ in ids] == ids
    asking.socket.close()


UPGRADE = b"connection: Upgrade, HTTP2-Settings", b"upgrade: h2c", b"http2-settings: AAMAAABkAAQBAAAAAAIAAAAA"


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("path", [b"/v1/recommend", b"/v1/recommend/batch"])
def test_a_request_that_offers_http_2_is_answered_by_http_1(server, path, size):
    """Java's client offers it in each request without TLS."""
    body = BODY if path == b"/v1/recommend" else b'{"requests": [%s]}' % BODY
    asking, plain = Asking(server), Asking(server).send(request(body, path=path)).answer()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    whole = request(body, *UPGRADE, path=path) + request(body, path=path)
    whole += request(chunked, *UPGRADE, b"transfer-encoding: chunked", path=path)
    for at in range(0, len(whole), size):
        asking.send(whole[at : at + size])
    for _ in range(3):
        code, headers, answer = asking.answer()
        assert (code, answer.keys(), headers.keys()) == (200, plain[2].keys(), plain[1].keys())
    asking.send(request(body, b"connection: close, upgrade", b"upgrade: websocket", path=path))
    assert asking.answer()[0] == 200
    assert not asking.more()
    assert not [line for line in server.said if "pgrade" in line]


def test_many_offers_in_one_packet(server):
    asking = Asking(server).send(request(b"", *UPGRADE, path=b"/nothing") * 300)
    assert [asking.answer()[0] for _ in range(300)] == [404] * 300
    asking = Asking(server).send(b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n")
    assert asking.more()
    asking.socket.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/recommend HTTP/1.1\r\nno header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET http://[ HTTP/1.1\r\nhost: x\r\n\r\n",
        # A body at fault, of requests that would be answered and that would be refused by their type.
        request(b"zz\r\n", b"transfer-encoding: chunked"),
        request(b"zz\r\n", b"transfer-encoding: chunked", kind=b"text/plain"),
    ],
)
def test_malformed_http_is_refused_like_any_request(tmp_path, sent):
    log = tmp_path / "log"
    folder, _ = saved(tmp_path / "model")
    with Server(folder, log=log) as server:
        asking = Asking(server).send(sent)
        status, headers, answer = asking.answer()
        assert (status, headers["connection"], answer["error"]["code"]) == (400, "close", "invalid_http")
        assert asking.is_closed()
        assert b'beamwood_rejected_total{reason="invalid_http"} 1.0' in figures(server)
        wait_until(lambda: headers["x-request-id"] in log.read_text())
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(each["code"], each["error"]) for each in logged if "code" in each] == [(400, "invalid_http")]
    assert len(server.said) == 1, "only that it answers"


@pytest.mark.parametrize("path", [b"/v1/recommend", b"/v1/recommend?"])
@pytest.mark.parametrize(
    "after",
    [
        b"\x00\x01 nothing\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_requests_before_malformed_http_are_answered(server, path, after):
    asking = Asking(server).send(2 * request(path=path) + after)
    answers = [asking.answer() for _ in range(3)]
    assert [status for status, *_ in answers[:2]] == [200, 200]
    assert answers[2][2]["error"]["code"] == "invalid_http"
    assert answers[2][1]["connection"] == "close"
    assert asking.is_closed()


def test_idle_and_slow_connections_are_closed_and_active_ones_are_not(server):
    busy, idle, slow = Asking(server), Asking(server), Asking(server)
    idle.send(request()).answer()
    slow.send(request()).answer()
    slow.send(b"POST /v1/recommend HTTP/1.1\r\nhost:")
    began, ends = time.monotonic(), {}
    while time.monotonic() - began < 2.5:
        assert busy.send(request()).answer()[0] == 200
        for name, asking in {"idle": idle, "slow": slow}.items():
            asking.socket.settimeout(0.05)
            try:
                if name not in ends and asking.is_closed():
                    ends[name] = time.monotonic() - began
            except TimeoutError:
                pass
            except ConnectionResetError:
                ends[name] = time.monotonic() - began
    assert ends.keys() == {"idle", "slow"}
    assert all(0.5 < each < 2.5 for each in ends.values())
    busy.socket.close()


def test_a_client_that_does_not_read_is_disconnected(server):
    # More than the buffers of the system hold.
    asking, number = Asking(server), 400
    asking.send(b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * number)
    time.sleep(2.5)
    while asking.more():
        pass
    assert asking.left.count(b"HTTP/1.1 200 OK") < number
    assert b"beamwood_in_flight 1.0" in figures(server)


def test_a_disconnected_request_leaves_nothing_behind(server):
    for _ in range(20):
        asking = Asking(server).send(request(b'{"user": 11, "k": 2, "beam_width": 90}'))
        asking.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        asking.socket.close()
    until = time.monotonic() + 20
    while b"beamwood_in_flight 1.0" not in figures(server):
        assert time.monotonic() < until, "disconnected requests are still counted"
        time.sleep(0.05)
    assert Asking(server).send(request()).answer()[0] == 200


def figures(server):
    """The service's metrics, from a request that is itself in flight."""
    asking = Asking(server).send(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    while asking.more():
        pass
    asking.socket.close()
    return asking.left


def test_a_pipelining_client_that_disconnects_causes_no_error(server):
    slow = request(b'{"user": 11, "k": 2, "beam_width": 90}', path=b"/v1/recommend?")
    for ahead in (slow + slow, slow + slow + b"\x00\x01 nothing\r\n\r\n", request() + slow + slow):
        for _ in range(30):
            asking = Asking(server).send(ahead)
            asking.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            asking.socket.close()
    assert Asking(server).send(request()).answer()[0] == 200
    assert not [line for line in server.said if "Traceback" in line or "ERROR" in line]


def test_connections_beyond_the_limit_are_refused_and_counted(tmp_path):
    folder, _ = saved(tmp_path / "model")
    with Server(folder, "--timeout", "20s", "--limit", "connections=3") as server:
        open_ones = [Asking(server) for _ in range(3)]
        assert [each.send(request()).answer()[0] for each in open_ones] == [200] * 3
        with pytest.raises(OSError, match=r"reset|pipe"):
            flood(Asking(server))
        # The others continue, and one that ends makes room.
        assert [each.send(request()).answer()[0] for each in open_ones] == [200] * 3
        open_ones.pop().socket.close()
        wait_until(lambda: connected(server))
        text = urllib.request.urlopen(f"{server.address}/metrics", timeout=20).read().decode()
        assert float(re.search(r'beamwood_rejected_total\{reason="connections"\} (\S+)', text)[1]) >= 1
        for each in open_ones:
            each.socket.close()


def connected(server):
    try:
        return server.ask("/livez")[0] == 200
    except OSError:
        return False


ENDLESS = {"trailers": (b"0\r\n", b"x: y\r\n" * 10_000), "a body": (b"", b"8000\r\n" + b"y" * 0x8000 + b"\r\n")}


def send_without_end(server, content, more):
    """Errors: `OSError` once the connection is closed."""
    with server.socket() as asking:
        asking.sendall(content)
        for _ in range(100 * 2**20 // len(more)):
            asking.sendall(more)


def test_what_follows_a_head_without_end_closes_the_connection(tmp_path):
    with Server(saved(tmp_path / "model")[0], "--store", "memory") as server:
        before = memory_of(server)
        for first, more in ENDLESS.values():
            head = request(b"", b"transfer-encoding: chunked", path=b"/none")
            with pytest.raises(OSError, match=r"reset|[Bb]roken"):
                send_without_end(server, head + first, more)
        assert memory_of(server) < before + 200
        assert server.ask("/livez")[0] == 200


def memory_of(server):
    """The MB that a server holds, where the system tells."""
    about = Path(f"/proc/{server.process.pid}/status")
    return int(about.read_text().split("VmRSS:")[1].split()[0]) // 1024 if about.exists() else 0
