"""Items and users whose ids are dates or times: JSON has their text, which means the same in every request."""

import datetime as dt
import time
from dataclasses import replace

import polars as pl
import pytest

from beamwood.data import Vocabulary
from retrieval_cases import retriever_of, vector_searcher
from served import items_of, post, recommend, send, serving

COUNT = 30
DAYS = pl.Series([dt.date(2026, 1, 1) + dt.timedelta(days=n) for n in range(COUNT)])
IDS = {"date": DAYS, "time of a day": DAYS.cast(pl.Datetime("us")), "UTC": DAYS.cast(pl.Datetime("us", "UTC"))}


@pytest.fixture(params=IDS)
def client(request, tmp_path):
    ids = Vocabulary(IDS[request.param])
    replace(retriever_of(vector_searcher(COUNT)), items=ids, users=ids).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        yield client


def test_an_answer_followed_by_its_own_item_is_a_hit(client):
    answer = recommend(client, {"user": "2026-01-09", "k": 3})
    assert answer["history_used"] > 0
    event = {"user": "2026-01-09", "item": items_of(answer)[0], "request_id": answer["request_id"]}
    assert send(client, event)["unknown_items"] == []
    client.portal.call(client.service.outcomes.flush, time.monotonic() + 60)
    (group,) = client.get("/v1/experiments").json()["groups"]
    assert (group["hits"], group["misses"]) == (1, {})


def test_what_the_model_keeps_of_a_user_has_the_text_of_answers(client):
    ids = items_of(recommend(client, {"history": [], "k": COUNT}))
    assert len(ids) == COUNT
    kept = client.get(f"/v1/users/{sorted(ids)[8]}/history").json()["model"]
    assert kept
    assert set(kept) <= set(ids)
    assert f">{ids[0]}<" in client.get("/?find=2026").text


def test_the_page_shows_a_users_list(client):
    assert "this user took it" in client.get("/?user=2026-01-09").text


def test_new_items_are_known_by_their_text(client):
    new = recommend(client, {"history": [], "k": 1})["items"][0]["item"].replace("2026", "2031")
    client.put("/v1/items", json={"items": [{"item": new, "similar": ["2026-01-03"]}]}).raise_for_status()
    assert items_of(recommend(client, {"history": ["2026-01-03"], "filter": {"items": [new]}})) == [new]
    assert items_of(post(client, "/v1/score", {"history": ["2026-01-03"], "items": [new]})) == [new]
    (item,) = client.get("/v1/items").json()["items"]
    assert (item["item"], item["shown"]) == (new, 1)
