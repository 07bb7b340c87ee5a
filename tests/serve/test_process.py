"""`beamwood serve` as a process: imports, start-up, signals, and slow connections."""

import hashlib
import http.client
import json
import os
import re
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest

from beamwood.cli.main import main
from beamwood.serve.items.learned import Learned, write_learned
from beamwood.serve.store.open import open_store
from bounded import joined
from served import Server, item_table, saved, wait_until
from store_servers import free_port, redis_server

FORBIDDEN = (
    "torch",
    "pandas",
    "pyarrow",
    "beamwood.training",
    "beamwood.fitting",
    "beamwood.methods",
    "beamwood.models.terms_torch",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")


def test_no_training_code_is_imported(folder):
    program = (
        "import sys, json\nfrom starlette.testclient import TestClient\nfrom beamwood.serve.server import serve\n"
        "from beamwood.serve.app import build_app\nfrom beamwood.serve.service import Service\n"
        "from beamwood.serve.settings import ServeSettings\n"
        f"service = Service.open({str(folder[0])!r}, ServeSettings(timeout=60, log='none'))\n"
        "with TestClient(build_app(service)) as client:\n"
        "    assert client.post('/v1/recommend', json={'user': 11, 'explain': 'full'}).status_code == 200\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = json.loads(run.stdout)
    assert "beamwood.serve.app" in loaded
    wrong = [name for name in loaded if name in FORBIDDEN or name.startswith(tuple(f"{each}." for each in FORBIDDEN))]
    assert not wrong


def test_check(folder, tmp_path, capsys):
    table = item_table(tmp_path / "items.parquet", folder[1])

    def said(*arguments):
        code = main(["serve", *map(str, arguments)])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, captured.out if code == 0 else captured.err

    code, out = said(folder[0], "--check", "--items", table, "--json")
    assert code == 0
    assert json.loads(out)["answered"] == 20
    for arguments, words in (
        ((tmp_path / "none", "--check"), "does not exist"),
        ((folder[0], "--check", "--host", "0.0.0.0"), "--tokens"),
        ((folder[0], "--check", "--items", tmp_path / "none.parquet"), "--items"),
        ((folder[0], "--check", "--items", tmp_path / "none.parquet"), "does not exist"),
        ((folder[0], "--timeout", "5d"), "write 30m, 90s or 500ms"),
        ((folder[0], "--check", "--timeout", "0s"), "above 0"),
        ((folder[0], "--check", "--store", "sqlite:"), "names no place"),
        ((folder[0], "--keep-answers", "1d"), "write 30m, 90s or 500ms"),
        ((folder[0], "--check", "--store", "http://me:secret@x"), "'http://..@x' is unknown"),
        ((folder[0], "--filter-cache", "much"), "write 256MB"),
        ((folder[0], "--threads", "none"), "auto"),
        ((folder[0], "--log", "xml"), "json, none, text"),
        ((folder[0], "--watch"), "--models-dir"),
        ((folder[0], "--limit", "kk=5"), "did you mean 'k'"),
        ((folder[0], "--limit", "k=many"), "write k=1000"),
        ((folder[0], "--limit", "body_bytes=0"), "above 0"),
        ((folder[0], "--models-dir", table), "is not a folder"),
    ):
        code, err = said(*arguments)
        assert (code, words in err) == (2, True), err


@pytest.mark.parametrize(
    ("given", "there"), [(".", "model"), ("model", ""), ("model/", ""), ("../{}/model", ""), ("link", "")]
)
def test_histories_are_stored_next_to_the_folder(folder, monkeypatch, given, there):
    root = folder[0].parent
    (root / "link").unlink(missing_ok=True)
    (root / "link").symlink_to(folder[0])
    seen = []
    monkeypatch.setattr("beamwood.serve.server.serve", lambda _, settings: seen.append(settings))
    monkeypatch.chdir(root / there)
    assert main(["serve", given.format(root.name)]) == 0
    assert main(["serve", given.format(root.name), "--keep-answers", "2h"]) == 0
    name = "link" if given == "link" else "model"
    assert [each.store for each in seen] == [f"sqlite:{root / name}.events.db"] * 2
    assert [each.keep_answers for each in seen] == [24 * 3600, 2 * 3600]


def test_folders_that_cannot_be_served_are_refused(tmp_path):
    program = [sys.executable, "-m", "beamwood", "serve", str(tmp_path / "none"), "--port", "0"]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert run.returncode == 2
    assert "does not exist" in run.stderr
    assert "Traceback" not in run.stderr


def test_the_life_of_a_server(folder, tmp_path):
    """It answers, logs no histories, reloads tokens, finishes running requests, and ends with code 0."""
    tokens, log = tmp_path / "tokens", tmp_path / "log"
    tokens.write_text(f"first recommend {hashlib.sha256(b'one').hexdigest()}\n")
    with Server(folder[0], "--tokens", str(tokens), "--drain", "300ms", "--timeout", "60s", log=log) as server:
        secret = folder[1].items.decode(folder[1].histories[11])
        asked = {"history": secret, "user": None, "k": 3}
        assert server.ask("/v1/recommend", asked)[0] == 401
        status, answer = server.ask("/v1/recommend", asked, {"authorization": "Bearer one"})
        assert status == 200
        assert len(answer["items"]) == 3
        assert server.ask("/v1/recommend", {"user": 11}, {"authorization": "Bearer one"})[0] == 200
        tokens.write_text(f"second recommend {hashlib.sha256(b'two').hexdigest()}\n")
        server.signal(signal.SIGHUP)
        wait_until(lambda: server.ask("/v1/recommend", asked, {"authorization": "Bearer two"})[0] == 200)
        assert server.ask("/v1/recommend", asked, {"authorization": "Bearer one"})[0] == 401
        assert server.ask("/readyz")[0] == 200
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.ask("/readyz")[0] == 503)
        assert server.ask("/v1/recommend", asked, {"authorization": "Bearer two"})[0] == 200
        assert server.ended() == 0
    assert [" answers at http://" in line for line in server.said] == [True], server.said
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    events = [line["event"] for line in lines if "event" in line]
    assert events == ["ready", "tokens_read", "draining"]
    answered = [line for line in lines if line.get("code") == 200]
    assert {"first", "second"} == {line["token"] for line in answered}
    assert answered[0]["history"] == 4
    assert answered[0]["count"] == 3
    assert "search_ms" in answered[0]
    assert "one" not in log.read_text().split()
    assert all(line.get("user") != "11" for line in lines)
    assert str(secret) not in log.read_text()


def test_while_it_drains_each_answer_is_the_last_of_its_connection(folder):
    """So that no request is on its way when the connection is closed."""
    body, kind = json.dumps({"user": 11, "k": 3}), {"content-type": "application/json"}
    asked = [("POST", "/v1/recommend", body, kind), ("POST", "/v1/recommend?", body, kind), ("GET", "/livez")]
    with Server(folder[0], "--drain", "60s", "--timeout", "60s") as server:
        address = server.address.removeprefix("http://")

        def told(connection, request):
            connection.request(*request)
            answer = connection.getresponse()
            assert answer.read()
            return answer.status, answer.getheader("connection")

        connections = [http.client.HTTPConnection(address, timeout=60) for _ in asked]
        for connection, request in zip(connections, asked, strict=True):
            assert told(connection, request) == (200, None)
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.ask("/readyz")[0] == 503)
        for connection, request in zip(connections, asked, strict=True):
            assert told(connection, request) == (200, "close")
        server.signal(signal.SIGTERM)
        assert server.ended() == 0


