"""Learned items apply everywhere: after a restart, in arms, in models loaded later, on later pages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest

from beamwood.retrieval.new_items.added import mixtures_of
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.items.learned import CatalogueItem, Learned, read_learned
from beamwood.serve.items.widened import widened
from beamwood.serve.loading import Loader
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import StoreUnavailable
from served import NUM_ITEMS, Server, post, saved, serving, wait_until

EVERY = {"k": NUM_ITEMS + 5, "exclude_seen": False}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders "one" and "other" with the same items, and "more" with additional items."""
    root = tmp_path_factory.mktemp("models")
    for name, seed in (("one", 0), ("other", 1)):
        saved(root / name, seed, text=True)
    saved(root / "more", 0, text=True, num_items=NUM_ITEMS + 5)
    return root


def shown(client, **body):
    return [each["item"] for each in post(client, "/v1/recommend", EVERY | {"user": 11} | body)["items"]]


def available(client, **body):
    assert client.put("/v1/items/availability", json=body).status_code == 200


def listed(client):
    """The new items, and the number that a metric tells."""
    count = client.service.metrics.registry.get_sample_value("beamwood_new_items")
    return [each["item"] for each in client.get("/v1/items").json()["items"]], count


def in_one_arm(client, name):
    body = {"name": "e", "arms": [{"model": name, "share": 1}]}
    assert client.put("/v1/experiments", json=body).status_code == 200


def test_a_server_starts_with_the_learned_items(models, tmp_path):
    """The model loads while the background tasks start."""
    store = ("--store", f"sqlite:{tmp_path / 'events.db'}", "--timeout", "60s")

    def sent(server, path, body):
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(server.address + path, json.dumps(body).encode(), headers, method="PUT")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert answer.status == 200

    def found(server):
        return [each["item"] for each in server.ask("/v1/recommend", EVERY | {"user": 11})[1]["items"]]

    with Server(models / "one", *store) as server:
        first, second, *_ = found(server)
        sent(server, "/v1/items/availability", {"clear": [first]})
        sent(server, "/v1/items", {"items": [{"item": "new", "similar": [second]}]})
        before = found(server)
        assert first not in before
        assert "new" in before
    with Server(models / "one", *store) as server:
        assert found(server) == before, "from the first answer on"


def test_a_model_without_learned_items_is_used_as_fitted(models):
    fitted = open_snapshot(models / "one")
    shown_again = widened(fitted, Learned(), 7)
    assert (shown_again.retriever, shown_again.names) == (fitted.retriever, fitted.names), "no memory is duplicated"
    assert shown_again.number == 7


def test_arms_use_learned_items(models):
    with serving(models / "one", models_dir=models) as client:
        first, second, third, *_ = shown(client)
        available(client, clear=[first])
        in_one_arm(client, "other")
        assert first not in shown(client)
        available(client, clear=[second])
        client.delete(f"/v1/items/{third}").raise_for_status()
        put = client.put("/v1/items", json={"items": [{"item": "new", "similar": [second]}]})
        assert put.status_code == 200
        found = shown(client)
        assert not {first, second, third} & set(found)
        assert "new" in found
        available(client, set=[first])
        assert first in shown(client)


def test_nothing_new_is_like_an_erased_item(models):
    with serving(models / "one") as client:
        first, second, *_ = shown(client)
        put = client.put("/v1/items", json={"items": [{"item": "new", "similar": [first, second]}]})
        assert put.status_code == 200
        client.delete(f"/v1/items/{first}").raise_for_status()
        assert client.service.catalogue.learned.items["new"].similar == [second]


def test_an_erased_item_is_in_no_mixture(models):
    """Nor where the store's document still names it, as one of an earlier version may."""
    fitted = open_snapshot(models / "one")
    first, second = fitted.names.items.decode(np.array([4, 8]))
    item = CatalogueItem("new", similar=[first, second])
    for erased, expected in (([], {4, 8}), ([first], {8})):
        made = mixtures_of(widened(fitted, Learned([item], erased=erased), 2).searcher)
        assert set(made.lists.items.tolist()) == expected


def test_an_item_can_be_hidden_and_erased_in_a_later_model_that_knows_it(models):
    with serving(models / "one", models_dir=models) as client:
        known = client.service.models.current.names.items.ids.to_list()
        post(client, "/v1/models/load", {"path": "more"})
        new = [each for each in client.service.models.current.names.items.ids.to_list() if each not in known][:2]
        post(client, "/v1/models/load", {"path": "one"})
        items = [{"item": each, "similar": known[:1]} for each in new]
        assert client.put("/v1/items", json={"items": items}).status_code == 200
        assert listed(client) == (new, 2)
        post(client, "/v1/models/load", {"path": "more"})
        assert set(new) <= set(shown(client))
        assert listed(client) == ([], 0)
        assert client.patch(f"/v1/items/{new[0]}", json={"fields": {"price": 4}}).status_code == 409
        for each in (False, True):
            assert client.patch(f"/v1/items/{new[0]}", json={"available": each}).status_code == 200
            assert (new[0] in shown(client)) == each
        available(client, clear=new[:1])
        assert new[0] not in shown(client)
        available(client, set=new[:1])
        assert new[0] in shown(client)
        client.delete(f"/v1/items/{new[1]}").raise_for_status()
        assert new[1] not in shown(client)
        post(client, "/v1/models/load", {"path": "one"})
        assert listed(client) == (new[:1], 1)


