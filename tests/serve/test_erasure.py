"""Erasure in difficult cases: clock jumps, answers in transit, ids of every form."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from beamwood.retrieval.forget import without_erased
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.answer.kept import owner_of
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.histories import HistoryGateway
from served import post, saved, send, serving

DAY = 86400.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")[0]


def test_erased_users_stay_erased_if_the_clock_is_set_back(folder, tmp_path, monkeypatch):
    now, clock = time.time(), time.time
    with serving(folder) as client:
        monkeypatch.setattr(time, "time", lambda: clock() + DAY)
        client.delete("/v1/users/11").raise_for_status()
        monkeypatch.setattr(time, "time", clock)
        erased = client.service.histories.store.erased()
        assert erased[11] > now + DAY / 2
        left, _ = without_erased(Retriever.load(folder), list(erased), max(erased.values()))
        left.save(tmp_path / "clean")
        client.delete("/v1/users/10").raise_for_status()
        later = client.service.histories.store
    monkeypatch.setattr(later, "_open", True)
    monkeypatch.setattr("beamwood.serve.settings.ServeSettings.opened_store", lambda _: later)
    with serving(tmp_path / "clean") as client:
        assert post(client, "/v1/recommend", {"user": 9})["history_used"] > 0
        assert post(client, "/v1/recommend", {"user": 10})["history_used"] == 0


def test_an_answer_in_transit_to_the_store_is_erased_too(folder):
    with serving(folder) as client:
        ids = [post(client, "/v1/recommend", {"user": user})["request_id"] for user in (11, 10)]
        client.delete("/v1/users/11").raise_for_status()
        client.portal.call(client.service.outcomes.flush, time.monotonic())
        assert client.service.histories.store.noted(ids).keys() == {ids[1]}


def test_an_answer_whose_search_ended_after_the_erasure_is_not_stored(folder, monkeypatch):
    real = HistoryGateway.kept

    async def kept(self, snapshot, body):
        found = await real(self, snapshot, body)
        # Of a request that came meanwhile.
        await self.erase(owner_of(body))
        return found

    with serving(folder) as client:
        monkeypatch.setattr(HistoryGateway, "kept", kept)
        late = post(client, "/v1/recommend", {"user": 11, "k": 2, "pages": True})
        monkeypatch.setattr(HistoryGateway, "kept", real)
        assert late["history_used"] > 0
        later = post(client, "/v1/recommend", {"user": 11})
        client.portal.call(client.service.outcomes.flush, time.monotonic())
        noted = client.service.histories.store.noted
        assert [not noted([each["request_id"]]) for each in (late, later)] == [True, False]


def test_answers_of_who_comes_back_are_stored_whatever_a_clock_said(folder):
    with serving(folder) as client:
        client.service.histories.store.erase("x", time.time() + DAY)
        client.delete("/v1/users/11").raise_for_status()
        first = post(client, "/v1/recommend", {"user": 11, "k": 2, "pages": True})
        following = post(client, "/v1/recommend", {"cursor": first["cursor"]})
        client.portal.call(client.service.outcomes.flush, time.monotonic())
        noted = client.service.histories.store.noted
        assert [each.owner for each in noted([first["request_id"], following["request_id"]]).values()] == [11, 11]


def test_no_answer_of_a_merged_session_outlives_the_users_erasure(folder):
    def flush():
        client.portal.call(client.service.outcomes.flush, time.monotonic())

    with serving(folder) as client:
        send(client, {"session": "s", "item": 5})
        stored = post(client, "/v1/recommend", {"session": "s"})
        flush()
        waiting = post(client, "/v1/recommend", {"session": "s"})
        post(client, "/v1/users/merge", {"session": "s", "user": 10})
        own = post(client, "/v1/recommend", {"session": "s"})
        flush()
        noted = client.service.histories.store.noted
        assert noted([stored["request_id"]])[stored["request_id"]].owner == 10
        client.delete("/v1/users/10").raise_for_status()
        assert [not noted([each["request_id"]]) for each in (stored, waiting, own)] == [True, True, False]


def test_a_model_written_with_a_tombstone_at_hand_is_not_hidden_by_it(folder, tmp_path):
    retriever = Retriever.load(folder)
    replace(retriever, metadata=retriever.metadata | {"erased_until": DAY}).save(tmp_path / "later")
    snapshot = open_snapshot(tmp_path / "later")
    assert [snapshot.hides(erased) for erased in (None, DAY - 1, DAY, DAY + 1)] == [False, False, False, True]
    assert open_snapshot(folder).hides(DAY)


@pytest.mark.parametrize(("is_erased", "has_events"), [(True, True), (False, True), (False, False)])
def test_no_page_follows_an_erased_user_or_a_merged_session(folder, is_erased, has_events):
    with serving(folder) as client:
        if has_events:
            send(client, {"session": "s", "item": 5})
        who = {"user": 11} if is_erased else {"session": "s"}
        pages = [post(client, "/v1/recommend", who | {"k": 2, "pages": True})]
        for _ in range(2):
            pages.append(post(client, "/v1/recommend", {"cursor": pages[-1]["cursor"], "k": 2}))
        if is_erased:
            client.delete("/v1/users/11").raise_for_status()
        else:
            post(client, "/v1/users/merge", {"session": "s", "user": 11})
        for page in pages:
            assert post(client, "/v1/recommend", {"cursor": page["cursor"]}, 410)["error"]["field"] == "cursor"


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("/v1/users/%FF", "id"),
        ("/v1/users/a%ED%A0%80", "id"),
        ("/v1/items/%FF", "id"),
        ("/v1/users/s?session=yes", "session"),
    ],
)
def test_a_malformed_address_erases_nobody(folder, address, field):
    with serving(folder) as client:
        answer = client.delete(address)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
        assert client.service.histories.store.erased() == {}


@pytest.mark.parametrize("query", ["user=%FF", "history=%ED%A0%80", "user=7&%FF=1"])
def test_parameters_that_are_no_text_ask_for_nobody(folder, query):
    with serving(folder) as client:
        answer = client.get(f"/?{query}")
        assert (answer.status_code, "not UTF-8" in answer.json()["error"]["message"]) == (422, True)


@pytest.mark.parametrize("user", [str(2**63), str(2**64 - 1), "9" * 19, "1" + "0" * 40, "-" + str(2**63 + 1)])
def test_numbers_beyond_64_bits_are_text(folder, user):
    with serving(folder) as client:
        post(client, "/v1/events", {"events": [{"user": user, "item": 5}]})
        assert len(client.get(f"/v1/users/{user}/history").json()["events"]) == 1
        assert client.delete(f"/v1/users/{user}").json()["events"] == 1
