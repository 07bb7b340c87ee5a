"""New items in a running service: found once their PUT is answered, stored, limited in number, erased."""

import json
import threading
from contextlib import closing

import numpy as np
import pytest

from beamwood.cli.main import main
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.serve.items.learned import read_learned
from beamwood.serve.settings import Limits
from beamwood.serve.store.open import open_store
from beamwood.serve.store.sqlite import SqliteStore
from bounded import joined
from new_items import WIDE, answered, ask, ids, known, put
from retrieval_cases import retriever_of, tree_searcher, vector_searcher
from served import NUM_ITEMS, post, saved, serving, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model", text=True)


@pytest.fixture
def client(folder):
    with serving(folder[0], by_category=True, **WIDE) as client:
        yield client


def test_a_new_item_ranks_next_to_its_similar_items(client, folder):
    twin, other, third = known(folder, 3, 4, 5)
    done = put(client, {"item": "new-1", "similar": [twin]}, {"item": "new-2", "category": "c1"}, {"item": "new-3"})
    assert [(each["item"], each["source"]) for each in done["items"]] == [
        ("new-1", "similar"),
        ("new-2", "category"),
        ("new-3", "none"),
    ]
    items = {each["item"]: each for each in answered(client, history=[other, third])}
    assert {"new-1", "new-2"} <= set(items)
    assert items["new-1"]["score"] == pytest.approx(items[twin]["score"], rel=1e-5)
    assert items["new-1"]["source"] == "new_item"
    assert items[twin]["source"] == "model"
    assert "new-2" in ids(client, history=[other], filter={"category": ["c1"]})
    assert ids(client, history=[other], filter={"items": ["new-3"]}) == ["new-3"]
    assert "new-1" not in ids(client, history=[other, "new-1"])
    listed = ask(client, "GET", "/v1/items")["items"]
    assert {each["item"]: each["shown"] for each in listed}["new-1"] >= 1


def test_new_items_have_at_most_a_share_of_an_answer(folder):
    twins = known(folder, *range(30))
    with serving(folder[0]) as client:
        put(client, *({"item": f"new-{at}", "similar": [twin]} for at, twin in enumerate(twins)))
        alone = [item["source"] for item in answered(client, history=known(folder, 60), k=20)]
        assert len(alone) == 20
        assert 0 < alone.count("new_item") <= 2
        only = {"items": ["new-1", "new-2", "new-3", *twins[:2]]}
        filtered = answered(client, history=known(folder, 60), k=5, filter=only)
        assert len(filtered) == 5, "if nothing else is allowed, new items fill the list"
        for source in ("model", "new_item"):
            scores = [each["score"] for each in filtered if each["source"] == source]
            assert scores == sorted(scores, reverse=True)
        assert alone[:9] == ["model"] * 9, "known items have the first positions"


@pytest.mark.parametrize("rule", [{"max_per_category": 30}, {"diversity": 0.3}])
def test_new_items_have_at_most_a_share_under_rules_too(folder, rule):
    twins = known(folder, *range(30))
    with serving(folder[0]) as client:
        new = [{"item": f"new-{at}", "similar": [twin], "category": "c1"} for at, twin in enumerate(twins)]
        put(client, *new, {"item": "launch", "category": "c2", "fields": {"price": 7.25}})

        def sources(**more):
            found = answered(client, **({"history": known(folder, 60), "k": 20} | rule | more))
            assert len({each["item"] for each in found}) == len(found)
            return [each["source"] for each in found]

        alone = sources()
        assert len(alone) == 20
        assert 0 < alone.count("new_item") <= 2
        only = {"items": ["new-1", "new-2", "new-3", *twins[:2]]}
        assert sorted(sources(k=5, filter=only)) == ["model"] * 2 + ["new_item"] * 3
        promoted = sources(promote=[{"filter": {"where": {"price": 7.25}}, "share": 0.05}])
        assert (len(promoted), promoted.count("promoted")) == (20, 1)
        assert promoted.count("new_item") <= 2