def test_an_item_hidden_while_a_model_loads_is_hidden_in_it(models, monkeypatch):
    with serving(models / "one", models_dir=models) as client:
        first = shown(client)[0]
        tried = Loader._tried

        async def slowly(self, old, fresh):
            await self._catalogue.change(lambda _, learned: learned.unavailable.append(first))
            return await tried(self, old, fresh)

        monkeypatch.setattr(Loader, "_tried", slowly)
        post(client, "/v1/models/load", {"path": "other"})
        assert first not in shown(client)


def test_pages_continue_in_an_arm(models):
    with serving(models / "one", models_dir=models) as client:
        in_one_arm(client, "other")
        first = post(client, "/v1/recommend", {"user": 11, "k": 5, "pages": True})
        second = post(client, "/v1/recommend", {"cursor": first["cursor"], "k": 5})
        assert second["model"] == first["model"] != client.service.models.current.model
        items = [each["item"] for each in first["items"] + second["items"]]
        assert len(set(items)) == 10


def test_later_pages_omit_items_hidden_in_between(models):
    with serving(models / "one") as client:
        whole = post(client, "/v1/recommend", {"user": 11, "k": 5, "pages": True})
        following = post(client, "/v1/recommend", {"cursor": whole["cursor"], "k": 5})
        hidden = following["items"][1]["item"]
        available(client, clear=[hidden])
        again = post(client, "/v1/recommend", {"cursor": whole["cursor"], "k": 4})
        items = [each["item"] for each in following["items"]]
        assert [each["item"] for each in again["items"]] == [items[0], *items[2:]]
        assert [each["rank"] for each in again["items"]] == [6, 7, 8, 9]


def test_a_cursor_with_items_this_process_lacks_is_gone(models):
    """Replicas synchronise within two seconds."""
    with serving(models / "one") as first, serving(models / "one") as second:
        second.service.secret = first.service.secret
        known = shown(first)
        items = [{"item": f"new {n}", "similar": [known[n]]} for n in range(20)]
        assert first.put("/v1/items", json={"items": items}).status_code == 200
        body = {"history": known[:2], "k": 1, "pages": True}
        cursor = post(first, "/v1/recommend", body)["cursor"]
        error = post(second, "/v1/recommend", {"cursor": cursor, "k": 100}, 410)["error"]
        assert error["code"] == "gone"


def test_items_learned_by_two_processes_at_once_are_kept(models, monkeypatch):
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "one") as first, serving(models / "one") as second:
        one, two, *_ = shown(first)
        read = Catalogue._read

        async def slowly(self):
            found = await read(self)
            if self is first.service.catalogue:
                monkeypatch.setattr(Catalogue, "_read", read)
                await asyncio.to_thread(available, second, clear=[two])
            return found

        monkeypatch.setattr(Catalogue, "_read", slowly)
        available(first, clear=[one])
        assert not {one, two} & set(shown(first))
        wait_until(lambda: not {one, two} & set(shown(second)))
        available(second, set=[one, two])
        wait_until(lambda: {one, two} <= set(shown(first)))


def test_missing_learned_items_in_the_store_are_reported():
    store = MemoryStore()
    store.put("catalogue", "0" * 32)
    with pytest.raises(StoreUnavailable, match="restore the store"):
        read_learned(store, None)


def test_a_model_of_another_log_is_refused_with_the_reason(models, tmp_path):
    store = f"sqlite:{tmp_path / 'events.db'}"
    saved(tmp_path / "numbers", 0)
    with serving(models / "one", models_dir=tmp_path, store=store) as client:
        known = shown(client)[0]
        assert client.put("/v1/items", json={"items": [{"item": "new", "similar": [known]}]}).status_code == 200
        message = post(client, "/v1/models/load", {"path": "numbers"}, 422)["error"]["message"]
    program = [sys.executable, "-m", "beamwood", "serve", str(tmp_path / "numbers"), "--port", "0", "--store", store]
    run = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert run.returncode == 2
    for said in (message, run.stderr):
        assert "the new items that the store keeps do not fit" in said
        assert "another --store" in said


class SlowStore(MemoryStore):
    """A store that returns an outdated document once, on demand."""

    is_slow = False

    def get(self, name):
        found = super().get(name)
        if self.is_slow and name == "catalogue":
            self.is_slow = False
            time.sleep(0.3)
        return found


def test_an_outdated_read_does_not_undo_a_change(models, monkeypatch):
    store = SlowStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "one") as client:
        first, second, *_ = shown(client)
        available(client, clear=[second])
        store.is_slow = True
        wait_until(lambda: not store.is_slow)
        available(client, clear=[first])
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            assert first not in shown(client)


def test_a_model_that_arrives_late_joins_the_experiment(models, tmp_path, monkeypatch):
    """For example, because folders are copied to each machine."""
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 0.02)
    monkeypatch.setattr("beamwood.serve.experiments._AGAIN_SECONDS", 0.1)
    store = f"sqlite:{tmp_path / 'events.db'}"
    with serving(models / "one", models_dir=models, store=store) as client:
        in_one_arm(client, "other")
    (tmp_path / "models").mkdir()
    with serving(models / "one", models_dir=tmp_path / "models", store=store) as client:
        assert "arm" not in post(client, "/v1/recommend", {"user": 11})
        saved(tmp_path / "models" / "other", 1, text=True)
        wait_until(lambda: post(client, "/v1/recommend", {"user": 11}).get("arm") == "other")
