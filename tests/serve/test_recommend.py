"""Answers over HTTP equal those of the package, and errors are one sentence."""

import asyncio
import threading

import numpy as np
import pytest

from beamwood.serve.answer.cursor import cursor_of
from beamwood.serve.engine import Priority
from beamwood.serve.monitoring.log import RequestLog
from served import NUM_ITEMS, item_table, items_of, post, recommend, saved, serving, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    table = item_table(tmp_path_factory.mktemp("items") / "items.parquet", folder[1])
    with serving(folder[0], items=table) as client:
        yield client


def problem(client, body, status=422):
    error = recommend(client, body, status)["error"]
    assert set(error) <= {"code", "message", "field", "request_id", "retry_after_ms"}
    return error


def some(retriever, *places):
    return [retriever.items.decode(np.array([place]))[0] for place in places]


def cases(retriever):
    history = some(retriever, 3, 14, 15, 9)
    return [
        ({"history": history}, {"histories": [history]}),
        ({"history": history, "k": 7, "exclude_seen": False}, {"histories": [history], "k": 7, "seen": "keep"}),
        ({"user": 11}, {"users": [11]}),
        (
            {"history": history, "exclude": some(retriever, 1, 2)},
            {"histories": [history], "exclude": some(retriever, 1, 2)},
        ),
        (
            {"history": history, "filter": {"category": ["c1", "c2"]}},
            {"histories": [history], "allowed": {"category": ["c1", "c2"]}},
        ),
        (
            {"history": history, "filter": {"all_of": ["c1", "c2"]}},
            {"histories": [history], "where": {"category": {"all_of": ["c1", "c2"]}}},
        ),
        (
            {"history": history, "filter": {"none_of": ["c1"], "where": {"price": {"lte": 20}}}},
            {"histories": [history], "where": {"all": [{"not": {"category": "c1"}}, {"price": {"lte": 20}}]}},
        ),
        (
            {"history": history, "filter": {"items": some(retriever, *range(30)), "where": {"stock": True}}},
            {"histories": [history], "allowed": some(retriever, *range(30)), "where": {"stock": True}},
        ),
        (
            {"history": history, "max_per_category": {"default": 2, "c3": 1}, "diversity": 0.3},
            {"histories": [history], "max_per_category": {"default": 2, "c3": 1}, "diversity": 0.3},
        ),
        (
            {"history": history, "promote": [{"filter": {"where": {"stock": True}}, "share": 0.2, "name": "sale"}]},
            {"histories": [history], "promote": [{"where": {"stock": True}, "share": 0.2, "name": "sale"}]},
        ),
    ]


@pytest.mark.parametrize("number", range(10))
def test_answers_are_those_of_the_package(client, folder, number):
    retriever = folder[1]
    body, asked = cases(retriever)[number]
    answer, expected = recommend(client, body), retriever.recommend(**{"k": 20, **asked})
    assert items_of(answer) == expected.item_ids[0]
    assert np.allclose([item["score"] for item in answer["items"]], expected.scores[0], rtol=1e-6)
    assert [item["rank"] for item in answer["items"]] == list(range(1, len(answer["items"]) + 1))
    assert answer["source"] == "model"
    assert answer["model"].startswith("tree-din@")
    assert answer["snapshot"] == 1
    if "filter" in body:
        assert answer["allowed"] >= len(answer["items"])
    if "promote" in body:
        assert [item.get("promotion") for item in answer["items"]] == expected.promotions[0]
        assert {item["source"] for item in answer["items"]} == {"model", "promoted"}


def test_events_extend_the_history_of_a_user(client, folder):
    retriever = folder[1]
    own = retriever.items.decode(retriever.histories[11])
    more = some(retriever, 40, 41)
    answer = recommend(client, {"user": 11, "events": more, "k": 5})
    assert items_of(answer) == retriever.recommend([[*own, *more]], 5).item_ids[0]
    assert answer["history_used"] == 4


def test_unknown_ids_are_listed_or_refused(client, folder):
    known = some(folder[1], 5)
    odd = ["no such", 10**30, -5, "5"]
    answer = recommend(client, {"history": [*odd, *known], "k": 3})
    assert answer["unknown_items"] == odd
    assert items_of(answer) == folder[1].recommend([known], 3).item_ids[0]
    error = problem(client, {"history": [*odd, *known], "on_unknown": "error"}, 404)
    assert error["code"] == "unknown_item"
    assert "'no such'" in error["message"]
    nobody = recommend(client, {"user": "nobody", "k": 3})
    assert nobody["unknown_user"]
    assert items_of(nobody) == folder[1].recommend([[]], 3).item_ids[0]
    assert problem(client, {"user": "nobody", "on_unknown": "error"}, 404)["code"] == "unknown_user"


