"""A store that is down, full or absent: answers continue, and nothing is acknowledged that is not stored."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future

import pytest

from beamwood.errors import InputError
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import Retention, StoreUnavailable
from served import dated, post, send, serving, two_users, wait_until

NOW = int(time.time())
END = NOW - 10_000
# The number of latest items that the tree uses.
LOOKED_AT = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return dated(tmp_path_factory.mktemp("served"), END)


@pytest.fixture(scope="module")
def users(folder):
    return two_users(folder)


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
        assert post(client, "/v1/score", {"user": user, "items": users[user]})["stale_history"] is True
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
        figures = client.get("/metrics").text
        assert 'store_errors_total{call="read"}' in figures
        # A score counts too.
        assert "beamwood_stale_histories_total 3.0" in figures
        assert client.service.histories.trouble is None
    said = [event for event, _ in events]
    assert said == ["store_down", "store_up"]
    assert events[0][1] == {"call": "read", "reason": "unplugged"}


def test_erasures_by_other_processes_hold_without_the_store(folder, users, monkeypatch):
    store = BrokenStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr("beamwood.serve.histories._ROUND_SECONDS", 0.01)
    with serving(folder) as client:
        known = client.service.histories
        for user in users:
            store.erase(user, NOW)
            wait_until(lambda user=user: user in known._erased)
        store.down = True
        for user in users:
            assert post(client, "/v1/recommend", {"user": user})["history_used"] == 0
        # It comes back as another one, all of whose tombstones are older.
        store._erased = {"another": 1.0}
        store.down = False
        wait_until(lambda: "another" in known._erased)


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


def test_events_are_refused_in_time_while_the_store_is_being_opened(folder, monkeypatch):
    """Its server may be slow to say no, and each attempt to open it waits for the others."""
    asked, may_end = [], threading.Event()

    def opened(self):
        asked.append(self)
        assert len(asked) == 1 or may_end.wait(60)
        raise StoreUnavailable("not there yet")

    monkeypatch.setattr(ServeSettings, "opened_store", opened)
    monkeypatch.setattr("beamwood.serve.histories._WRITE_SECONDS", 0.1)
    with serving(folder) as client:
        try:
            send(client, {"user": 1, "item": 1}, status=503)
            assert not may_end.is_set()
        finally:
            may_end.set()


def test_slow_writes_do_not_hold_up_reads(folder, users, monkeypatch):
    begun, may_end, user = threading.Semaphore(0), threading.Event(), next(iter(users))

    class SlowStore(MemoryStore):
        def merge(self, session, user, now):
            begun.release()
            assert may_end.wait(60)
            return super().merge(session, user, now)

    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: SlowStore())
    with serving(folder, timeout=1.0) as client:
        merging = [
            client.portal.start_task_soon(
                client.service.histories.call, "merge", lambda store: store.merge("s", 1, 1.7e9)
            )
            for _ in range(8)
        ]
        try:
            assert all(begun.acquire(timeout=30) for _ in range(4))
            assert "stale_history" not in post(client, "/v1/recommend", {"user": user})
        finally:
            may_end.set()
        assert [each.result(30) for each in merging] == [0] * 8


def test_a_read_that_is_too_late_never_begins(folder, users, monkeypatch):
    """Those of a store that hangs would else be made up for once it answers again."""
    asked, may_end, user = [], threading.Event(), next(iter(users))

    class SlowStore(MemoryStore):
        def history(self, owner, **rest):
            asked.append(owner)
            assert may_end.wait(60)
            return super().history(owner, **rest)

    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: SlowStore())
    monkeypatch.setattr("beamwood.serve.histories._PAUSE_SECONDS", -1.0)
    with serving(folder, timeout=1.0) as client:
        try:
            for _ in range(5):
                assert post(client, "/v1/recommend", {"user": user})["stale_history"] is True
        finally:
            may_end.set()
        # Behind them all, as reads are made in their order.
        client.portal.call(client.service.histories.call, "get", lambda store: store.get("nothing"))
    assert asked == [user] * 4


def test_a_caller_with_an_early_deadline_does_not_wait_for_a_slow_store(folder, users, monkeypatch):
    """It has a stale answer, and others still wait for the store."""
    user, may_end = next(iter(users)), threading.Event()

    class SlowStore(MemoryStore):
        def history(self, owner, **rest):
            assert may_end.wait(60)
            return super().history(owner, **rest)

    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: SlowStore())
    with serving(folder, timeout=60.0) as client:
        try:
            answer = post(client, "/v1/recommend", {"user": user, "deadline_ms": 2000})
        finally:
            may_end.set()
        assert answer["stale_history"] is True
        assert answer["took_ms"]["store"] < 2000
        assert client.service.histories.trouble is None
        assert "stale_history" not in post(client, "/v1/recommend", {"user": user})


@pytest.mark.parametrize("is_down", [False, True])
def test_long_histories_are_late_alone_and_a_store_that_answers_nothing_is_down(folder, users, monkeypatch, is_down):
    """However many are read at once."""
    (long, other), may_end, answered = users, threading.Event(), []

    class SlowStore(MemoryStore):
        def history(self, owner, **rest):
            assert owner != long or may_end.wait(60)
            return super().history(owner, **rest)

        def get(self, name):
            if is_down:
                assert may_end.wait(60)
            answered.append(name)
            return super().get(name)

    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: SlowStore())
    monkeypatch.setattr("beamwood.serve.histories._PAUSE_SECONDS", 60.0)
    monkeypatch.setattr("beamwood.serve.histories._ROUND_SECONDS", 60.0)
    with serving(folder, timeout=2.0) as client:
        known = client.service.histories
        try:
            answered.clear()
            for _ in range(3):
                known._readers.submit(may_end.wait, 60)
            assert post(client, "/v1/recommend", {"user": long})["stale_history"] is True
            wait_until(lambda: known._asking.done())
            assert ("clock" in answered, known.trouble is None) == (not is_down, not is_down)
            may_end.set()
            assert post(client, "/v1/recommend", {"user": other}).get("stale_history", False) is is_down
        finally:
            may_end.set()


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

    def erase(self, owner, time):
        if self.is_full:
            raise StoreUnavailable("the disk is full")
        return super().erase(owner, time)


def test_a_store_on_a_full_disk_is_still_read(folder, users, monkeypatch):
    store, items = FullStore(), next(iter(users.values()))[:2]
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(folder) as client:
        send(client, *({"user": 99, "item": item} for item in items))
        store.is_full = True
        for _ in range(3):
            refused = send(client, {"user": 99, "item": items[0]}, status=503)
            assert refused["error"]["message"].endswith("; send it again with the same keys")
            # Only events have keys.
            refused = client.delete("/v1/users/99")
            assert refused.status_code == 503
            assert refused.json()["error"]["message"] == "the store did not confirm it; send it again"
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


def test_retention_goes_on_in_a_full_store(folder, monkeypatch):
    store = FullStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr("beamwood.serve.histories._ROUND_SECONDS", 0.02)
    monkeypatch.setattr("beamwood.serve.histories._COMPACT_SECONDS", 1e9)
    with serving(folder, retention=Retention(keep_events=3)) as client:
        send(client, *({"user": 99, "item": item} for item in range(9)))
        store.is_full = True
        send(client, {"user": 99, "item": 1}, status=503)
        monkeypatch.setattr("beamwood.serve.histories._COMPACT_SECONDS", 0.02)
        wait_until(lambda: len(store.page(99)) == 3)
        assert client.service.histories.trouble is not None


def test_a_store_that_comes_back_with_a_full_disk_makes_the_service_ready(folder, users, monkeypatch):
    class Store(FullStore, BrokenStore):
        """One of both troubles."""

    store = Store()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr("beamwood.serve.histories.GRACE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.histories._ROUND_SECONDS", 0.01)
    with serving(folder) as client:
        store.is_full = store.down = True
        send(client, {"user": 99, "item": 1}, status=503)
        wait_until(lambda: client.get("/readyz").status_code == 503)
        store.down = False
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert client.service.histories.trouble is not None


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


def test_a_second_service_on_a_store_file_is_refused_with_the_process_id(folder, tmp_path):
    settings = ServeSettings(store=f"sqlite:{tmp_path / 'events.db'}", log="none")
    first = Service.open(folder, settings)
    try:
        with pytest.raises(InputError, match="in use by process"):
            Service.open(folder, settings)
    finally:
        first.close()
    Service.open(folder, settings).close()


@pytest.mark.parametrize("is_noted", [False, True])
def test_answers_and_events_of_an_outage_are_counted_after_it(folder, users, monkeypatch, is_noted):
    store = BrokenStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 60.0)
    with serving(folder) as client:

        def flush():
            client.portal.call(client.service.outcomes.flush, time.monotonic())

        answer = post(client, "/v1/recommend", {"user": next(iter(users)), "k": 3})
        if is_noted:
            flush()
        taken = {"user": 1, "item": answer["items"][0]["item"], "request_id": answer["request_id"]}
        send(client, taken)
        store.down = True
        with pytest.raises(Problem):
            flush()
        store.down = False
        flush()
        assert sorted((name, count) for (_, name), count in store.tallies().items()) == [("answers", 1), ("hits", 1)]


def test_many_answers_are_stored_in_parts_and_those_that_were_not_later(folder, users, monkeypatch):
    """Other writes wait for each part, and one that takes too long is not made."""
    sizes = []

    class NotingStore(BrokenStore):
        def note(self, answers, *rest):
            sizes.append(len(answers))
            self.down = len(sizes) == 2
            super().note(answers, *rest)

    store, user = NotingStore(), next(iter(users))
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 60.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._AT_ONCE", 3)
    with serving(folder) as client:
        for _ in range(7):
            post(client, "/v1/recommend", {"user": user})
        with pytest.raises(Problem):
            client.portal.call(client.service.outcomes.flush, time.monotonic())
        assert sizes == [3, 3]
        store.down = False
        client.portal.call(client.service.outcomes.flush, time.monotonic())
        assert sizes == [3, 3, 3, 1]
        for _ in range(4):
            post(client, "/v1/recommend", {"user": user})
    assert sizes == [3, 3, 3, 1, 3, 1]
    assert list(store._tallies.values()) == [11]