def test_where_a_filter_leaves_less_than_k_new_items_are_answered_too(folder):
    (old,) = known(folder, 7)
    with serving(folder[0]) as client:
        put(client, {"item": "fresh", "similar": [old]}, {"item": "bare"})
        assert set(ids(client, history=[], filter={"items": ["fresh", old]}, k=5)) == {"fresh", old}
        assert set(ids(client, history=[], filter={"items": ["fresh", "bare", old]}, k=5)) == {"fresh", "bare", old}


def test_items_are_hidden_shown_changed_and_erased(client, folder):
    twin, other = known(folder, 3, 4)
    put(client, {"item": "new-1", "similar": [twin]})
    hide = {"clear": ["new-1", twin]}
    assert ask(client, "PUT", "/v1/items/availability", hide)["changed"] == 2
    assert not {"new-1", twin} & set(ids(client, history=[other]))
    assert post(client, "/v1/recommend", {"history": [twin], "k": 3})["history_used"] == 1, "the history keeps it"
    assert ask(client, "PUT", "/v1/items/availability", {"set": [twin, "new-1"]})["changed"] == 2
    assert {"new-1", twin} <= set(ids(client, history=[other]))
    ask(client, "PATCH", "/v1/items/new-1", {"available": False})
    assert "new-1" not in ids(client, history=[other])
    for gone in ("new-1", twin):
        assert ask(client, "DELETE", f"/v1/items/{gone}")["changed"] == 1
        assert gone not in ids(client, history=[other])
        assert post(client, "/v1/recommend", {"history": [gone, other]})["unknown_items"] == [gone]
        ask(client, "DELETE", f"/v1/items/{gone}", status=404)
    assert ask(client, "GET", "/v1/items")["items"] == []
    put(client, {"item": "new-1", "similar": [other]})
    assert "new-1" in ids(client, history=known(folder, 7)), "an erased item may be added again"


def test_hidden_items_are_omitted_even_if_a_filter_names_them(client, folder):
    twin, other, third = known(folder, 3, 4, 5)
    put(client, {"item": "new-1", "similar": [twin]})
    asked = {"history": [other], "filter": {"items": [twin, "new-1", third]}}
    assert set(ids(client, **asked)) == {twin, "new-1", third}
    ask(client, "PUT", "/v1/items/availability", {"clear": ["new-1", twin]})
    assert ids(client, **asked) == [third]
    narrow = asked["filter"] | {"where": {"category": {"missing": False}}}
    assert not {"new-1", twin} & set(ids(client, **asked | {"filter": narrow}))


def test_a_known_item_is_erased_although_a_new_one_is_like_it(client, folder):
    twin, other, third = known(folder, 3, 4, 5)
    put(client, {"item": "new-1", "similar": [twin, other]}, {"item": "new-2", "similar": [twin]})
    assert ask(client, "DELETE", f"/v1/items/{twin}")["changed"] == 1
    found = ids(client, history=[third], k=NUM_ITEMS)
    assert twin not in found
    assert "new-1" in found
    refused = put(client, {"item": twin, "similar": [other]}, status=409)["error"]["message"]
    assert "was fitted and then erased, for good" in refused
    put(client, {"item": "new-3", "similar": [other]})
    assert "new-3" in ids(client, history=[third], k=NUM_ITEMS)


def test_invalid_items_are_refused_and_change_nothing(client, folder):
    twin = known(folder, 3)[0]
    before = client.service.models.current
    for item, status, code in (
        ({"item": twin}, 409, "conflict"),
        ({"item": "new-1", "similar": ["nobody"]}, 422, "invalid_request"),
        ({"item": 7}, 422, "invalid_request"),
        ({"item": "new-1", "fields": {"price": "dear"}}, 422, "invalid_request"),
        ({"item": "new-1", "colour": "red"}, 422, "invalid_request"),
    ):
        assert put(client, item, status=status)["error"]["code"] == code
    assert put(client, status=422)["error"]["field"] == "items"
    twice = put(client, {"item": "new-1", "similar": [twin]}, {"item": "new-1", "category": "c1"}, status=422)["error"]
    assert "items has 'new-1' more than once" in twice["message"]
    both = ask(client, "PUT", "/v1/items/availability", {"set": [twin], "clear": [twin]}, 422)["error"]
    assert "is in set and in clear" in both["message"]
    ask(client, "PATCH", "/v1/items/nobody", {"available": True}, 404)
    fitted = ask(client, "PATCH", f"/v1/items/{twin}", {"available": False}, 409)["error"]
    assert "/v1/items/availability" in fitted["message"]
    ask(client, "PUT", "/v1/items/availability", {"set": ["nobody"]}, 404)
    assert client.service.models.current is before