def test_k_beyond_the_catalogue_gives_all(client):
    assert len(recommend(client, {"history": [], "k": 1000})["items"]) == NUM_ITEMS


def test_fields_are_those_of_the_table(client, folder):
    answer = recommend(client, {"history": [], "k": 4, "fields": ["title", "price", "since"]})
    frame = {row["title"]: row for row in client.service.models.current.fields.frame.iter_rows(named=True)}
    for item in answer["items"]:
        assert item["fields"]["title"] == f"Title of {item['item']}"
        assert item["fields"]["price"] == frame[item["fields"]["title"]]["price"]
        assert item["fields"]["since"].startswith("2026-")
    twice = recommend(client, {"history": [], "k": 4, "fields": ["title", "title"]})
    assert [item["fields"] for item in twice["items"]] == [
        {"title": item["fields"]["title"]} for item in answer["items"]
    ]
    error = problem(client, {"history": [], "fields": ["titel"]})
    assert error["field"] == "fields"
    assert "did you mean 'title'" in error["message"]


def test_effort_and_beam_width(client, folder):
    history = some(folder[1], 3, 14)
    wide = recommend(client, {"history": history, "beam_width": 60, "k": 5})
    assert wide["beam_width"] == 60
    assert not wide["degraded"]
    assert items_of(recommend(client, {"history": history, "effort": 1, "k": 5})) == items_of(
        recommend(client, {"history": history, "k": 5})
    )
    assert problem(client, {"history": history, "effort": 1, "beam_width": 9})["field"] == "effort"


def test_pages_never_repeat(client, folder):
    history = some(folder[1], 3, 14, 15)
    first = recommend(client, {"history": history, "k": 20, "pages": True, "filter": {"where": {"stock": True}}})
    whole = recommend(client, {"history": history, "k": 200, "filter": {"where": {"stock": True}}})
    shown, page = items_of(first), first
    while "cursor" in page:
        page = recommend(client, {"cursor": page["cursor"], "k": 15, "fields": ["title"]})
        assert page["items"][0]["rank"] == len(shown) + 1
        shown += items_of(page)
    assert shown == items_of(whole)
    assert len(set(shown)) == len(shown) > 20
    wrong = first["cursor"][:-3] + ("AAA" if not first["cursor"].endswith("AAA") else "BBB")
    # The last is of another version of this program, which has the same secret.
    for cursor in ("", "é", "A" * 10):
        assert problem(client, {"cursor": cursor})["field"] == "cursor"
    for cursor in (wrong, cursor_of(("other", 1), client.service.secret)):
        assert recommend(client, {"cursor": cursor}, 410)["error"]["field"] == "cursor"
    assert problem(client, {"cursor": first["cursor"], "user": 3})["field"] == "user"


def answers(client):
    """The counts of answers and of beam widths."""
    names = ("beamwood_answers_total{", "beamwood_beam_width_count")
    return [line for line in client.get("/metrics").text.splitlines() if line.startswith(names)]


def test_a_dry_run_checks_without_a_search(client):
    before = answers(client)
    answer = recommend(client, {"user": 11, "filter": {"category": ["c1"]}, "dry_run": True})
    assert answer["items"] == []
    assert answer["allowed"] > 0
    assert answer["history_used"] == 4
    assert problem(client, {"user": 11, "filter": {"category": ["c9"]}, "dry_run": True})["field"] == "filter.category"
    assert answers(client) == before


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({}, "user", "none is given"),
        ({"user": 1, "history": []}, "user", "2 are given"),
        ({"usr": 1}, "usr", "did you mean 'user'"),
        ({"user": 1, "k": 0}, "k", ">= 1"),
        ({"user": 1, "k": "5"}, "k", "must be int, not str"),
        ({"user": 1, "k": 1001}, "k", "above 1000"),
        ({"user": 1, "filter": {"categories": ["a"]}}, "filter.categories", "did you mean 'category'"),
        ({"user": 1, "filter": {"ids": [1]}}, "filter.ids", "did you mean 'items'"),
        ({"user": 1, "promote": [{"filter": {"zz": 1}}]}, "promote[0].filter.zz", "known: all_of"),
        ({"user": 1, "filter": {"category": ["c9"]}}, "filter.category", "category 'c9' is unknown"),
        ({"user": 1, "filter": {"where": {"prize": 3}}}, "filter.where", "did you mean 'price'"),
        ({"user": 1, "filter": {"where": {"price": {"lt": "x"}}}}, "filter.where", "numbers"),
        ({"user": 1, "filter": {"items": [1] * 10_001}}, "filter.items", "10000 at most"),
        ({"user": 1, "max_per_category": {"c9": 1}}, "max_per_category", "unknown"),
        ({"user": 1, "promote": [{"share": 0.2}]}, "promote[0].filter", "missing"),
        ({"user": 1, "promote": [{"filter": {}, "share": 0.2}]}, "promote[0].filter", "filter"),
        ({"user": 1, "diversity": 2}, "diversity", "<= 1"),
        ({"user": 1, "context": {"device": "tv"}}, "context", "context"),
        ({"history": [1] * 2001}, "history", "latest 2000"),
        ({"user": True}, "user", "bool"),
        ({"user": 1, "explain": "ful"}, "explain", "did you mean 'full'"),
        ({"user": 1, "on_unknown": "omit"}, "on_unknown", "known: error, ignore"),
    ],
)
def test_errors_name_the_fix(client, body, field, said):
    error = problem(client, body)
    assert error["code"] == "invalid_request"
    assert (error["field"], said in error["message"]) == (field, True), error


