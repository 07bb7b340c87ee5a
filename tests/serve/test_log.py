"""The request log has one line per request, for all ids."""

import json
import os
import signal
import threading
from contextlib import suppress
from types import SimpleNamespace

import pytest

from beamwood.serve.monitoring.log import RequestLog
from bounded import joined
from served import Server, post, saved, serving, wait_until

_ROUTES = ("/v1/events", "other", "/v1/experiments")
ODD = "a\nevent=ready\r\x1b[31m\x85\u2028b"


@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_request_is_one_line(kind, capsysbinary):
    log = RequestLog(kind, users=True, secret=b"")
    log.write({"user": log.user(ODD), "code": 200})
    log.flush()
    written = capsysbinary.readouterr().out
    assert len(written.decode().splitlines() if kind == "text" else written.splitlines()) == 1
    if kind == "json":
        assert json.loads(written)["user"] == ODD
    else:
        assert written == b'user="a\\x0aevent=ready\\x0d\\x1b[31m\\x85\\u2028b" code=200\n'


def test_an_id_states_no_other_field_of_its_line(capsysbinary):
    log = RequestLog("text", users=True, secret=b"")
    log.write({"user": log.user('7" code=500 token=boss'), "arm": "new", "code": 200})
    log.flush()
    assert capsysbinary.readouterr().out == b'user="7\\" code=500 token=boss" arm=new code=200\n'


def test_a_line_that_comes_during_a_write_is_kept(capsysbinary):
    log = RequestLog("json", users=True, secret=b"")

    class Slow:
        def __str__(self):
            log.flush()
            return "odd"

    log.write({"id": 1})
    log.write({"id": Slow()})
    log.flush()
    assert capsysbinary.readouterr().out == b'{"id":1}\n{"id":"odd"}\n'


def test_lost_lines_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("beamwood.serve.monitoring.log._MOST_LINES", 2)
    folder, _ = saved(tmp_path / "model")
    with serving(folder, log="json") as client:
        monkeypatch.setattr(client.service.log, "flush", lambda: None)
        for _ in range(5):
            post(client, "/v1/recommend", {"user": 11})
        lost = client.service.log.lost
        assert lost >= 3
        assert f"beamwood_log_lines_lost_total {lost}.0" in client.get("/metrics").text


def test_lines_that_cannot_be_written_are_counted(monkeypatch):
    log = RequestLog("json", users=True, secret=b"")
    for number in range(3):
        log.write({"id": number})
    with open("/dev/null") as unwritable:
        monkeypatch.setattr("sys.stdout", unwritable)
        log.flush()
    assert log.lost == 3


def test_lines_that_nobody_reads_at_the_end_are_lost(monkeypatch):
    monkeypatch.setattr("beamwood.serve.monitoring.log._CLOSE_SECONDS", 0.01)
    log, is_writing, is_read = RequestLog("json", users=True, secret=b""), threading.Event(), threading.Event()

    class Full:
        def write(self, content):
            is_writing.set()
            is_read.wait(30)
            return len(content)

    monkeypatch.setattr("sys.stdout", SimpleNamespace(buffer=Full()))
    log.write({"id": 0})
    log.begin()
    assert is_writing.wait(30)
    log.write({"id": 1})
    log.close()
    assert log.lost == 2
    is_read.set()
    joined([log._writer])


def test_a_log_that_nobody_reads_does_not_keep_the_process(tmp_path):
    folder, _ = saved(tmp_path / "model")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"\n" * 512)
    os.set_blocking(writer, True)
    with Server(folder, "--drain", "0s", "--grace", "1s", log=f"/dev/fd/{writer}") as server:
        server.signal(signal.SIGTERM)
        assert server.ended() == 0
    assert len(server.said) == 1, "nothing at the interpreter's end"
    os.close(reader)
    os.close(writer)


def test_a_log_is_written_as_it_comes(tmp_path):
    folder, _ = saved(tmp_path / "model")
    with Server(folder, log=tmp_path / "log") as server:
        server.ask("/v1/recommend", {"user": 11})
        wait_until(lambda: b'"/v1/recommend"' in (tmp_path / "log").read_bytes())


def test_hashes_of_users_need_the_secret():
    one, again, other = (RequestLog("json", users=False, secret=secret) for secret in (b"a", b"a", b"b"))
    assert one.user("u11") == again.user("u11") != other.user("u11")
    assert "u11" not in one.user("u11") != one.user("u12")


def test_every_endpoint_notes_its_counts_and_no_histories(tmp_path, capsysbinary):
    folder, retriever = saved(tmp_path / "model", text=True)
    item, other = retriever.items.decode([3, 4])
    chosen = {"filter": {"where": {"stock": True}}}
    with serving(folder, log="json") as client:
        post(client, "/v1/recommend", {"user": "u11", "k": 3} | chosen)
        post(client, "/v1/similar", {"item": item, "k": 3} | chosen)
        post(client, "/v1/score", {"user": "u11", "items": [item, other]})
        post(client, "/v1/events", {"events": [{"user": "u11", "item": item}]})
        assert client.get("/nowhere").status_code == 404
        for method in ("HEAD", "GET", "DELETE"):
            assert client.request(method, "/v1/experiments").status_code == 200
        client.service.log.flush()
    written = capsysbinary.readouterr().out
    lines = {line["route"]: line for line in map(json.loads, written.splitlines()) if "route" in line}
    counts = {"/v1/recommend": 3, "/v1/similar": 3, "/v1/score": 2, "/v1/events": 1}
    assert {route: line["count"] for route, line in lines.items() if "count" in line} == counts
    assert lines["/v1/recommend"]["filter"] == lines["/v1/similar"]["filter"]
    assert lines["/v1/recommend"]["user"] == lines["/v1/score"]["user"] != "u11"
    assert lines["/v1/similar"]["k"] == 3
    assert (lines["other"]["code"], lines["other"]["error"]) == (404, "not_found")
    told = [line.get("method") for line in map(json.loads, written.splitlines()) if line.get("route") in _ROUTES]
    assert told == ["POST", None, "HEAD", "GET", "DELETE"]
    for secret in (item, other, "u11", "stock"):
        assert f'"{secret}"'.encode() not in written
