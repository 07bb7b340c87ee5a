"""After any sequence of changes no answer has a hidden or erased item, or is by what an erased user did."""

import numpy as np
import pytest

from beamwood.cli.main import main
from beamwood.retrieval.new_items.added import NewItem
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.answer.answering import recommended
from beamwood.serve.items.learned import CatalogueItem
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.protocol import StoreUnavailable
from retrieval_cases import retriever_of, user_searcher
from served import post, serving, wait_until
from withheld import ANSWERS, CHANGES, FIRST, NEW, SEARCHERS, N, World, folders


def lived(root, kind, seed, steps, *, share=1.0):
    retriever = folders(root, kind)
    table = root / "items.parquet" if seed % 2 else None
    settings = {"limits": Limits(new_item_share=share), "models_dir": root, "by_category": seed % 3 == 0}
    with serving(root / "one", items=table, **settings) as client:
        world = World(client, retriever, np.random.default_rng(seed))
        done = []
        for step in range(steps):
            done.append(FIRST[step] if step < len(FIRST) else str(world.rng.choice(CHANGES)))
            try:
                getattr(world, done[-1])()
                for answer in ANSWERS:
                    getattr(world, answer)()
            except AssertionError as error:
                raise AssertionError(f"after {done}: {error}") from error


@pytest.mark.parametrize("kind", ["tree", "vectors", "sum"])
def test_nothing_that_is_withheld_is_answered(kind, tmp_path):
    lived(tmp_path, kind, 0, 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEARCHERS)
@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_that_is_withheld_is_answered_for_long(kind, seed, tmp_path):
    lived(tmp_path, kind, seed, 20, share=(1.0, 0.1)[seed % 2])


@pytest.fixture
def folder(tmp_path):
    return tmp_path, folders(tmp_path, "tree")


@pytest.fixture
def client(folder):
    with serving(folder[0] / "one", models_dir=folder[0], limits=Limits(new_item_share=1.0)) as made:
        yield made


def asked(client, method, path, body=None, status=200):
    answer = client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def ids(client, **body):
    return [
        each["item"] for each in post(client, "/v1/recommend", {"k": N + NEW, "exclude_seen": False} | body)["items"]
    ]


def put(client, *items):
    return asked(client, "PUT", "/v1/items", {"items": list(items)})["items"]


def test_a_condition_that_was_joined_with_ids_hides_items(client, folder):
    first, second, *_ = folder[1].items.ids.to_list()
    where = {"price": {"missing": False}}
    asked(client, "PUT", "/v1/items/availability", {"clear": [first]})
    for price in ({"price": {"missing": False}}, {"price": {"missing": True}}):
        where = {"where": price}
        ids(client, history=[], filter={"items": [first, second], **where})
        assert first not in ids(client, history=[], filter=where)


def test_what_a_folder_has_erased_stays_erased(folder, tmp_path):
    first, second, third, *_ = folder[1].items.ids.to_list()
    folder[1].without_items([first]).save(tmp_path / "less")
    with serving(tmp_path / "less") as client:
        asked(client, "PUT", "/v1/items/availability", {"clear": [second]})
        assert not {first, second} & set(ids(client, history=[third]))
        assert asked(client, "PUT", "/v1/items", {"items": [{"item": first}]}, 409)["error"]["code"] == "conflict"
        asked(client, "DELETE", f"/v1/items/{first}", status=404)
    with serving(folder[0] / "one", models_dir=folder[0], store=f"sqlite:{tmp_path / 'events.db'}") as client:
        put(client, {"item": "new-0", "similar": [first]})
        Retriever.load(folder[0] / "more").without_items(["new-0"]).save(folder[0] / "fewer")
        asked(client, "POST", "/v1/models/load", {"path": "fewer"})
        assert "new-0" not in ids(client, history=[third])


def test_items_added_to_a_folder_stay_beside_those_put_later(folder, tmp_path):
    first, second, third, *_ = folder[1].items.ids.to_list()
    added = folder[1].with_items([NewItem("added", {first: 1.0}, {"price": 5.0}), NewItem("gone", gone=True)])
    added.save(tmp_path / "added")
    with serving(tmp_path / "added", limits=Limits(new_item_share=1.0)) as client:
        before = ids(client, history=[third])
        assert "added" in before
        asked(client, "PUT", "/v1/items/availability", {"clear": [second]})
        assert ids(client, history=[third]) == [each for each in before if each != second]
        put(client, {"item": "new", "similar": [first]})
        for history in ([third], []):
            assert {"added", "new"} <= set(ids(client, history=history))
        assert ids(client, history=[third], filter={"where": {"price": 5.0}}).count("added") == 1
        asked(client, "PUT", "/v1/items", {"items": [{"item": "added"}]}, 409)
        asked(client, "DELETE", "/v1/items/added")
        assert not {"added", "gone"} & set(ids(client, history=[third]))


