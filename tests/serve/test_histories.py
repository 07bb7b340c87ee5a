"""Histories over HTTP: events are stored, read at once, erased, merged; without its store the service still answers."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import replace
from urllib.parse import quote

import polars as pl
import pytest

from beamwood.data import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.clock import DAY, Clock
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import Retention, StoreUnavailable
from served import post, saved, serving, wait_until

NOW = int(time.time())
END = NOW - 10_000
# The number of latest items that the tree uses.
LOOKED_AT = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose log ends at END."""
    path = tmp_path_factory.mktemp("served")
    _, retriever = saved(path / "plain")
    replace(retriever, metadata=retriever.metadata | {"data": {"end": END}}).save(path / "dated")
    return path / "dated"


@pytest.fixture(scope="module")
def users(folder):
    """Two users of the model and their items, by id."""
    retriever = Retriever.load(folder)
    rows = retriever.histories.lengths.argsort()[::-1][:2]
    ids = retriever.users.decode(rows)
    return {user: retriever.items.decode(retriever.histories[row]) for row, user in zip(rows, ids, strict=True)}


def send(client, *events, status=200):
    return post(client, "/v1/events", {"events": list(events)}, status)


def items_of(answer):
    return [each["item"] for each in answer["items"]]


def unseen(client, user, count):
    return items_of(post(client, "/v1/recommend", {"user": user, "k": count}))


def test_sent_events_are_used_at_once(folder, users):
    user = next(iter(users))
    with serving(folder) as client:
        new = unseen(client, user, 3)
        told = send(client, *({"user": user, "item": item, "time": NOW - 5 + place} for place, item in enumerate(new)))
        assert (told["accepted"], told["duplicates"], told["durable"], told["unknown_items"]) == (3, 0, False, [])
        answer = post(client, "/v1/recommend", {"user": user, "k": 20})
        assert answer["history_seq"] == told["seq"]
        assert not set(new) & set(items_of(answer))
        # As if the request had the whole history.
        whole = post(client, "/v1/recommend", {"history": users[user] + new, "k": 20})
        assert [(each["item"], each["score"]) for each in answer["items"]] == [
            (each["item"], each["score"]) for each in whole["items"]
        ]


def test_events_before_the_end_of_the_log_count_once(folder, users):
    user, own = next(iter(users.items()))
    with serving(folder) as client:
        before = post(client, "/v1/recommend", {"user": user})
        send(client, {"user": user, "item": own[-1], "time": END}, {"user": user, "item": own[0], "time": END - 5})
        after = post(client, "/v1/recommend", {"user": user})
        assert items_of(after) == items_of(before)
        assert after["history_used"] == before["history_used"]


def test_unknown_users_have_histories_too(folder, users):
    with serving(folder) as client:
        own = next(iter(users.values()))
        # A fit may leave out users of its log, such as those with few events.
        for user, first in (("new", NOW - 50), ("left out", END - 50)):
            send(client, *({"user": user, "item": item, "time": first + place} for place, item in enumerate(own)))
            answer = post(client, "/v1/recommend", {"user": user})
            assert "unknown_user" not in answer
            assert items_of(answer) == items_of(post(client, "/v1/recommend", {"history": own}))


def test_a_session_and_its_merge(folder, users):
    user = next(iter(users))
    with serving(folder) as client:
        new = unseen(client, user, 2)
        send(client, {"session": "s-1", "item": new[0], "time": NOW - 3}, {"session": "s-1", "item": new[1]})
        asked = post(client, "/v1/recommend", {"session": "s-1"})
        assert items_of(asked) == items_of(post(client, "/v1/recommend", {"history": new}))
        assert post(client, "/v1/users/merge", {"session": "s-1", "user": user})["events"] == 2
        assert not set(new) & set(unseen(client, user, 30))
        assert post(client, "/v1/users/merge", {"session": "s-1", "user": user})["events"] == 0
        assert client.get("/v1/users/s-1/history?session=1").json()["events"] == []


