"""Outcomes of answers: hits and misses are recorded in time, and classified by what the answer was given by."""

from __future__ import annotations

import math
import threading
import time
from contextlib import suppress
from unittest.mock import DEFAULT, Mock

from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.messages import Filter, Recommend
from beamwood.serve.monitoring.outcomes import miss_of
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import StoreUnavailable
from served import post, send, serving, wait_until


def test_a_miss_is_judged_by_the_history_of_its_answer(models, options, monkeypatch):
    """The event that tells of it is in the history afterwards; that of an answer without its store is unknown."""
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 60.0)
    with serving(models / "one", **options) as client:
        ranked = [each["item"] for each in post(client, "/v1/recommend", {"user": 3, "k": 50})["items"]]
        for number, stale in enumerate((False, True)):
            if stale:
                # As after a read that failed.
                monkeypatch.setattr("beamwood.serve.histories.HistoryGateway.kept", _unread)
            answer = post(client, "/v1/recommend", {"user": 3, "k": 3})
            taken = {"user": 3, "item": ranked[-1 - number], "request_id": answer["request_id"]}
            post(client, "/v1/events", {"events": [taken]})
            client.portal.call(client.service.outcomes.flush, time.monotonic())
            (group,) = client.get("/v1/experiments").json()["groups"]
            assert group["misses"] == {"model": 1}


async def _unread(*given):
    return StoredHistory(stale=True)


def test_hits_of_a_flush_are_one_read_and_one_write(models, monkeypatch):
    """Each may wait for a disk or a network, so that hits one by one would be fewer than what a busy service gets."""
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 60.0)
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "one") as client:
        for user in range(30):
            answer = post(client, "/v1/recommend", {"user": user, "k": 3})
            for each in answer["items"]:
                send(client, {"user": user, "item": each["item"], "request_id": answer["request_id"]})
        store.noted = Mock(wraps=store.noted)
        store.hit = Mock(side_effect=[StoreUnavailable("down"), DEFAULT], wraps=store.hit)
        for _ in range(2):
            with suppress(Problem):
                client.portal.call(client.service.outcomes.flush, time.monotonic())
        assert store.noted.call_count == store.hit.call_count == 2
        assert [each["hits"] for each in client.get("/v1/experiments").json()["groups"]] == [30]


def test_answers_are_stored_while_a_miss_waits_for_its_search(models, monkeypatch):
    """As under load: else an event at another process would not find its answer."""
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 0.01)
    waiting, judged = threading.Event(), threading.Event()

    def slowly(*given):
        waiting.set()
        judged.wait(60)
        return "missed_model"

    monkeypatch.setattr("beamwood.serve.monitoring.outcomes.miss_of", slowly)
    with serving(models / "one") as client:
        store = client.service.histories.store
        first = post(client, "/v1/recommend", {"user": 3, "k": 3})["request_id"]
        wait_until(lambda: store.noted([first]))
        send(client, {"user": 3, "item": "no such item", "request_id": first})
        assert waiting.wait(60)
        second = post(client, "/v1/recommend", {"user": 3, "k": 3})["request_id"]
        try:
            wait_until(lambda: store.noted([second]))
        finally:
            judged.set()


def test_what_is_let_go_of_is_counted(models, monkeypatch):
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 60.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._MOST_WAITING", 3)
    with serving(models / "one") as client:
        client.service.histories.store.note = Mock(side_effect=StoreUnavailable("down"))
        for user in range(5):
            post(client, "/v1/recommend", {"user": user, "k": 3})
            send(client, {"user": user, "item": 1, "request_id": f"r-{user}"})
        with suppress(Problem):
            client.portal.call(client.service.outcomes.flush, -math.inf)
        lost = {"arm": "", "outcome": "lost"}
        assert client.service.metrics.registry.get_sample_value("beamwood_outcomes_total", lost) == 4


def test_a_hit_just_before_the_end_is_counted(models, options):
    with serving(models / "one", **options) as client:
        answer = post(client, "/v1/recommend", {"user": 11, "k": 3})
        items = answer["items"][0]["item"], "no such item"
        send(client, *({"user": 11, "item": each, "request_id": answer["request_id"]} for each in items))
    with serving(models / "one", **options) as client:
        assert [each["hits"] for each in client.get("/v1/experiments").json()["groups"]] == [1]


def test_explain_shows_where_an_item_was_lost(models):
    snapshot = open_snapshot(models / "one")
    retriever, limits = snapshot.retriever, Limits()
    row = int(retriever.histories.lengths.argmax())
    history = retriever.items.decode(retriever.histories[row])
    order = retriever.recommend([history], 60).item_ids[0]

    def lost(item, **more):
        return miss_of(snapshot, Recommend(history=history, k=3, **more), StoredHistory(), order[2:3], item, limits)

    assert lost("none") == "missed_unknown"
    assert lost(history[0]) == "missed_filter"
    assert lost(order[40]) == "missed_model"
    assert lost(order[1], exclude=[order[1]]) == "missed_filter"
    assert lost(order[40], filter=Filter(items=order[:30])) == "missed_filter"
    # As if the search had not reached the first item.
    assert (
        miss_of(snapshot, Recommend(history=history, k=2), StoredHistory(), order[2:3], order[0], limits)
        == "missed_search"
    )
    diverse = Recommend(history=history, k=2, diversity=0.5)
    assert miss_of(snapshot, diverse, StoredHistory(), order[2:3], order[0], limits) == "missed_rules"


def test_a_new_item_at_the_end_of_a_list_does_not_define_a_miss(models, options, monkeypatch):
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 0.05)
    with serving(models / "one", **options) as client:
        body = {"history": [5, 9], "k": 4, "effort": 1}
        best = [each["item"] for each in post(client, "/v1/recommend", body)["items"]]
        far = post(client, "/v1/recommend", body | {"k": 40})["items"][-1]["item"]
        new = {"items": [{"item": 900, "similar": best[:1]}]}
        assert client.put("/v1/items", json=new).status_code == 200
        answer = post(client, "/v1/recommend", body)
        # It scores as high as the best item, but its share puts it in the last position.
        assert [each["item"] for each in answer["items"]] == [*best[:3], 900]
        event = {"user": 1, "item": far, "request_id": answer["request_id"]}
        post(client, "/v1/events", {"events": [event]})
        misses = {}

        def told():
            for group in client.get("/v1/experiments").json()["groups"]:
                misses.update(group["misses"])
            return misses

        wait_until(told)
        assert misses == {"model": 1}
