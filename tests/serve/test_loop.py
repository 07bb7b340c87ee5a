"""What takes long runs beside the event loop, so that no other request waits for it."""

import threading

import msgspec
import pytest

from beamwood.serve.active import ActiveModels
from beamwood.serve.http import endpoint
from beamwood.serve.http.route import Route
from beamwood.serve.monitoring.metrics import Metrics
from beamwood.serve.routes import document, events, models, page
from served import post, saved, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")


def many():
    return [{"user": f"u{place}", "item": place, "key": f"{place}"} for place in range(1000)]


@pytest.mark.parametrize(
    ("place", "name", "ask"),
    [
        (document, "openapi", lambda client: client.get("/openapi.json")),
        (page, "page_of", lambda client: client.get("/?user=11&k=20")),
        (Metrics, "text", lambda client: client.get("/metrics")),
        (events, "_checked", lambda client: post(client, "/v1/events", {"events": many()})),
        (
            Route,
            "decoded",
            lambda client: post(client, "/v1/events", {"events": many(), "x": "y" * 2**16}, 422),
        ),
        (endpoint, "response_of", lambda client: post(client, "/v1/recommend/batch", {"requests": [{"user": 11}]})),
        (endpoint, "response_of", lambda client: client.get("/v1/items")),
        # A folder may be on a slow disk.
        (models, "folders_of", lambda client: client.get("/v1/models")),
        (ActiveModels, "resolved", lambda client: client.post("/v1/models/load", json={"path": "none"})),
    ],
)
def test_it_runs_beside_the_loop(folder, monkeypatch, place, name, ask):
    threads, real = [], getattr(place, name)

    def noted(*given, **more):
        threads.append(threading.get_ident())
        return real(*given, **more)

    with serving(folder[0], models_dir=folder[0].parent) as client:
        loop = client.portal.call(threading.get_ident)
        monkeypatch.setattr(place, name, noted)
        ask(client)
        assert threads
        assert loop not in threads


def test_the_document_is_made_once(folder, monkeypatch):
    made = []
    monkeypatch.setattr(document, "openapi", lambda routes: made.append(routes) or {})
    with serving(folder[0]) as client:
        assert {msgspec.json.encode(client.get("/openapi.json").json()) for _ in range(3)} == {b"{}"}
    assert len(made) == 1
