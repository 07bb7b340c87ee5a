"""Traces of requests at a local collector: their attributes, and data they must not contain."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from beamwood.errors import InputError
from bounded import joined
from served import Server, post, saved, serving, wait_until

USER = 11


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("spans") / "model")[0]


@contextmanager
def collector(wait=0.0, status=(200,)):
    """The address of a collector and the requests posted to it; it answers `status[0]` after `wait` seconds."""
    posted = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            time.sleep(wait)
            self.send_response(status[0])
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", posted
    finally:
        server.shutdown()
        server.server_close()
        joined([thread])


def spans_of(posted):
    """The name, the seconds and the attributes of each span."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    found = []
    for path, content in posted:
        assert path == "/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(content).resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            assert names["service.name"] == "beamwood"
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                about = {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}
                found.append((span.name, 1e-9 * (span.end_time_unix_nano - span.start_time_unix_nano), about))
    return found


def test_a_request_is_a_span(folder, monkeypatch):
    pytest.importorskip("opentelemetry.exporter", reason="needs the extra otel")
    import gzip

    with collector() as (url, posted):
        with serving(folder, otlp=url) as client:
            post(client, "/v1/recommend", {"user": USER, "k": 3})
            post(client, "/v1/events", {"events": [{"user": "secret-user", "item": "secret-item"}]})
            post(client, "/v1/recommend", {"k": 3}, 422)
            client.get("/v1/users/secret-user/history")
            client.get("/page.css")
        bodies = [(path, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body) for path, body in posted]
    spans = spans_of(bodies)
    assert [name for name, *_ in spans] == [
        "POST /v1/recommend",
        "POST /v1/events",
        "POST /v1/recommend",
        "GET /v1/users/{id}/history",
    ]
    _, seconds, about = spans[0]
    assert about["http.route"] == "/v1/recommend"
    assert about["http.response.status_code"] == 200
    stages = [about[f"beamwood.{stage}_ms"] for stage in ("queue", "store", "search", "encode")]
    assert 0 < sum(stages) <= 1000 * seconds + 0.01
    assert spans[2][2]["error.type"] == "invalid_request"
    # No user is named.
    assert not any(b"secret" in body for _, body in bodies)


def test_a_slow_collector_does_not_delay_answers(folder):
    pytest.importorskip("opentelemetry.exporter", reason="needs the extra otel")
    with collector(wait=1.0) as (url, posted), serving(folder, otlp=f"{url}/v1/traces") as client:
        for _ in range(5):
            post(client, "/v1/recommend", {"user": USER, "k": 3})
        # All requests were answered before the first batch was exported.
        assert posted == []


def test_a_collector_that_is_down_is_logged_once(folder, tmp_path, monkeypatch):
    """And again when it accepts spans: the library writes several lines to stderr for each batch."""
    pytest.importorskip("opentelemetry.exporter", reason="needs the extra otel")
    # Milliseconds between batches.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    log, status = tmp_path / "log", [400]
    with (
        collector(status=status) as (url, posted),
        Server(folder, "--otlp", url, "--store", "memory", log=log) as server,
    ):

        def events():
            server.ask("/v1/recommend", {"user": USER, "k": 3})
            lines = [json.loads(line) for line in log.read_text().splitlines()]
            return [line for line in lines if line.get("event", "").startswith("spans")]

        wait_until(lambda: events() and len(posted) > 5)
        assert "400" in events()[0]["reason"]
        status[0] = 200
        wait_until(lambda: len(events()) > 1)
        assert [line["event"] for line in events()] == ["spans_lost", "spans_accepted"]
        server.signal(signal.SIGKILL)
        server.ended()
    assert len(server.said) == 1, server.said


def test_an_invalid_collector_address_is_refused(folder):
    pytest.importorskip("opentelemetry.exporter", reason="needs the extra otel")
    for url in ("localhost:4318", "ftp://x", "http://"):
        with pytest.raises(InputError, match=r"--otlp .* write http://localhost:4318"), serving(folder, otlp=url):
            pass


def test_nothing_is_imported_without_the_option():
    program = "import sys, beamwood.serve.server; assert not [n for n in sys.modules if n.startswith('opentelemetry')]"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