def test_an_item_can_be_changed_after_what_it_is_like_was_erased(client, folder):
    first, second, third, *_ = folder[1].items.ids.to_list()
    put(client, {"item": "new", "similar": [first]}, {"item": "other", "similar": [first, second]})
    asked(client, "DELETE", f"/v1/items/{first}")
    assert [each["source"] for each in asked(client, "GET", "/v1/items")["items"]] == ["none", "similar"]
    asked(client, "PATCH", "/v1/items/new", {"available": False})
    asked(client, "PATCH", "/v1/items/other", {"available": False})
    assert not {"new", "other"} & set(ids(client, history=[third]))


def test_an_erased_item_that_comes_again_has_no_events(client, folder):
    def taken(by):
        events = [{"user": by, "item": item, "time": at} for at, item in enumerate([near, "new"], start=9)]
        post(client, "/v1/events", {"events": events})

    near = folder[1].items.ids[0]
    bare = {"item": "new", "source": "none", "events": 0, "available": True, "shown": 0}
    put(client, {"item": "new", "category": "c9"})
    for user in range(3):
        taken(user)
    wait_until(lambda: asked(client, "GET", "/v1/items")["items"][0]["source"] == "events")
    asked(client, "DELETE", "/v1/items/new")
    assert client.service.catalogue.learned.items == {"new": CatalogueItem("new", gone=True)}
    wait_until(lambda: not client.service.first_events._seen)
    assert put(client, {"item": "new"}) == [bare]
    for user in range(3):
        client.portal.call(client.service.first_events.look)
        assert asked(client, "GET", "/v1/items")["items"] == [bare]
        taken(10 + user)
    wait_until(lambda: asked(client, "GET", "/v1/items")["items"][0]["source"] == "events")


def test_an_item_hidden_in_a_model_that_knows_it_can_be_shown_after_it_was_put(client, folder):
    asked(client, "POST", "/v1/models/load", {"path": "more"})
    asked(client, "PUT", "/v1/items/availability", {"clear": ["new-1"]})
    asked(client, "POST", "/v1/models/load", {"path": "one"})
    put(client, {"item": "new-1", "similar": [folder[1].items.ids[0]]})
    asked(client, "POST", "/v1/models/load", {"path": "more"})
    assert "new-1" in ids(client, history=[])
    asked(client, "PUT", "/v1/items/availability", {"clear": ["new-1"]})
    assert "new-1" not in ids(client, history=[])


def test_items_of_an_arm_can_be_hidden_and_erased(client):
    arms = [{"model": "more", "share": 1}]
    asked(client, "PUT", "/v1/experiments", {"name": "e", "arms": arms})
    assert {"new-0", "new-1"} <= set(ids(client, user=3))
    asked(client, "PUT", "/v1/items/availability", {"clear": ["new-0"]})
    asked(client, "DELETE", "/v1/items/new-1")
    assert not {"new-0", "new-1"} & set(ids(client, user=3))


@pytest.mark.parametrize("session", [False, True])
def test_a_cursor_is_gone_with_its_user(client, folder, session):
    item, other, *_ = folder[1].items.ids.to_list()
    who = {"session": "s"} if session else {"user": 3}
    post(client, "/v1/events", {"events": [{"item": item, **who}]})
    cursor = post(client, "/v1/recommend", {"k": 3, "pages": True, **who})["cursor"]
    second = post(client, "/v1/recommend", {"k": 3, "cursor": cursor})["cursor"]
    post(client, "/v1/events", {"events": [{"item": other, **who}]})
    post(client, "/v1/recommend", {"k": 3, "cursor": second})
    if session:
        post(client, "/v1/users/merge", {"session": "s", "user": 3})
    asked(client, "DELETE", "/v1/users/3")
    for each in (cursor, second):
        assert post(client, "/v1/recommend", {"k": 3, "cursor": each}, 410)["error"]["code"] == "gone"
        row = post(client, "/v1/recommend/batch", {"requests": [{"k": 3, "cursor": each}]})["rows"][0]
        assert row["error"]["code"] == "gone"
    post(client, "/v1/events", {"events": [{"item": item, "user": 3}]})
    fresh = post(client, "/v1/recommend", {"k": 3, "pages": True, "user": 3})["cursor"]
    assert len(post(client, "/v1/recommend", {"k": 3, "cursor": fresh})["items"]) == 3


