"""Histories over HTTP: events are stored, read at once, erased, merged; without its store the service still answers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from urllib.parse import quote

import polars as pl
import pytest

from beamwood.data import Vocabulary
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.clock import DAY, Clock
from beamwood.serve.store.protocol import Retention
from served import dated, items_of, post, saved, send, serving, two_users, wait_until

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


@pytest.mark.parametrize(("fraction", "same", "later"), [(0, 0.7, 1.2), (0.125, 0.0007, 0.0012)])
def test_a_log_may_have_coarser_times_than_the_store(tmp_path, fraction, same, later):
    """As the next log that the page makes of an export: its last event counted twice."""
    end = END + fraction
    folder = dated(tmp_path, end)
    user = next(iter(two_users(folder)))
    with serving(folder) as client:
        before = items_of(post(client, "/v1/recommend", {"user": user}))
        send(client, {"user": user, "item": before[0], "time": end + same})
        assert items_of(post(client, "/v1/recommend", {"user": user})) == before
        send(client, {"user": user, "item": before[0], "time": end + later})
        assert before[0] not in items_of(post(client, "/v1/recommend", {"user": user}))


def test_unknown_users_have_histories_too(folder, users):
    with serving(folder) as client:
        own = next(iter(users.values()))
        # A fit may leave out users of its log, such as those with few events.
        for user, first in (("new", NOW - 50), ("left out", END - 50)):
            send(client, *({"user": user, "item": item, "time": first + place} for place, item in enumerate(own)))
            answer = post(client, "/v1/recommend", {"user": user})
            assert "unknown_user" not in answer
            assert items_of(answer) == items_of(post(client, "/v1/recommend", {"history": own}))


def test_stored_events_of_unknown_items_are_no_error_of_a_request(folder, users):
    """Only the ids of its body are; nobody can leave out the others."""
    user = next(iter(users))
    with serving(folder) as client:
        send(client, {"user": user, "item": "not yet known"})
        strict = {"user": user, "on_unknown": "error"}
        assert post(client, "/v1/recommend", strict)["unknown_items"] == ["not yet known"]
        error = post(client, "/v1/recommend", strict | {"events": ["no such"]}, 404)["error"]
        assert "'no such'" in error["message"]
        assert error["field"] == "events"


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
        text = client.get("/metrics").text
        for outcome in ("accepted", "duplicate"):
            assert f'beamwood_events_total{{outcome="{outcome}"}} 1.0' in text


def test_events_wait_until_they_are_stored_or_refused(folder, monkeypatch):
    monkeypatch.setattr("beamwood.serve.histories._MOST_WAITING", 2)
    with serving(folder) as client:
        one = {"user": 1, "item": 5, "key": "k-1"}
        assert send(client, one, one, one, status=429)["error"]["code"] == "overloaded"
        for _ in range(3):
            send(client, one, one)
            send(client, one | {"item": 6}, status=409)


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
    "who", [{"user": "a\0b"}, {"session": "\0"}, {"user": ""}, {"user": "x" * 513}, {"user": 2**64}]
)
def test_an_id_that_no_store_accepts_is_not_looked_up(folder, who):
    """PostgreSQL refuses some characters, which would look like a store that is down, to everybody."""
    (field,) = who
    with serving(folder) as client:
        for path, more in (("/v1/recommend", {}), ("/v1/score", {"items": [1]})):
            assert post(client, path, who | more, 422)["error"]["field"] == field
        (row,) = post(client, "/v1/recommend/batch", {"requests": [who]})["rows"]
        assert row["error"]["field"] == field


def test_retention_runs_in_the_background(folder, monkeypatch):
    for name in ("_ROUND_SECONDS", "_COMPACT_SECONDS"):
        monkeypatch.setattr(f"beamwood.serve.histories.{name}", 0.02)
    with serving(folder, retention=Retention(keep_events=3)) as client:
        send(client, *({"user": 1, "item": item, "time": NOW - 100 + item} for item in range(9)))
        wait_until(lambda: len(client.get("/v1/users/1/history").json()["events"]) == 3)


def test_an_event_beyond_the_retention_is_a_duplicate_when_sent_again(folder, monkeypatch):
    for name in ("_ROUND_SECONDS", "_COMPACT_SECONDS"):
        monkeypatch.setattr(f"beamwood.serve.histories.{name}", 0.02)
    with serving(folder, retention=Retention(keep_events=2)) as client:
        first = {"user": 1, "item": 3, "key": "first"}
        send(client, first)
        send(client, *({"user": 1, "item": item} for item in range(4, 9)))
        wait_until(lambda: len(client.get("/v1/users/1/history").json()["events"]) == 2)
        assert send(client, first)["duplicates"] == 1
        assert send(client, first | {"item": 4}, status=409)["error"]["code"] == "key_reused"
        kept = client.get("/v1/users/1/history").json()["events"]
        assert [each["item"] for each in kept] == [7, 8]


def test_a_clock_jump_is_accepted_after_a_day():
    clock = Clock(None, NOW, 100.0)
    assert clock.believed(NOW + 10, 110.0) == NOW + 10
    # Set back, and corrected again.
    assert clock.believed(NOW - 50 * DAY, 120.0) == NOW - 50 * DAY
    assert clock.believed(NOW + 30, 130.0) == NOW + 30
    assert clock.believed(NOW + 9 * DAY, 140.0) < NOW + 9 * DAY
    assert clock.believed(NOW + 9 * DAY, 130.0 + DAY) < NOW + 9 * DAY
    # Corrected in time, and ahead again.
    assert clock.believed(NOW + 40 + DAY, 140.0 + DAY) == NOW + 40 + DAY
    assert clock.believed(NOW + 9 * DAY, 150.0 + DAY) < NOW + 9 * DAY
    assert clock.believed(NOW + 10 * DAY, 150.0 + 2 * DAY) == NOW + 10 * DAY
    assert clock.believed(NOW + 10 * DAY, 160.0 + 2 * DAY) == NOW + 10 * DAY
    assert clock.believed(NOW + 20 * DAY, 170.0 + 2 * DAY) == NOW + 10 * DAY + 20
    assert Clock(NOW, NOW + 2 * DAY, 0.0).believed(NOW + 2 * DAY, 1.0) < NOW + 2 * DAY


def test_a_doubt_outlasts_restarts():
    """A machine was off for a weekend, and its service is restarted every night."""
    now, up = NOW + 3 * DAY, 0.99 * DAY
    first = Clock(NOW, now, 500.0)
    assert first.believed(now, 500.0) < now
    assert first.believed(now + up, 500.0 + up) < now + up
    again = Clock(first.last, now + up, 7.0, first.doubted)
    assert again.believed(now + up, 7.0) < now + up
    assert again.believed(now + 9 * DAY, 8.0) < now + 9 * DAY, "another jump is no end of the doubt"
    assert again.believed(now + DAY, 7.0 + DAY - up) == now + DAY
    assert again.doubted is None
    jumped = Clock(first.last, now + 900 * DAY, 7.0, first.doubted)
    assert jumped.believed(now + 900 * DAY, 7.0) < now + 9 * DAY, "a jump while nothing ran is another doubt"
    set_back = Clock(NOW, now - 1.5 * DAY, 7.0, first.doubted)
    assert set_back.believed(now - 1.5 * DAY, 7.0) < now - 1.5 * DAY
    assert set_back.doubted == now - 1.5 * DAY, "it is another doubt"


@pytest.mark.parametrize("is_mended", [False, True])
def test_a_doubt_is_stored_until_the_clock_is_mended(folder, tmp_path, monkeypatch, is_mended):
    for name in ("_ROUND_SECONDS", "_COMPACT_SECONDS"):
        monkeypatch.setattr(f"beamwood.serve.histories.{name}", 0.02)
    clock, options = time.time, {"store": f"sqlite:{tmp_path / 'events.db'}", "retention": Retention(keep_days=30)}

    def stored(client):
        """The day on which the stored doubt began, by the clock as it was then; 0 without a doubt, -1 without both."""
        text = client.service.histories.store.get("clock")
        return -1 if text is None else round(((json.loads(text)[1] or clock()) - clock()) / DAY)

    def ahead(days):
        monkeypatch.setattr(time, "time", lambda: clock() + days * DAY)

    with serving(folder, **options) as client:
        wait_until(lambda: stored(client) == 0)
        send(client, {"user": 1, "item": 1})
        ahead(365)
        wait_until(lambda: stored(client) == 365)
    if is_mended:
        ahead(0)
        with serving(folder, **options) as client:
            wait_until(lambda: stored(client) == 0)
    ahead(366.1)
    with serving(folder, **options) as client:
        wait_until(lambda: stored(client) == (366 if is_mended else 0))
        wait_until(lambda: len(client.get("/v1/users/1/history").json()["events"]) == is_mended)


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
