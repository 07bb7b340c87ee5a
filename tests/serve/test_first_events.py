"""The first events of a new item place it: counted by all processes on the store, each used once."""

from __future__ import annotations

import asyncio

import pytest

from beamwood.errors import InputError
from beamwood.serve.items import first_events
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.items.first_events import FirstEvents
from beamwood.serve.problems import Problem
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import StoreUnavailable
from served import post, saved, serving, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("models") / "one", text=True)[0]


def shown(client):
    answer = post(client, "/v1/recommend", {"k": 20, "exclude_seen": False, "user": 11})
    return [each["item"] for each in answer["items"]]


def of_new_items(*clients):
    """The state of the first new item in each process."""
    items = [client.get("/v1/items").json()["items"] for client in clients]
    return [each[0]["source"] if each else None for each in items]


def send(client, *pairs):
    events = [
        {"user": user, "item": item, "time": 1.7e9 + at} for user, items in pairs for at, item in enumerate(items)
    ]
    post(client, "/v1/events", {"events": events})


def test_two_processes_count_the_first_events_of_an_item_together(folder, monkeypatch):
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(folder) as first, serving(folder) as second:
        one, two, *_ = shown(first)
        assert first.put("/v1/items", json={"items": [{"item": "new"}]}).status_code == 200
        wait_until(lambda: of_new_items(first, second) == ["none", "none"])
        send(first, ("a", [one, "new"]), ("b", [one, "new"]))
        wait_until(lambda: any(store.get(f"first_events@{each:x}") for each in range(16)))
        assert of_new_items(first) == ["none"]
        send(second, ("c", [two, "new"]), ("d", [two, "new"]))
        wait_until(lambda: of_new_items(first, second) == ["events", "events"])
        # From the histories that either process received.
        wait_until(lambda: {item for item, _ in first.service.catalogue.new_items["new"].near} == {one, two})


def test_first_events_of_many_items_are_one_change(folder, monkeypatch):
    with serving(folder) as client:
        known = shown(client)[:3]
        items = [f"new {n}" for n in range(30)]
        assert client.put("/v1/items", json={"items": [{"item": each} for each in items]}).status_code == 200
        changes, change = [], Catalogue.change

        async def counted(self, work):
            changes.append(work)
            return await change(self, work)

        monkeypatch.setattr(Catalogue, "change", counted)
        for user in range(3):
            send(client, *((f"{user} {each}", [known[user], each]) for each in items))
        wait_until(lambda: all(each.near for each in client.service.catalogue.new_items.values()))
        assert len(changes) <= 3
        # Only the first events of an item are kept.
        for user in range(40):
            send(client, (f"later {user}", [items[0]]))
        wait_until(lambda: client.service.catalogue.new_items[items[0]].events >= 30)
        wait_until(lambda: not client.service.first_events._owners)
        send(client, ("last", [items[0]]))
        assert not client.service.first_events._owners


def test_an_event_that_is_sent_again_is_no_further_first_event(folder):
    """Also beside a new one."""
    with serving(folder) as client:
        known = shown(client)[0]
        assert client.put("/v1/items", json={"items": [{"item": "new"}]}).status_code == 200
        for count in (1, 2):
            send(client, *((f"u{user}", [known, "new"]) for user in range(count)))
        assert client.service.first_events._owners == {"new": ["u0", "u1"]}


def test_first_events_of_sessions_that_were_merged_before_they_are_used_place_an_item(folder):
    with serving(folder) as client:
        one, two, *_ = shown(client)
        assert client.put("/v1/items", json={"items": [{"item": "new"}]}).status_code == 200
        for place, name in enumerate("ab"):
            events = [
                {"session": name, "item": item, "time": 1.7e9 + at}
                for at, item in enumerate(([one, two][place], "new"))
            ]
            post(client, "/v1/events", {"events": events})
            post(client, "/v1/users/merge", {"session": name, "user": f"u{name}"})
        send(client, ("c", ["new"]))
        wait_until(lambda: client.service.catalogue.new_items["new"].events == 3)
        assert {item for item, _ in client.service.catalogue.new_items["new"].near} == {one, two}