def test_merged_events_from_before_the_end_of_the_log_wait_for_the_next_fit(folder, users):
    user = next(iter(users))
    with serving(folder) as client:
        new = unseen(client, user, 2)
        send(client, *({"session": "s-1", "item": item, "time": END - 5} for item in new))
        assert post(client, "/v1/recommend", {"session": "s-1"})["history_used"] == 2
        before = post(client, "/v1/recommend", {"user": user})
        assert post(client, "/v1/users/merge", {"session": "s-1", "user": user})["events"] == 2
        after = post(client, "/v1/recommend", {"user": user})
        assert (items_of(after), after["history_used"]) == (items_of(before), before["history_used"])


def test_an_erased_user_is_unknown(folder, users):
    user, other = users
    with serving(folder) as client:
        send(client, {"user": user, "item": users[other][0]})
        told = client.delete(f"/v1/users/{user}")
        assert told.status_code == 200
        assert (told.json()["events"], told.json()["model"]) == (1, len(users[user]))
        answer = post(client, "/v1/recommend", {"user": user})
        assert answer["unknown_user"] is True
        assert answer["history_used"] == 0
        assert client.get(f"/v1/users/{user}/history").json()["events"] == []
        assert post(client, "/v1/recommend", {"user": other})["history_used"] == LOOKED_AT
        # Later events count, whatever the end of the model's log.
        send(client, {"user": user, "item": users[other][0], "time": END - 9})
        assert post(client, "/v1/recommend", {"user": user})["history_used"] == 1


@pytest.mark.parametrize("user", ["a/b", "a%2Fb", "history/", "ä ?#&+", "a/history"])
def test_any_user_can_be_read_and_erased(folder, user):
    with serving(folder) as client:
        send(client, {"user": user, "item": 5})
        path = f"/v1/users/{quote(user, safe='')}"
        assert [each["item"] for each in client.get(f"{path}/history").json()["events"]] == [5]
        assert client.delete(path).json()["events"] == 1
        assert client.get(f"{path}/history").json()["events"] == []


@pytest.mark.parametrize("text", [False, True])
def test_an_id_as_a_number_or_as_text_reads_and_erases_the_user(text, tmp_path):
    folder, retriever = saved(tmp_path / "numbers")
    if text:
        folder = tmp_path / "texts"
        replace(retriever, users=Vocabulary(retriever.users.ids.cast(pl.String))).save(folder)
    with serving(folder) as client:
        own, other = ("77", 77) if text else (77, "77")
        send(client, {"user": own, "item": 5}, {"user": other, "item": 6}, {"user": "077", "item": 7})
        send(client, {"user": own, "item": 8})
        path = "/v1/users/77/history"
        shown = [(each["item"], each.get("user")) for each in client.get(path).json()["events"]]
        assert shown == [(5, None), (6, other), (8, None)]
        first = client.get(f"{path}?limit=2").json()
        second = client.get(f"{path}?limit=2&after={first['next']}").json()
        assert [each["item"] for each in first["events"] + second["events"]] == [5, 6, 8]
        assert client.get("/v1/users/77/history?session=1").json()["events"] == []
        assert client.delete("/v1/users/77").json()["events"] == 3
        assert client.get(path).json()["events"] == []
        for user in (77, "77"):
            assert post(client, "/v1/recommend", {"user": user})["unknown_user"] is True


def test_a_model_fitted_without_an_erased_user_may_know_it_again(folder, users, tmp_path):
    user = next(iter(users))
    retriever = Retriever.load(folder)
    replace(retriever, metadata=retriever.metadata | {"erased_until": NOW + 1000.0}).save(tmp_path / "later")
    with serving(tmp_path / "later") as client:
        client.delete(f"/v1/users/{user}")
        assert post(client, "/v1/recommend", {"user": user})["history_used"] == LOOKED_AT


def test_repeated_sends_and_reused_keys(folder):
    with serving(folder) as client:
        event = {"user": 1, "item": 5, "key": "k-1"}
        assert send(client, event)["accepted"] == 1
        again = send(client, event)
        assert (again["accepted"], again["duplicates"]) == (0, 1)
        error = send(client, event | {"item": 6}, status=409)["error"]
        assert error["code"] == "key_reused"
        assert "k-1" in error["message"]


def test_events_without_key_and_time_count_each(folder):
    with serving(folder) as client:
        told = send(client, *[{"user": 1, "item": 5}] * 30)
        assert (told["accepted"], told["duplicates"]) == (30, 0)
        assert send(client, *[{"user": 1, "item": 5, "time": NOW}] * 30)["accepted"] == 1


