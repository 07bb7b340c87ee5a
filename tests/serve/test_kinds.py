"""Kinds of events over HTTP: those that count in histories, those that reject, and the filter of rejected items."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.retrieval.new_items.sources import WITHIN
from beamwood.retrieval.request import Request
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.answer.kinds import Kinds
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.items.near_events import near_of
from beamwood.serve.monitoring.replay import replayed
from beamwood.serve.offline import open_with_store
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.serve.store.event import Event, Session
from beamwood.serve.store.memory import MemoryStore
from beamwood.types import ItemLists
from served import post, saved, serving, wait_until

NOW = int(time.time())
END = NOW - 10_000
KINDS = {"counted": {"buy": 1.0, "view": 0.3}, "negative": ["skip", "hide"]}
ALL = 90


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """ "kinds": a model whose log has kinds of events, with two rejected items per user; "plain": a model without."""
    root = tmp_path_factory.mktemp("models")
    _, retriever = saved(root / "plain")
    seen = [set(row.tolist()) for row in retriever.histories]
    rows = [[item for item in range(ALL) if item not in own][:2] for own in seen]
    about = retriever.metadata | {"data": {"end": END, "events": KINDS}}
    replace(retriever, metadata=about, rejected=ItemLists.from_lists(rows)).save(root / "kinds")
    return root


@pytest.fixture(scope="module")
def known(models):
    """A user of the model, its history and its rejected items."""
    retriever = Retriever.load(models / "kinds")
    row = int(retriever.histories.lengths.argmax())
    (user,) = retriever.users.decode(np.array([row]))
    return user, retriever.items.decode(retriever.histories[row]), retriever.items.decode(retriever.rejected[row])


@pytest.fixture
def client(models):
    with serving(models / "kinds") as client:
        yield client


def send(client, *events, status=200):
    return post(client, "/v1/events", {"events": list(events)}, status)


def found(client, body, **more):
    answer = post(client, "/v1/recommend", {"k": ALL, **body, **more})
    return [each["item"] for each in answer["items"]]


def scored(client, body):
    return [(each["item"], each["score"]) for each in post(client, "/v1/recommend", body)["items"]]


def test_only_counted_kinds_make_a_history(client, known):
    user, history, _ = known
    bought, plain, skipped, odd, viewed = found(client, {"user": user})[:5]
    told = send(
        client,
        {"user": user, "item": bought, "type": "buy", "time": NOW - 9},
        {"user": user, "item": plain, "time": NOW - 8},
        {"user": user, "item": skipped, "type": "skip", "time": NOW - 7},
        {"user": user, "item": odd, "type": "hover", "time": NOW - 6},
        {"user": user, "item": odd, "type": "Buy", "time": NOW - 5},
        {"user": user, "item": viewed, "type": "view", "time": NOW - 4},
    )
    assert (told["accepted"], told["uncounted_types"]) == (6, ["hover", "Buy"])
    expected = scored(client, {"history": [*history, bought, plain, viewed]})
    assert scored(client, {"user": user}) == expected
    # All events are stored with their type, and the session of a new user is read in the same way.
    events = client.get(f"/v1/users/{user}/history").json()["events"]
    assert [each.get("type") for each in events] == ["buy", None, "skip", "hover", "Buy", "view"]
    send(client, {"session": "s", "item": bought, "type": "view"}, {"session": "s", "item": odd, "type": "hide"})
    assert scored(client, {"session": "s"}) == scored(client, {"history": [bought]})


def test_the_latest_events_of_a_kind_count_despite_many_others(models, known):
    user = known[0]
    with serving(models / "kinds", limits=Limits(history=2)) as client:
        first, second, other = found(client, {"user": user})[:3]
        send(client, *({"user": user, "item": item, "type": "buy"} for item in (first, second)))
        send(client, *({"user": user, "item": other, "type": "skip", "time": NOW - n} for n in range(5)))
        assert not {first, second} & set(found(client, {"user": user}))
        assert other in found(client, {"user": user})


def test_without_kinds_every_type_counts(models, known):
    user, history, _ = known
    with serving(models / "plain") as client:
        item, other = found(client, {"user": user})[:2]
        told = send(client, {"user": user, "item": item, "type": "skip"}, {"user": user, "item": other, "type": "x"})
        assert told["uncounted_types"] == []
        assert scored(client, {"user": user}) == scored(client, {"history": [*history, item, other]})


def test_weights_of_any_sign_change_no_answer(client, known):
    user, history, _ = known
    first, second, third = found(client, {"user": user})[:3]
    weights = {first: -1.0, second: 0.0, third: 1e9}
    send(client, *({"user": user, "item": item, "weight": weight} for item, weight in weights.items()))
    expected = scored(client, {"history": [*history, *weights]})
    assert scored(client, {"user": user}) == expected
    rejecting = found(client, {"user": user}, exclude_seen=False, exclude_rejected=True)
    assert {first, second, third} <= set(rejecting)
    events = client.get(f"/v1/users/{user}/history").json()["events"]
    assert [each["weight"] for each in events] == [-1.0, 0.0, 1e9]


def test_rejected_items_are_left_out(client, known):
    user, _, rejected = known
    every = found(client, {"user": user})
    assert set(rejected) <= set(every)
    left = found(client, {"user": user}, exclude_rejected=True)
    assert left == [item for item in every if item not in rejected]
    # In the store, the last event of an item counts, by time, not by arrival.
    new, again, twice, late = left[:4]
    send(client, {"user": user, "item": again, "type": "skip", "time": NOW - 5})
    send(client, {"user": user, "item": again, "type": "view", "time": NOW - 3})
    send(client, *({"user": user, "item": twice, "type": kind} for kind in ("hide", "buy", "skip")))
    send(client, {"user": user, "item": new, "type": "skip"}, {"user": user, "item": late, "type": "view"})
    send(client, {"user": user, "item": late, "type": "hide", "time": NOW - 50})
    kept = {"exclude_seen": False, "exclude_rejected": True}
    shown = set(found(client, {"user": user}, **kept))
    assert shown & {new, again, twice, late, *rejected} == {again, late}
    assert new in found(client, {"user": user})
    # A later counted event overrides a rejection in the log, and so does an item in the body.
    send(client, {"user": user, "item": rejected[0], "type": "view"})
    shown = set(found(client, {"user": user}, **kept))
    assert shown & set(rejected) == {rejected[0]}
    assert set(rejected) | {new} <= set(found(client, {"user": user, "events": [rejected[1], new]}, **kept))
    # An event that neither counts nor rejects changes nothing.
    send(client, {"user": user, "item": rejected[1], "type": "hover"})
    assert rejected[1] not in found(client, {"user": user}, **kept)


def test_events_before_the_end_of_the_log_reject_nothing(client, known):
    user, _, _ = known
    item = found(client, {"user": user}, exclude_rejected=True)[0]
    send(client, {"user": user, "item": item, "type": "skip", "time": END - 5})
    assert item in found(client, {"user": user}, exclude_rejected=True)
    # For an unknown user all events count.
    send(client, {"user": "new", "item": item, "type": "skip", "time": NOW - 5})
    assert item not in found(client, {"user": "new"}, exclude_rejected=True)
    assert item in found(client, {"user": "new"})
    send(client, {"session": "s", "item": item, "type": "skip", "time": END - 5})
    assert item not in found(client, {"session": "s"}, exclude_rejected=True)


def test_an_erased_user_has_no_rejections(client, known):
    user, _, rejected = known
    client.delete(f"/v1/users/{user}")
    assert set(rejected) <= set(found(client, {"user": user}, exclude_rejected=True))
    send(client, {"user": user, "item": rejected[0], "type": "skip", "time": END - 5})
    shown = found(client, {"user": user}, exclude_rejected=True)
    assert rejected[0] not in shown
    assert rejected[1] in shown


def test_a_merged_session_rejects_for_the_user(client, known):
    user, _, _ = known
    item = found(client, {"user": user}, exclude_rejected=True)[0]
    send(client, {"session": "s", "item": item, "type": "hide"})
    post(client, "/v1/users/merge", {"session": "s", "user": user})
    assert item not in found(client, {"user": user}, exclude_rejected=True)


def test_an_invalid_request_names_the_fix(client, models, known):
    user, history, _ = known

    def error(asked, body):
        return post(asked, "/v1/recommend", {"exclude_rejected": True, **body}, 422)["error"]

    alone = error(client, {"history": history})
    assert alone["field"] == "exclude_rejected"
    assert "needs user or session" in alone["message"]
    with serving(models / "plain") as plain:
        assert "--negative-events" in error(plain, {"user": user})["message"]
    assert error(client, {"user": user, "exclude_rejected": 1})["field"] == "exclude_rejected"
    assert send(client, {"user": user, "item": 1, "type": ""}, status=422)["error"]["field"] == "events[0].type"


def test_batches_and_pages_leave_rejected_items_out_too(client, known):
    user, history, rejected = known
    item = found(client, {"user": user}, exclude_rejected=True)[1]
    send(client, {"user": user, "item": item, "type": "skip"})
    expected = found(client, {"user": user}, exclude_rejected=True)
    rows = post(
        client,
        "/v1/recommend/batch",
        {
            "requests": [{"user": user, "k": ALL, "exclude_rejected": each} for each in (True, False)]
            + [{"history": history, "exclude_rejected": True}]
        },
    )["rows"]
    assert [each["item"] for each in rows[0]["ok"]["items"]] == expected
    assert {item, *rejected} <= {each["item"] for each in rows[1]["ok"]["items"]}
    assert rows[2]["error"]["field"] == "exclude_rejected"
    answer = post(client, "/v1/recommend", {"user": user, "k": 20, "pages": True, "exclude_rejected": True})
    pages = [each["item"] for each in answer["items"]]
    while "cursor" in answer:
        answer = post(client, "/v1/recommend", {"cursor": answer["cursor"], "k": 20})
        pages += [each["item"] for each in answer["items"]]
    assert pages == expected


def test_explain_reproduces_an_answer(client, known):
    user, _, rejected = known
    item = found(client, {"user": user}, exclude_rejected=True)[0]
    send(client, {"user": user, "item": item, "type": "skip"})
    answer = post(client, "/v1/recommend", {"user": user, "exclude_rejected": True})
    # Later the rejection is lifted, and another item is rejected.
    first = answer["items"][0]["item"]
    send(client, {"user": user, "item": item, "type": "buy"}, {"user": user, "item": first, "type": "skip"})
    store = client.service.histories.store
    wait_until(lambda: store.noted([answer["request_id"]]))
    again = replayed(store, answer["request_id"])
    assert again.reproduced
    assert not {item, *rejected} & {each.item for each in again.answer.items}


def test_only_counted_events_are_hits_of_an_answer(client, known):
    user, _, _ = known
    answer = post(client, "/v1/recommend", {"user": user, "k": 2})
    first, second = (each["item"] for each in answer["items"])
    own = {"user": user, "request_id": answer["request_id"]}
    send(client, own | {"item": first, "type": "skip"}, own | {"item": first, "type": "hover"})
    assert not client.service.outcomes._follows
    send(client, own | {"item": second, "type": "view"})
    assert [each.item for each in client.service.outcomes._follows] == [second]


def test_new_items_are_placed_by_counted_events(models):
    store = MemoryStore()
    kinds = ["buy", "skip", "", "hover", "buy"]
    store.append([Event("u", item, NOW + item, type=kind) for item, kind in enumerate(kinds)])
    with_kinds, plain = (open_snapshot(models / name) for name in ("kinds", "plain"))
    assert near_of(store, 4, ["u"], with_kinds) == {0: 1, 2: 1}
    assert near_of(store, 4, ["u"], plain) == {0: 1, 1: 1, 2: 1, 3: 1}
    assert near_of(store, 1, ["u"], with_kinds) == {}


def test_new_items_are_placed_by_the_models_own_histories(models, known):
    """As of users whose first event since the fit this is; an older event may be in the log too."""
    store, snapshot, (user, history, _) = MemoryStore(), open_snapshot(models / "kinds"), known
    store.append([Event(user, -1, END + 10, type="buy"), Event(Session("s"), -1, END + 10, type="buy")])
    own = Counter(history[-WITHIN:])
    assert near_of(store, -1, [user, Session("s")], snapshot) == own
    store.append([Event(user, -2, END - 10, type="buy")])
    assert near_of(store, -1, [user], snapshot) == {-2: 1}
    store.erase(user, END + 15)
    store.append([Event(user, -1, END + 20, type="buy")])
    assert near_of(store, -1, [user], snapshot) == {}


def test_unreadable_kinds_are_refused(models):
    with pytest.raises(ArtefactError, match=r"manifest.json: data.events"):
        Kinds.of({"data": {"events": {"counted": {"buy": 1}}}})
    assert Kinds.of({"data": {"end": 3}}) == Kinds.of({}) == Kinds()
    assert json.loads((models / "kinds" / "manifest.json").read_text())["data"]["events"] == KINDS


def test_the_page_leaves_rejected_items_out_if_the_box_is_ticked(client, models, known):
    user, _, rejected = known

    def shown(form):
        page = client.get(f"/?{form}&k={ALL}")
        assert page.status_code == 200
        return {int(each) for each in re.findall(r'<li data-item="(\d+)"', page.text)}

    assert set(rejected) <= shown(f"user={user}")
    assert not set(rejected) & shown(f"user={user}&rejected=1")
    assert 'name="rejected" value="1" checked' in client.get(f"/?user={user}&rejected=1").text
    # A history without a user has no rejections.
    assert shown("history=5&rejected=1") == shown("history=5")
    with serving(models / "plain") as plain:
        assert 'name="rejected"' not in plain.get("/").text


def test_an_offline_answer_without_items_says_that_they_were_rejected_or_seen(models, known):
    user, history, rejected = known
    store, item = MemoryStore(), Retriever.load(models / "kinds").items.decode(np.array([5]))[0]
    answers = open_with_store(str(models / "kinds"), store)
    store.append([Event(user, item, NOW, type="skip"), Event("new", item, NOW, type="skip")]).result()

    def why(users, allowed, **more):
        return answers.recommendations(Request(users=users, allowed=allowed, k=5, **more)).empty

    gone = "the only item passing the filter was seen or rejected"
    for who, only in ((user, item), (user, rejected[0]), (user, history[0]), ("new", item)):
        (said,) = why([who], [only], rejected="remove", on_unknown="ignore").values()
        assert said.startswith(gone)
    assert list(why(["other", user], [item], rejected="remove")) == [1]
    assert why([user], [item]) == {}
    (said,) = why([user], [history[0]]).values()
    assert "was seen; pass seen='keep'" in said


def test_an_offline_answer_judges_by_as_many_events_as_the_service(models, known, monkeypatch):
    user, _, _ = known
    store, (first, later) = MemoryStore(), Retriever.load(models / "kinds").items.decode(np.array([5, 6]))
    items = [first, *[later] * Limits().filter_ids]
    store.append([Event(user, item, NOW + at * 1e-3, type="skip") for at, item in enumerate(items)]).result()
    asked = Request(users=[user], k=ALL, seen="keep", rejected="remove")
    (offline,) = open_with_store(str(models / "kinds"), store).recommendations(asked).item_ids
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "kinds") as client:
        assert found(client, {"user": user, "exclude_seen": False, "exclude_rejected": True}) == offline
    assert (first in offline, later in offline) == (True, False)