def test_lists_say_which_items_are_new(client, folder):
    twin, other = known(folder, 3, 4)
    put(client, {"item": "new-1", "similar": [twin]})
    scored = post(client, "/v1/score", {"history": [other], "items": [twin, "new-1"]})["items"]
    assert {each["item"]: each["source"] for each in scored} == {twin: "model", "new-1": "new_item"}
    alike = post(client, "/v1/similar", {"item": twin, "k": 3, "by": "vectors"})["items"]
    assert [each["source"] for each in alike if each["item"] == "new-1"] == ["new_item"]


def test_nothing_is_similar_to_an_item_without_a_place(client, folder):
    twin = known(folder, 3)[0]
    put(client, {"item": "new-1"}, {"item": "new-2", "similar": [twin]})
    for by in ("model", "vectors", "tree"):
        assert post(client, "/v1/similar", {"item": "new-1", "k": 3, "by": by})["items"] == []
        one, both = (
            post(client, "/v1/similar", {"items": items, "k": 3, "by": by})["items"]
            for items in (["new-2"], ["new-1", "new-2"])
        )
        assert len(one) == 3
        assert [each["score"] for each in one] == pytest.approx([each["score"] for each in both])


def test_the_id_of_an_item_that_the_folder_erased_is_taken(folder, tmp_path):
    (erased,) = known(folder, 3)
    folder[1].without_items([erased]).save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        assert "was fitted" in put(client, {"item": erased}, status=409)["error"]["message"]
        assert [each["source"] for each in put(client, {"item": "new-1"})["items"]] == ["none"]


def test_an_erased_item_is_removed_from_all_histories(folder):
    retriever = folder[1]
    row = int(np.argmax(retriever.histories.lengths))
    (user,) = retriever.users.decode(np.array([row]))
    own = retriever.items.decode(retriever.histories[row])
    left = [item for item in own if item != own[-1]]
    with serving(folder[0]) as client:
        ask(client, "DELETE", f"/v1/items/{own[-1]}")
        assert ask(client, "GET", f"/v1/users/{user}/history")["model"] == left
        assert ids(client, user=user) == ids(client, history=left)
        given = known(folder, *range(20, 40))
        scores = [
            {each["item"]: each["score"] for each in post(client, "/v1/score", {"items": given} | who)["items"]}
            for who in ({"user": user}, {"history": left})
        ]
        assert scores[0] == scores[1]


def test_stored_events_of_erased_items_are_in_no_history_until_an_item_comes_again(client, folder):
    fitted, other = known(folder, 3, 4)
    put(client, {"item": "new-1"})
    post(client, "/v1/events", {"events": [{"user": "u", "item": each} for each in (fitted, "new-1", other, "new-1")]})

    def history(**more):
        told = client.get("/v1/users/u/history", params=more).json()
        return [each["item"] for each in told["events"]], told.get("next")

    assert history() == ([fitted, "new-1", other, "new-1"], None)
    for item in (fitted, "new-1"):
        ask(client, "DELETE", f"/v1/items/{item}")
    assert history() == ([other], None)
    first, following = history(limit=2)
    assert (first, history(after=following)) == ([], ([other], None))
    put(client, {"item": "new-1"})
    assert history() == (["new-1", other, "new-1"], None)