def test_history_is_paged(folder, users):
    user = next(iter(users))
    with serving(folder) as client:
        send(client, *({"user": user, "item": "no such", "time": NOW - n, "type": "buy"} for n in range(7)))
        first = client.get(f"/v1/users/{user}/history?limit=4").json()
        assert [each["time"] for each in first["events"]] == [NOW - n for n in range(4)]
        assert first["model"] == users[user]
        second = client.get(f"/v1/users/{user}/history?limit=4&after={first['next']}").json()
        assert [each["time"] for each in second["events"]] == [NOW - n for n in range(4, 7)]
        assert "next" not in second
        assert "model" not in second
        assert client.get(f"/v1/users/{user}/history?limit=0").status_code == 422


@pytest.mark.parametrize(
    ("event", "field", "said"),
    [
        ({"item": 1}, "events[0].user", "one of user and session"),
        ({"item": 1, "user": 1, "session": "s"}, "events[0].user", "one of user and session"),
        ({"user": 1, "item": 1, "time": NOW + 90_000}, "events[0].time", "more than a day ahead"),
        ({"user": 1, "item": 1, "time": NOW * 1000}, "events[0].time", "seconds since 1970"),
        ({"user": 1, "item": 1, "time": "yesterday"}, "events[0].time", "ISO 8601"),
        ({"user": 1, "item": 1, "time": -1e300}, "events[0].time", "years 1 to 9999"),
        ({"user": 1, "item": 1, "time": "0001-01-01T00:00:00+14:00"}, "events[0].time", "years 1 to 9999"),
        ({"user": 1, "item": "a\0b"}, "events[0].item", "not valid text"),
        ({"user": 2**70, "item": 1}, None, ""),
        ({"user": 1, "item": 1, "key": ""}, "events[0].key", "give 1 to 512"),
        ({"user": 1, "item": 1, "colour": 1}, "events[0].colour", "does not exist"),
        ({"user": 1}, "events[0].item", "missing"),
    ],
)
def test_invalid_events_are_refused(folder, event, field, said):
    with serving(folder) as client:
        error = send(client, event, status=422)["error"]
        assert said in error["message"]
        assert field is None or error["field"] == field


def test_times_as_text(folder):
    with serving(folder) as client:
        for text in ("2026-01-31T10:30:00Z", "2026-01-31 10:30", "2026-01-31T12:30+02:00"):
            send(client, {"user": "t", "item": text, "time": text})
        assert {each["time"] for each in client.get("/v1/users/t/history").json()["events"]} == {1769855400.0}
        assert send(client, *[{"user": 1, "item": 1}] * 1001, status=422)["error"]["field"] == "events"


@pytest.mark.parametrize(
    "who", [{"user": "a\0b"}, {"session": "\0"}, {"user": ""}, {"user": "x" * 513}, {"user": 2**63}]
)
def test_an_id_that_no_store_accepts_is_not_looked_up(folder, who):
    """PostgreSQL refuses some characters, which would look like a store that is down, to everybody."""
    (field,) = who
    with serving(folder) as client:
        for path, more in (("/v1/recommend", {}), ("/v1/score", {"items": [1]})):
            assert post(client, path, who | more, 422)["error"]["field"] == field
        (row,) = post(client, "/v1/recommend/batch", {"requests": [who]})["rows"]
        assert row["error"]["field"] == field


class BrokenStore(MemoryStore):
    """A store that can be made to fail."""

    down = False

    def _check(self):
        super()._check()
        if self.down:
            raise StoreUnavailable("unplugged")