def test_a_changed_link_is_followed(folder, tmp_path):
    other, _ = saved(tmp_path / "other", 1)
    current = tmp_path / "current"
    current.symlink_to(folder[0])
    with Server(current, "--watch", "--timeout", "60s") as server:
        first = server.ask("/v1/recommend", {"user": 11})[1]["model"]
        (tmp_path / "next").symlink_to(other)
        os.replace(tmp_path / "next", current)
        wait_until(lambda: server.ask("/v1/recommend", {"user": 11})[1]["model"] != first)


def test_half_open_connections_block_nobody_and_a_second_signal_ends_at_once(folder):
    with Server(folder[0], "--timeout", "60s", "--drain", "1h", "--limit", "header_seconds=2s") as server:
        open_ones = [server.socket() for _ in range(200)]
        for each in open_ones[::2]:
            each.sendall(b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n")
        for each in open_ones[1::4]:
            each.sendall(b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert server.ask("/v1/recommend", {"user": 11})[0] == 200
        garbage = server.socket()
        garbage.sendall(b"\x16\x03\x01\x00nonsense\r\n\r\n")
        assert b"400" in garbage.recv(100)
        assert open_ones[0].recv(100) == open_ones[3].recv(100) == b"", "a connection without headers is closed"
        server.signal(signal.SIGTERM)
        wait_until(lambda: server.ask("/readyz")[0] == 503)
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
        for each in [*open_ones, garbage]:
            each.close()


def test_requests_that_a_second_signal_breaks_off_are_told_so(folder, tmp_path):
    path, told = tmp_path / "events.db", []
    with Server(folder[0], "--store", f"sqlite:{path}", "--drain", "1h") as server:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            # The store cannot be written.
            other.execute("begin immediate")
            body = {"events": [{"user": 1, "item": 1}]}
            asking = threading.Thread(target=lambda: told.append(server.ask("/v1/events", body)))
            asking.start()
            wait_until(lambda: b"in_flight 2" in urllib.request.urlopen(f"{server.address}/metrics").read())
            server.signal(signal.SIGTERM)
            wait_until(lambda: server.ask("/readyz")[0] == 503)
            server.signal(signal.SIGTERM)
            joined([asking])
        assert server.ended() == 0
    assert (told[0][0], told[0][1]["error"]["code"]) == (503, "not_ready")
    assert len(server.said) == 1, server.said


@pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_more_half_open_connections_than_allowed(folder, count):
    """A client that is connected is answered meanwhile, others are once they are closed; memory does not grow."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < count + 100:
        pytest.skip(f"this process may not open {count} files")
    with Server(folder[0], "--timeout", "60s", "--max-wait", "60s", "--limit", "header_seconds=2s") as server:
        host, port = server.address.removeprefix("http://").split(":")
        asked, open_ones = http.client.HTTPConnection(host, int(port), timeout=60), []

        def answered():
            asked.request("POST", "/v1/recommend", b'{"user": 11}', {"content-type": "application/json"})
            answer = asked.getresponse()
            answer.read()
            return answer.status == 200

        assert answered()
        before = anonymous_kib(server)
        for number in range(count):
            open_ones.append(server.socket())
            # Those beyond the limit are reset.
            with suppress(OSError):
                open_ones[-1].sendall(b"POST /v1/recommend HTTP/1.1\r\nhost: x\r\n")
            assert number % 500 or answered()
        assert answered()
        wait_until(lambda: is_answered(server))
        assert answered()
        assert anonymous_kib(server) < before + 64 * 1024
        assert not [line for line in server.said if "Traceback" in line]
        for each in (asked, *open_ones):
            each.close()


def anonymous_kib(server):
    return int(re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())[1])


def is_answered(server):
    try:
        return server.ask("/livez")[0] == 200
    except OSError:
        return False


def test_overload(folder):
    """At twice the capacity, refusals are immediate, there are no internal errors, and the server recovers."""
    with Server(folder[0], "--threads", "1", "--max-wait", "4ms", "--timeout", "10s", "--min-beam", "1") as server:
        seen, slowest = [], []

        def ask():
            for _ in range(25):
                began = time.monotonic()
                status, answer = server.ask("/v1/recommend", {"user": 11, "k": 1, "beam_width": 90})
                seen.append(status)
                if status == 429:
                    slowest.append(time.monotonic() - began)
                    assert answer["error"]["code"] == "overloaded"
                    assert answer["error"]["retry_after_ms"] >= 1

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        joined(threads)
        assert set(seen) <= {200, 429}
        assert 200 in seen
        assert server.ask("/v1/recommend", {"user": 11})[0] == 200


def test_a_process_whose_store_is_down_answers_once_it_knows_what_was_erased(tmp_path):
    folder, retriever = saved(tmp_path / "model")
    (erased,) = retriever.items.decode([3])
    with redis_server(tmp_path) as (address, _):
        port = address.split(":")[-1].split("/")[0]
        with closing(open_store(address)) as store:
            write_learned(store, None, Learned(erased=[erased]), Learned())
    place = free_port()
    server = Server(folder, "--store", f"redis://default:secret@127.0.0.1:{port}/0")
    server.program[server.program.index("--port") + 1] = str(place)
    # It says where it answers only later.
    starting = threading.Thread(target=server.__enter__)
    starting.start()
    try:
        wait_until(lambda: "said" in vars(server) and server.said)
        server.address = f"http://127.0.0.1:{place}"
        joined([starting])
        assert "the store is down, so requests are refused until it answers: Redis does not answer" in server.said[0]
        assert "secret" not in "".join(server.said)
        for path, body in (("/readyz", None), ("/v1/recommend", {"user": 11})):
            status, answer = server.ask(path, body)
            assert (status, answer["error"]["code"]) == (503, "not_ready")
            assert "what was erased is unknown" in answer["error"]["message"]
        with redis_server(tmp_path, port=int(port)):
            wait_until(lambda: server.ask("/readyz")[0] == 200)
            answer = server.ask("/v1/recommend", {"history": [], "k": 90})[1]
            assert erased not in [item["item"] for item in answer["items"]]
    finally:
        joined([starting])
        server.__exit__()