def test_a_cursor_is_gone_in_every_process_on_the_store(folder, monkeypatch):
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(folder[0] / "one") as first, serving(folder[0] / "one") as second:
        second.service.secret = first.service.secret
        cursor = post(first, "/v1/recommend", {"user": 3, "k": 3, "pages": True})["cursor"]
        assert len(post(second, "/v1/recommend", {"cursor": cursor, "k": 3})["items"]) == 3
        asked(first, "DELETE", "/v1/users/3")
        post(second, "/v1/recommend", {"cursor": cursor, "k": 3}, 410)
        wait_until(lambda: 3 in second.service.histories._erased)

        def down(*_, **__):
            raise StoreUnavailable("down")

        monkeypatch.setattr(store, "history", down)
        post(second, "/v1/recommend", {"cursor": cursor, "k": 3}, 410)


@pytest.mark.parametrize("recorded", [False, True])
def test_a_new_model_is_not_tried_on_the_history_of_an_erased_user(client, folder, monkeypatch, recorded):
    """It is tried on recent requests, or without any on users of the model."""
    used = {}

    def noted(snapshot, body, kept, limits, **more):
        answer, found = recommended(snapshot, body, kept, limits, **more)
        used[body.user] = max(answer.history_used, used.get(body.user, 0))
        return answer, found

    monkeypatch.setattr("beamwood.serve.loading.recommended", noted)
    for user in (11, 5) if recorded else ():
        post(client, "/v1/recommend", {"user": user, "events": [folder[1].items.ids[0]]})
    for user in (5,) if recorded else range(20):
        asked(client, "DELETE", f"/v1/users/{user}")
    asked(client, "POST", "/v1/models/load", {"path": "more"})
    assert used == ({11: 4, 5: 0} if recorded else {None: 0})


def test_the_reasons_of_items_beside_the_tree_are_those_of_the_search(client, folder):
    near, *rest = folder[1].items.ids.to_list()
    put(client, *({"item": f"new {at}", "similar": [near]} for at in range(30)))
    searcher = client.service.models.current.searcher
    assert len(searcher._beside.rows_O) > 5, "all items are on leaves, so the test is void"
    body = {"history": [rest[0], "new 29"], "k": 90, "explain": "full"}
    items = post(client, "/v1/recommend", body)["items"]
    told = [each for each in items if each["explain"]]
    assert {each["item"] for each in items} - {each["item"] for each in told} <= {f"new {at}" for at in range(30)}
    for each in told:
        assert sum(each["explain"]["tree_parts"].values()) == pytest.approx(each["score"], rel=1e-4, abs=1e-5)
        assert all(step["node"] >= 0 for step in each["explain"]["path"])


def test_what_stands_below_a_node_may_be_shown(client, folder):
    known = folder[1].items.ids.to_list()
    asked(client, "PUT", "/v1/items/availability", {"clear": known[:20]})
    for item in known[20:25]:
        asked(client, "DELETE", f"/v1/items/{item}")
    first = post(client, "/v1/recommend", {"history": [], "k": N, "explain": "full"})["items"]
    tops = {each["explain"]["path"][0]["node"]: each["explain"]["path"][0]["items"] for each in first}
    assert len(first) == sum(tops.values()) == N - 25


def test_a_model_of_known_users_does_not_use_its_weights_for_erased_ones(tmp_path):
    retriever = retriever_of(user_searcher(N), num_users=20)
    retriever.save(tmp_path / "model")
    store = f"sqlite:{tmp_path / 'events.db'}"
    with serving(tmp_path / "model", store=store) as client:
        unknown, before = ids(client, user="nobody"), ids(client, user=3)
        asked(client, "DELETE", "/v1/users/3")
        assert ids(client, user=3) == unknown != before
    assert main(["events", "erase", store, "--from", str(tmp_path / "model"), "--out", str(tmp_path / "clean")]) == 0
    with serving(tmp_path / "clean", store=store) as client:
        assert ids(client, user=3) == unknown
        assert ids(client, user=5) != unknown