def test_requests_are_answered_while_the_store_is_down(folder, users, monkeypatch):
    user, other = users
    events = []
    monkeypatch.setattr(
        RequestLog, "said", lambda _, event, **more: events.append((event, more)) if "store" in event else None
    )
    store = BrokenStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda self: store)
    monkeypatch.setattr("beamwood.serve.histories.GRACE_SECONDS", 0.0)
    with serving(folder) as client:
        send(client, {"user": user, "item": users[other][0]})
        client.delete(f"/v1/users/{other}")
        store.down = True
        answer = post(client, "/v1/recommend", {"user": user})
        assert answer["stale_history"] is True
        assert answer["history_used"] == LOOKED_AT
        # Erased users stay erased.
        assert post(client, "/v1/recommend", {"user": other})["history_used"] == 0
        refused = client.post("/v1/events", json={"events": [{"user": user, "item": 1}]})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["error"]["code"] == "store_unavailable"
        assert "send it again" in refused.json()["error"]["message"]
        unread = client.get(f"/v1/users/{user}/history").json()["error"]
        assert (unread["code"], "ask again" in unread["message"]) == ("store_unavailable", True)
        # Reasons may name servers and accounts.
        assert "unplugged" not in refused.text + str(unread)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        assert client.service.histories.trouble == "unplugged"
        assert client.get("/livez").status_code == 200
        store.down = False
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert "stale_history" not in post(client, "/v1/recommend", {"user": user})
        assert 'store_errors_total{call="read"}' in client.get("/metrics").text
        assert client.service.histories.trouble is None
    said = [event for event, _ in events]
    assert said == ["store_down", "store_up"]
    assert events[0][1] == {"call": "read", "reason": "unplugged"}


def test_a_clock_jump_does_not_mark_the_store_as_down_for_long(folder, monkeypatch):
    with serving(folder) as client:
        client.service.histories.store.close()
        assert client.post("/v1/events", json={"events": [{"user": 1, "item": 1}]}).status_code == 503
        clock = time.time
        monkeypatch.setattr(time, "time", lambda: clock() + 3600)
        assert client.get("/readyz").status_code == 200


def test_a_store_that_is_absent_at_start_up_is_opened_later(folder, users, monkeypatch):
    stores = []

    def opened(self):
        if not stores:
            raise StoreUnavailable("not there yet")
        return stores[0]

    monkeypatch.setattr(ServeSettings, "opened_store", opened)
    user = next(iter(users))
    with serving(folder) as client:
        assert post(client, "/v1/recommend", {"user": user})["stale_history"] is True
        stores.append(MemoryStore())
        wait_until(lambda: client.post("/v1/events", json={"events": [{"user": user, "item": 1}]}).status_code == 200)


class FullStore(MemoryStore):
    """A store on a full disk: reads succeed."""

    is_full = False

    def append(self, events):
        if not self.is_full:
            return super().append(events)
        refused = Future()
        refused.set_exception(StoreUnavailable("the disk is full"))
        return refused

    def put(self, name, text):
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        super().put(name, text)


def test_a_store_on_a_full_disk_is_still_read(folder, users, monkeypatch):
    store, items = FullStore(), next(iter(users.values()))[:2]
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(folder) as client:
        send(client, *({"user": 99, "item": item} for item in items))
        store.is_full = True
        for _ in range(3):
            send(client, {"user": 99, "item": items[0]}, status=503)
            answer = post(client, "/v1/recommend", {"user": 99})
            assert answer["history_used"] == 2
            assert not answer.get("stale_history")


def test_a_full_disk_is_reported_once_and_the_service_stays_ready(folder, monkeypatch):
    store, events = FullStore(), []
    monkeypatch.setattr(RequestLog, "said", lambda _, event, **__: events.append(event) if "store" in event else None)
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr("beamwood.serve.histories.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.histories._ROUND_SECONDS", 0.05)
    with serving(folder) as client:
        store.is_full = True
        for _ in range(3):
            send(client, {"user": 99, "item": 1}, status=503)
            time.sleep(0.2)
        assert events == ["store_down"]
        assert client.get("/readyz").status_code == 200
        store.is_full = False
        wait_until(lambda: events == ["store_down", "store_up"])
        send(client, {"user": 99, "item": 1})


def test_a_nearly_full_disk_is_reported_once(folder, monkeypatch, tmp_path):
    events = []
    monkeypatch.setattr(RequestLog, "said", lambda _, event, **__: events.append(event) if "store" in event else None)
    monkeypatch.setattr("beamwood.serve.histories._ROUND_SECONDS", 0.05)
    with serving(folder, store=f"sqlite:{tmp_path / 'events.db'}") as client:
        own = client.service.histories.store._connection
        most = own.execute("pragma max_page_count").fetchone()[0]
        own.execute(f"pragma max_page_count = {own.execute('pragma page_count').fetchone()[0] + 5}")
        for number in range(5):
            some = [{"user": 99, "item": 1, "key": f"{number} {each}" + 100 * "-"} for each in range(500)]
            send(client, *some, status=503)
            client.service.histories.store.put("small", str(number))
            time.sleep(0.2)
        assert events == ["store_down"]
        own.execute(f"pragma max_page_count = {most}")
        wait_until(lambda: events == ["store_down", "store_up"])
        wait_until(lambda: client.service.histories.store.get("probe") == "")


