"""The request log has one line per request, for all ids."""

import json

import pytest

from beamwood.serve.monitoring.log import RequestLog
from served import post, saved, serving

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
        assert written == b"user=a\\x0aevent=ready\\x0d\\x1b[31m\\x85\\u2028b code=200\n"


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
