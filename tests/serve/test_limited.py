"""No valid request costs far more than others: limits by field, and the deadline between the steps of a search."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.rules import Caps
from beamwood.serve.answer import limited
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.limited import check_limits
from beamwood.serve.answer.snapshot import open_snapshot
from beamwood.serve.http.route import Call
from beamwood.serve.messages import Filter, Promote, Recommend
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits
from served import post, recommend, saved, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("limited") / "model")[0]


@pytest.fixture(scope="module")
def client(folder):
    with serving(folder) as client:
        yield client


def prices(count):
    return [{"price": {"lte": number}} for number in range(count)]


def nested(depth):
    where = {"stock": True}
    for _ in range(depth):
        where = {"not": where}
    return where


def promoted(count, where=None):
    return [{"filter": {"where": where or {"stock": True}}, "share": 0.01}] * count


FAR = "more than 100 conditions"


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"filter": {"where": {"any": prices(100)}}}, "filter.where", FAR),
        ({"filter": {"where": nested(100)}}, "filter.where", FAR),
        ({"filter": {"where": {"price": {"in": [1] * 10_001}}}}, "filter.where", "a list of 10001 values; give 10000"),
        ({"filter": {"where": {"price": [1] * 10_001}}}, "filter.where", "10001"),
        ({"filter": {"category": ["c1"] * 10_001}}, "filter.category", "10001"),
        ({"filter": {"none_of": ["c1"] * 10_001}}, "filter.none_of", "10001"),
        ({"filter": {"all_of": ["c1"] * 101}}, "filter.all_of", FAR),
        ({"filter": {"where": {"category": {"all_of": ["c1"] * 101}}}}, "filter.where", FAR),
        ({"promote": promoted(11)}, "promote", "11 promotions; give 10"),
        ({"promote": promoted(3, {"all": prices(33)})}, "promote[2].filter.where", FAR),
        ({"filter": {"where": {"all": prices(98)}}, "promote": promoted(2)}, "promote[1].filter.where", FAR),
    ],
)
def test_what_would_take_long_is_refused_by_its_field(client, body, field, said):
    error = recommend(client, {"history": []} | body, 422)["error"]
    assert (error["code"], error["field"], said in error["message"]) == ("invalid_request", field, True), error


def test_what_is_within_the_limits_is_answered(client):
    where = {"all": [{"any": prices(90)}, {"brand": ["brand 1"] * 5000}, nested(3)]}
    assert recommend(client, {"history": [], "k": 90, "filter": {"where": where}})["allowed"] > 0
    assert recommend(client, {"history": [], "k": 90, "promote": promoted(10)})["items"]


@pytest.mark.parametrize(
    "where",
    [
        {f"c{number}": 1 for number in range(5000)},
        {f"c{number}": {} for number in range(5000)},
        {"price": {f"lt{number}": 1 for number in range(5000)}},
        {"price": {"all_of": []} | {f"lt{number}": 1 for number in range(5000)}},
        {"any": [{"price": {f"lt{number}": 1 for number in range(99)}}] * 50},
    ],
)
def test_refused_conditions_are_not_all_counted(client, monkeypatch, where):
    """They are counted on the event loop."""
    counts, counted = [], limited._count
    monkeypatch.setattr(limited, "_count", lambda *given: counts.append(given) or counted(*given))
    error = recommend(client, {"user": 11, "filter": {"where": where}}, 422)["error"]
    assert (error["field"], FAR in error["message"]) == ("filter.where", True)
    assert len(counts) <= 200


def test_limits_hold_for_rows_similar_items_and_the_page(client):
    far = {"where": {"any": prices(100)}}
    rows = post(client, "/v1/recommend/batch", {"requests": [{"history": [], "filter": far}]})["rows"]
    assert rows[0]["error"]["field"] == "filter.where"
    item = recommend(client, {"history": [], "k": 1})["items"][0]["item"]
    assert post(client, "/v1/similar", {"item": item, "filter": far}, 422)["error"]["field"] == "filter.where"
    page = client.get("/", params={"user": "11", "where": " or ".join(f"price<={n}" for n in range(100))})
    assert (page.status_code, FAR in page.text) == (422, True)


def test_rows_are_not_explained_in_full(client):
    requests = [{"history": [], "explain": explain} for explain in ("full", "scores")]
    rows = post(client, "/v1/recommend/batch", {"requests": requests})["rows"]
    assert rows[0]["error"]["field"] == "explain"
    assert rows[1]["ok"]["explain"]["kind"] == "tree-din"


def test_a_beam_is_limited_beyond_the_catalogue(client):
    def check(width, num_items):
        check_limits(Recommend(history=[], beam_width=width), num_items, Limits())

    check(2000, 10**6)
    check(10**9, 2000)
    with pytest.raises(Problem, match="beam_width=2001 is above 2000") as refused:
        check(2001, 10**6)
    assert refused.value.field == "beam_width"
    assert recommend(client, {"history": [], "beam_width": 10**9})["beam_width"] == 90


@pytest.mark.parametrize(
    "more",
    [
        {"max_per_category": 1},
        {"promote": [Promote(filter=Filter(where={"stock": True}), share=0.2)]},
        {"explain": "full"},
    ],
)
def test_a_search_of_many_steps_ends_at_its_deadline(folder, more):
    snapshot, body = open_snapshot(folder), Recommend(history=[], **more)

    def ask(deadline):
        return recommended(snapshot, body, StoredHistory(), Limits(), request_id="", deadline=deadline)

    assert ask(time.monotonic() + 60)[0].items
    with pytest.raises(Problem, match="was not ready in time") as late:
        ask(time.monotonic() - 1)
    assert late.value.code == "deadline"


def test_the_deadline_counts_from_the_arrival():
    service = SimpleNamespace(settings=SimpleNamespace(timeout=0.5))
    call = Call(service, None, "", began=100.0)
    assert (call.deadline(None), call.deadline(None, 4), call.deadline(250, 4)) == (100.5, 102.0, 100.25)


def test_the_deadline_of_a_body_reaches_its_search(client, monkeypatch):
    given, plain = [], Call.run

    async def run(call, work, *, deadline, **more):
        given.append(round(deadline - call.began, 6))
        # A recommendation looks at it between its steps too.
        assert getattr(work, "deadline", deadline) == deadline
        return await plain(call, work, deadline=deadline, **more)

    monkeypatch.setattr(Call, "run", run)
    item = recommend(client, {"history": [], "k": 1, "deadline_ms": 40_001})["items"][0]["item"]
    post(client, "/v1/similar", {"item": item, "deadline_ms": 40_002})
    post(client, "/v1/score", {"history": [], "items": [item], "deadline_ms": 40_003})
    post(client, "/v1/recommend/batch", {"requests": [{"history": [], "deadline_ms": 40_004}, {"history": []}]})
    assert given == [40.001, 40.002, 40.003, 40.004, 2 * client.service.settings.timeout]


def test_paths_count_each_node_once(client, monkeypatch):
    counted, plain = [], LabelColumn.most_common
    monkeypatch.setattr(LabelColumn, "most_common", lambda *given: counted.append(1) or plain(*given))
    answer = recommend(client, {"history": [], "k": 90, "explain": "full"})
    nodes = {(step["level"], step["node"]) for item in answer["items"] for step in item["explain"]["path"]}
    assert len(counted) == len(nodes)
    assert all(step["items"] > 0 for item in answer["items"] for step in item["explain"]["path"])


def test_a_label_that_is_repeated_counts_once(client, monkeypatch):
    asked, plain = [], LabelColumn.items_of

    def items_of(column, codes):
        asked.append(len(list(codes)))
        return plain(column, codes)

    monkeypatch.setattr(LabelColumn, "items_of", items_of)
    many = recommend(client, {"history": [], "filter": {"category": ["c1", "c2"] * 1000}})
    assert asked == [2]
    assert many["items"] == recommend(client, {"history": [], "filter": {"category": ["c1", "c2"]}})["items"]


def test_errors_do_not_repeat_a_long_word(client):
    for body in ({"x" * 100_000: 1}, {"filter": {"category": ["x" * 100_000]}}, {"fields": ["x" * 100_000]}):
        error = recommend(client, {"history": []} | body, 422)["error"]
        assert len(error["message"]) + len(error["field"]) < 5000
        assert "xxx" in error["message"]


def test_caps_by_name_are_not_counted_for_each_item(client, monkeypatch):
    counted, plain = [], Caps.full
    monkeypatch.setattr(Caps, "full", lambda *given: counted.append(1) or plain(*given))
    answer = recommend(client, {"history": [], "k": 60, "max_per_category": {f"c{n}": 12 + n for n in range(5)}})
    assert len(answer["items"]) > 20
    assert len(counted) < 10
    assert np.all(np.diff([item["score"] for item in answer["items"]]) <= 0)