def test_a_store_that_becomes_available_is_opened_once(folder, monkeypatch):
    opened = []

    def opener(self):
        if len(opened) < 5:
            opened.append(None)
            raise StoreUnavailable("not there yet")
        time.sleep(1.2)
        opened.append(MemoryStore())
        return opened[-1]

    monkeypatch.setattr(ServeSettings, "opened_store", opener)
    with serving(folder) as client:
        body = {"events": [{"user": 1, "item": 1}]}
        wait_until(lambda: client.post("/v1/events", json=body).status_code == 200)
        time.sleep(1.3)
        assert len(opened) == 6


def test_retention_runs_in_the_background(folder, monkeypatch):
    for name in ("_ROUND_SECONDS", "_COMPACT_SECONDS"):
        monkeypatch.setattr(f"beamwood.serve.histories.{name}", 0.02)
    with serving(folder, retention=Retention(keep_events=3)) as client:
        send(client, *({"user": 1, "item": item, "time": NOW - 100 + item} for item in range(9)))
        wait_until(lambda: len(client.get("/v1/users/1/history").json()["events"]) == 3)


def test_a_clock_jump_is_accepted_after_a_day():
    clock = Clock(None, NOW, 100.0)
    assert clock.is_believed(NOW + 10, 110.0)
    # Set back, and corrected again.
    assert clock.is_believed(NOW - 50 * DAY, 120.0)
    assert clock.is_believed(NOW + 30, 130.0)
    assert not clock.is_believed(NOW + 9 * DAY, 140.0)
    assert not clock.is_believed(NOW + 9 * DAY, 130.0 + DAY)
    # Corrected in time, and ahead again.
    assert clock.is_believed(NOW + 40 + DAY, 140.0 + DAY)
    assert not clock.is_believed(NOW + 9 * DAY, 150.0 + DAY)
    assert clock.is_believed(NOW + 10 * DAY, 150.0 + 2 * DAY)
    assert clock.is_believed(NOW + 10 * DAY, 160.0 + 2 * DAY)
    assert not Clock(NOW, NOW + 2 * DAY, 0.0).is_believed(NOW + 2 * DAY, 1.0)


def test_a_clock_jump_ahead_deletes_nothing(folder, tmp_path, monkeypatch):
    for name in ("_ROUND_SECONDS", "_COMPACT_SECONDS"):
        monkeypatch.setattr(f"beamwood.serve.histories.{name}", 0.02)
    clock, retention = time.time, Retention(keep_days=30)

    def kept(client):
        return len(client.get("/v1/users/1/history").json()["events"])

    options = {"store": f"sqlite:{tmp_path / 'events.db'}", "retention": retention}
    with serving(folder, **options) as client:
        send(client, {"user": 1, "item": 1, "time": clock() - 31 * DAY}, {"user": 1, "item": 2})
        wait_until(lambda: kept(client) == 1)
        monkeypatch.setattr(time, "time", lambda: clock() + 365 * DAY)
        time.sleep(0.5)
        assert kept(client) == 1
    # Nor does a start with such a clock.
    with serving(folder, **options) as client:
        time.sleep(0.5)
        assert kept(client) == 1
        monkeypatch.setattr("beamwood.serve.clock.DAY", 0.1)
        wait_until(lambda: kept(client) == 0)


def test_a_second_service_on_a_store_file_is_refused_with_the_process_id(folder, tmp_path):
    settings = ServeSettings(store=f"sqlite:{tmp_path / 'events.db'}", log="none")
    first = Service.open(folder, settings)
    try:
        with pytest.raises(InputError, match="in use by process"):
            Service.open(folder, settings)
    finally:
        first.close()
    Service.open(folder, settings).close()