def test_malformed_bodies_are_refused(client):
    def status(content, kind="application/json"):
        answer = client.post("/v1/recommend", content=content, headers={"content-type": kind})
        return answer.status_code, answer.json()["error"]["code"]

    assert status(b"{") == status(b"\xff\xfe") == status(b'{"user": NaN}') == (400, "invalid_json")
    assert status(b'{"session": "\\ud800"}') == (400, "invalid_json")
    assert status(b'{"context": ' + b'{"a":' * 20_000) == (400, "invalid_json")
    assert status(b"[1]") == (422, "invalid_request")
    assert status(b"{}", "text/plain") == (415, "unsupported_media_type")
    assert status(b'{"user": 1, "session": "' + b"x" * 300_000 + b'"}') == (413, "too_large")
    nested = b'{"user": 1, "filter": {"where": ' + b'{"not": ' * 900 + b"{}" + b"}" * 900 + b"}}"
    assert status(nested)[0] in (400, 422)


def test_requests_have_ids(client):
    named = client.post("/v1/recommend", json={"user": 1}, headers={"x-request-id": "a-1"})
    assert named.headers["x-request-id"] == named.json()["request_id"] == "a-1"
    odd = client.post("/v1/recommend", json={"user": 1}, headers={"x-request-id": 'a b"<'})
    assert odd.headers["x-request-id"] == odd.json()["request_id"] != 'a b"<'


def test_unknown_addresses_are_refused(client):
    assert client.get("/v2/recommend").json()["error"]["code"] == "not_found"
    wrong = client.get("/v1/recommend")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
    assert client.post("/v1/items").headers["allow"] == "GET, HEAD, PUT"
    assert client.get("/v1/items/1").headers["allow"] == "DELETE, PATCH"
    assert client.get("/livez?x=1").status_code == 422
    behind = client.get("/livez/", follow_redirects=False, headers={"x-request-id": "r-1"})
    assert (behind.status_code, behind.json()["error"]["request_id"]) == (404, "r-1")
    assert behind.headers["x-request-id"] == "r-1"
    assert {each.headers["x-content-type-options"] for each in (wrong, behind)} == {"nosniff"}
    # They are counted, and not by path.
    counted = client.get("/metrics").text
    for code, reason in ((404, "not_found"), (405, "method_not_allowed")):
        assert f'beamwood_requests_total{{arm="",code="{code}",method="_OTHER",route="other"}}' in counted
        assert f'beamwood_rejected_total{{reason="{reason}"}}' in counted
    assert client.get("/readyz").json() == {"status": "ready"}


def test_batches(client, folder):
    history = some(folder[1], 3, 14)
    rows = post(client, "/v1/recommend/batch", {"requests": [{"history": history}, {"k": 3}, {"user": 11, "k": 3}]})
    rows = rows["rows"]
    assert items_of(rows[0]["ok"]) == items_of(recommend(client, {"history": history}))
    assert rows[1]["error"]["code"] == "invalid_request"
    assert rows[1]["error"]["request_id"].endswith(".1")
    assert items_of(rows[2]["ok"]) == items_of(recommend(client, {"user": 11, "k": 3}))
    for wrong in ([], [{"user": 1}] * 257):
        assert post(client, "/v1/recommend/batch", {"requests": wrong}, 422)["error"]["field"] == "requests"
    inner = post(client, "/v1/recommend/batch", {"requests": [{}, {"explain": "ful"}]}, 422)["error"]
    assert (inner["field"], "did you mean 'full'" in inner["message"]) == ("requests[1].explain", True)