def test_items_that_come_and_go_take_no_room(client, folder, monkeypatch):
    monkeypatch.setattr("beamwood.retrieval.new_items.extended_tree.MOST_BESIDE", 2)
    free = int(np.count_nonzero(folder[1].searcher.tree.item_of_leaf < 0))
    for number in range(0, free + 10, 5):
        names = [f"new-{each}" for each in range(number, number + min(5, free + 2))]
        put(client, *({"item": each, "similar": known(folder, 3)} for each in names))
        for each in names:
            ask(client, "DELETE", f"/v1/items/{each}")
    assert ask(client, "GET", "/v1/items")["items"] == []


def test_ids_in_addresses_may_have_slashes(client, folder):
    put(client, {"item": "a/b?", "similar": known(folder, 3)})
    ask(client, "PATCH", "/v1/items/a%2Fb%3F", {"available": False})
    assert ask(client, "GET", "/v1/items")["items"][0]["available"] is False
    ask(client, "DELETE", "/v1/items/a%2Fb%3F")
    assert ask(client, "GET", "/v1/items")["items"] == []


def test_first_events_place_a_new_item(client, folder):
    near, other = known(folder, 3, 4)
    put(client, {"item": "new-1"})
    for user in range(3):
        events = [{"user": f"u{user}", "item": item, "time": at} for at, item in enumerate([near, "new-1"], start=9)]
        post(client, "/v1/events", {"events": events})
    wait_until(lambda: ask(client, "GET", "/v1/items")["items"][0]["source"] == "events")
    items = {each["item"]: each["score"] for each in answered(client, history=[other])}
    assert items["new-1"] == pytest.approx(items[near], rel=1e-5)


@pytest.mark.parametrize(
    "searcher",
    [
        lambda: vector_searcher(NUM_ITEMS),
        lambda: PopularitySearcher(np.arange(NUM_ITEMS)),
        lambda: Blend((Part(vector_searcher(NUM_ITEMS)), Part(tree_searcher(NUM_ITEMS), 0.5)), seen_weight=0.0),
    ],
    ids=["vectors", "popularity", "blend"],
)
def test_every_kind_of_model_accepts_new_items(searcher, tmp_path):
    retriever = retriever_of(searcher(), text=True)
    retriever.save(tmp_path / "model")
    twin, other, third = retriever.items.decode(np.array([3, 4, 5]))
    with serving(tmp_path / "model", by_category=True, **WIDE) as client:
        done = put(client, {"item": "new-1", "similar": [twin]}, {"item": "new-2", "category": "c1"}, {"item": "new-3"})
        assert [each["source"] for each in done["items"]] == ["similar", "category", "none"]
        found = {each["item"]: each["score"] for each in answered(client, history=[other, third])}
        assert found["new-1"] == pytest.approx(found[twin], rel=1e-5)
        assert {"new-2", "new-3"} <= set(found)
        ask(client, "DELETE", "/v1/items/new-1")
        assert "new-1" not in ids(client, history=[other])


def test_a_category_places_new_items_if_enabled(folder):
    twin, other, _ = known(folder, 3, 4, 5)
    body = {"item": "new-1", "category": "c1"}
    with serving(folder[0], **WIDE) as client:
        assert put(client, body, {"item": "new-2", "similar": [twin]})["items"][0]["source"] == "none"
        found = ids(client, history=[other])
        # With k as large as the catalogue, items without a mixture come last.
        assert found.index("new-2") < found.index("new-1") == len(found) - 1
        assert "new-1" in ids(client, history=[other], filter={"category": ["c1"]})
        best = ids(client, history=[other], k=len(found) - 1)
        assert "new-1" not in best
    with serving(folder[0], by_category=True, **WIDE) as client:
        assert put(client, body)["items"][0]["source"] == "category"
        found = ids(client, history=[other])
        assert found.index("new-1") < len(found) - 1
        alike = [each["item"] for each in answered(client, history=[other], filter={"category": ["c1"]})]
        assert alike[-1] != "new-1"


