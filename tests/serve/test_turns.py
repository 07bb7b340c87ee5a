"""Changes that wait for one another, while the store does not answer."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamwood.serve.experiments import Experiments
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import StoreUnavailable
from served import saved, serving, wait_until


class StillStore(MemoryStore):
    """A store that fails each call about a document, but only once it may."""

    def __init__(self):
        super().__init__()
        self.stands_still, self.may_fail, self.calls = False, threading.Event(), []

    def get(self, name):
        self._fail(name)
        return super().get(name)

    def put(self, name, value):
        self._fail(name)
        super().put(name, value)

    def _fail(self, name):
        if self.stands_still and name in ("catalogue", "experiment"):
            self.calls.append(name)
            assert self.may_fail.wait(60)
            raise StoreUnavailable("it stands still")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("turns") / "model")[0]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/items", {"items": [{"item": 9001}]}),
        ("PUT", "/v1/experiments", {"name": "alone", "arms": [{"model": "current", "share": 1}]}),
        ("DELETE", "/v1/experiments", None),
    ],
)
def test_changes_in_line_are_refused_together(folder, monkeypatch, method, path, body):
    """One by one each would wait as long as the store takes to fail."""
    store = StillStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda self: store)
    for follower in (Catalogue, Experiments):
        monkeypatch.setattr(follower, "keep_up", lambda self: asyncio.sleep(600))
    with serving(folder) as client, ThreadPoolExecutor(3) as callers:
        store.stands_still = True
        asked = [callers.submit(client.request, method, path, json=body) for _ in range(3)]
        try:
            wait_until(lambda: client.service.in_flight == 3)
        finally:
            store.may_fail.set()
        answers = [each.result(60) for each in asked]
    assert [each.json()["error"]["code"] for each in answers] == 3 * ["store_unavailable"]
    assert len(store.calls) == 1