def test_failed_rows_are_counted_and_logged(folder, monkeypatch):
    """A service too busy for batches would seem to answer all of them."""
    lines = []
    monkeypatch.setattr(RequestLog, "write", lambda self, line: lines.append(line))
    with serving(folder[0], log="json") as client:
        before = client.get("/page/live").json()
        post(client, "/v1/recommend/batch", {"requests": [{"k": 3}, {"user": 11}, {"user": 11, "explain": "full"}]})
        after, text = client.get("/page/live").json(), client.get("/metrics").text
    assert 'beamwood_rejected_total{reason="invalid_request"} 2.0' in text
    assert [(line["rows"], line["failed"]) for line in lines if "rows" in line] == [(3, 2)]
    # The first look is answered too.
    assert (after["answered"], after["refused"]) == (before["answered"] + 2, before["refused"] + 2)


def test_the_rows_of_a_failed_batch_are_given_up(client, monkeypatch):
    begun = []

    async def answer(call, body, *more, **other):
        begun.append(body)
        if len(begun) == 1:
            raise RuntimeError
        await asyncio.sleep(0.01)

    monkeypatch.setattr("beamwood.serve.routes.recommend.answer_one", answer)
    post(client, "/v1/recommend/batch", {"requests": [{"user": 1}] * 256}, 500)
    client.portal.call(asyncio.sleep, 0.5)
    assert len(begun) < 256


def test_text_ids(tmp_path):
    folder, retriever = saved(tmp_path / "model", text=True)
    history = some(retriever, 3, 14)
    with serving(folder) as client:
        assert items_of(recommend(client, {"history": history})) == retriever.recommend([history]).item_ids[0]
        assert recommend(client, {"history": [7, *history]})["unknown_items"] == [7]


def asked_by_many(client, bodies, count=12):
    """The items of each body, with this many requests at once."""
    found = [None] * len(bodies)

    def ask(start):
        for at in range(start, len(bodies), count):
            found[at] = recommend(client, bodies[at])["items"]

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_short_searches_have_the_same_answers_alone_concurrently_and_in_a_batch(folder):
    rng = np.random.default_rng(5)
    histories = [rng.integers(0, NUM_ITEMS, rng.integers(0, 12)) for _ in range(60)]
    bodies = [{"history": folder[1].items.decode(row), "k": 1 + at % 3} for at, row in enumerate(histories)]
    with serving(folder[0]) as client:
        service, ran = client.service, []
        alone = [recommend(client, body)["items"] for body in bodies]
        engine, steps = service.engine, service.engine.run_in_steps
        run_of, engine.seconds = engine.run, 0.0005

        def noted(work, *, priority=Priority.CALLER, brief, **more):
            ran.append((priority, brief))
            return run_of(work, priority=priority, brief=brief, **more)

        def noted_steps(work, **more):
            ran.append((Priority.CALLER, True))
            return steps(work, **more)

        engine.run, engine.run_in_steps = noted, noted_steps
        # Another request is in progress all the time.
        service.admission.enter()
        assert asked_by_many(client, bodies) == alone
        service.admission.leave()
        assert ran == [(Priority.CALLER, True)] * len(bodies)
        rows = post(client, "/v1/recommend/batch", {"requests": bodies})["rows"]
        assert [row["ok"]["items"] for row in rows] == alone
        assert ran[len(bodies) :] == [(Priority.BATCH, True)] * len(bodies)
        assert service.engine.running == service.admission.before == 0


def test_a_short_search_does_not_wait_for_long_ones(folder):
    body, held = {"history": some(folder[1], 3, 14)}, threading.Event()
    with serving(folder[0]) as client:
        engine = client.service.engine
        work_of, engine.seconds = engine._ran, 0.0005

        def holding(work, *more):
            if threading.current_thread() in engine._threads:
                held.wait(60)
            return work_of(work, *more)

        engine._ran = holding
        long = [threading.Thread(target=recommend, args=(client, body | {"explain": "scores"})) for _ in range(2)]
        for thread in long:
            thread.start()
        wait_until(lambda: engine.long == 2)
        assert items_of(recommend(client, body))
        assert engine.long == 2, "they still wait"
        held.set()
        for thread in long:
            thread.join(60)
        assert engine.long == 0