def test_an_answer_with_new_items_is_explained_later(folder, tmp_path, capsys):
    """The explanation has the original answer, without items learned later."""
    other, third = known(folder, 4, 5)
    store = f"sqlite:{tmp_path / 'events.db'}"
    with serving(folder[0], store=store, limits=Limits(new_item_share=0.5)) as client:
        twin = answered(client, history=[other])[0]["item"]
        put(client, *({"item": f"new-{at}", "similar": [twin]} for at in range(9)))
        answer = post(client, "/v1/recommend", {"history": [other], "k": 8})
        assert [each["source"] for each in answer["items"]].count("new_item") == 4
        put(client, {"item": "new-1", "similar": [third]}, {"item": "new-10", "similar": [twin]})
        ask(client, "DELETE", "/v1/items/new-0")
    assert main(["explain", answer["request_id"], "--store", store, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reproduced"] is True
    assert [each["item"] for each in told["items"]] == [each["item"] for each in answer["items"]]
    assert all("explain" in each for each in told["items"])


def test_an_answer_whose_items_the_store_no_longer_has_is_explained_by_the_latest(folder, tmp_path, capsys):
    """A shop changes what is available all day long."""
    (other,) = known(folder, 4)
    store, names = f"sqlite:{tmp_path / 'events.db'}", []
    with serving(folder[0], store=store) as client:
        found = ids(client, history=[other], k=8)
        one, two, *_ = (each for each in folder[1].items.ids if each not in found)
        for hidden in (one, found[0], two):
            ask(client, "PUT", "/v1/items/availability", {"clear": [hidden]})
            names.append(post(client, "/v1/recommend", {"history": [other], "k": 3})["request_id"])
    with closing(open_store(store)) as opened:
        for name in names[:2]:
            opened.put(f"catalogue@{_slot(opened, name)}", "{}")
    told = []
    for name in names:
        assert main(["explain", name, "--store", store, "--json"]) == 0
        told.append(json.loads(capsys.readouterr().out)["reproduced"])
    assert told == [False, True, True]


def _slot(store, request_id):
    return json.loads(store.noted([request_id])[request_id].text)["learned"][:2]


def test_learned_items_survive_a_restart_and_a_model_load(folder, tmp_path):
    twin, other, hidden, erased = known(folder, 3, 4, 5, 6)
    store = {"store": f"sqlite:{tmp_path / 'events.db'}"} | WIDE
    with serving(folder[0], **store) as client:
        put(client, {"item": "new-1", "similar": [twin]})
        ask(client, "PUT", "/v1/items/availability", {"clear": [hidden]})
        ask(client, "DELETE", f"/v1/items/{erased}")
        before = ids(client, history=[other])
    models = tmp_path / "models"
    models.mkdir()
    folder[1].save(models / "same")
    knows = folder[1].with_items([])
    knows.save(models / "other")
    with serving(folder[0], models_dir=models, **store) as client:
        wait_until(lambda: "new-1" in ids(client, history=[other]))
        assert ids(client, history=[other]) == before
        post(client, "/v1/models/load", {"path": "same"})
        assert ids(client, history=[other]) == before
        assert not {hidden, erased} & set(before)


def test_searches_continue_while_items_are_added(client, folder):
    """A published item does not break an answer in progress."""
    history, failed, done = known(folder, 4, 9), [], threading.Event()

    def search():
        while not done.is_set():
            items = answered(client, history=history)
            if len({each["item"] for each in items}) != len(items) or not all(
                np.isfinite(each["score"]) for each in items
            ):
                failed.append(items)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for at in range(12):
            put(client, {"item": f"new-{at % 5}", "similar": known(folder, at, at + 20)})
    finally:
        done.set()
        joined(threads)
    assert not failed
    assert {f"new-{at}" for at in range(5)} <= set(ids(client, history=history))


@pytest.mark.parametrize("item", ["", "n" * 513, "a\0b"])
def test_an_id_that_no_event_can_have_is_refused(client, item):
    assert put(client, {"item": item}, status=422)["error"]["field"] == "items[0].item"


def test_the_store_keeps_one_document(folder, tmp_path):
    with serving(folder[0], store=f"sqlite:{tmp_path / 'events.db'}") as client:
        put(client, {"item": "new-1", "similar": known(folder, 3)})
    store = SqliteStore(tmp_path / "events.db")
    name, kept = read_learned(store, None)
    assert [*kept.items] == ["new-1"]
    assert read_learned(store, name) == (name, None)
    store.close()