def test_first_events_that_cannot_be_used_at_once_are_used_later(folder, monkeypatch):
    """The store is down when they are published; a tree has no spare leaf."""
    refused = [Problem("store_unavailable", "down"), InputError("no room")]
    with serving(folder) as client:
        said, known, change = [], shown(client), Catalogue.change
        client.service.first_events._said = lambda event, **more: said.append(event)
        assert client.put("/v1/items", json={"items": [{"item": "a"}, {"item": "b"}]}).status_code == 200

        async def failing(self, work):
            if refused:
                raise refused.pop(0)
            return await change(self, work)

        def events(item):
            return client.service.catalogue.new_items[item].events

        monkeypatch.setattr(Catalogue, "change", failing)
        send(client, *((f"u{user}", [known[user], "a"]) for user in range(3)))
        wait_until(lambda: "items_not_followed" in said)
        send(client, *((f"v{user}", [known[user], "b"]) for user in range(3)))
        wait_until(lambda: events("b") == 3)
        assert events("a") == 0
        send(client, *((f"w{user}", [known[user], "a"]) for user in range(7)))
        wait_until(lambda: events("a") == 10)
        assert said.count("items_not_followed") == 1


def test_first_events_are_counted_after_an_outage(folder, monkeypatch):
    monkeypatch.setattr("beamwood.serve.items.first_events._ROUND_SECONDS", 60.0)
    with serving(folder) as client:
        known, service = shown(client), client.service
        assert client.put("/v1/items", json={"items": [{"item": "a"}]}).status_code == 200
        client.portal.call(service.first_events.look)
        send(client, *((f"u{user}", [known[user], "a"]) for user in range(3)))
        with monkeypatch.context() as down:
            down.setattr("beamwood.serve.items.first_events.counted_together", _refuse)
            with pytest.raises(Problem):
                client.portal.call(service.first_events.look)
        client.portal.call(service.first_events.look)
        assert service.catalogue.new_items["a"].events == 3


@pytest.mark.parametrize("is_killed", [False, True])
def test_an_item_has_the_events_that_were_looked_at(folder, tmp_path, monkeypatch, is_killed):
    """A process that ends uses what waits for a later number; of one that is killed nobody knows the owners."""
    store, counted = f"sqlite:{tmp_path / 'events.db'}", []
    monkeypatch.setattr(first_events, "_ROUND_SECONDS", 0.01)
    if is_killed:
        monkeypatch.setattr(FirstEvents, "finish", lambda _: asyncio.sleep(0))

    def item(client):
        return client.service.catalogue.new_items["new"]

    with serving(folder, store=store) as client:
        known = shown(client)
        assert client.put("/v1/items", json={"items": [{"item": "new"}]}).status_code == 200
        count = client.service.first_events._count

        async def noted(more):
            totals = await count(more)
            counted.append(totals["new"])
            return totals

        monkeypatch.setattr(client.service.first_events, "_count", noted)
        send(client, *((f"u{user}", [known[user], "new"]) for user in range(2)))
        wait_until(lambda: 2 in counted)
        assert item(client).events == 0
    used = known[:2] if not is_killed else []
    with serving(folder, store=store) as client:
        wait_until(lambda: "new" in client.service.catalogue.new_items)
        assert item(client).events == len(used)
        for user in range(2, 5 - len(used)):
            assert of_new_items(client) == ["none"]
            send(client, (f"u{user}", [known[user], "new"]))
            used.append(known[user])
            wait_until(lambda: item(client).events == len(used))
        assert {each for each, _ in item(client).near} == set(used)
        assert of_new_items(client) == ["events"]


def _refuse(*given):
    raise StoreUnavailable("down")
