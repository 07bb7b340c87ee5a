"""Models are swapped while requests arrive; an invalid model is never used."""

import gc
import threading
import time
import weakref

import pytest

from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever
from beamwood.serve import loading
from beamwood.serve.items.catalogue import Catalogue
from bounded import joined
from retrieval_cases import retriever_of, tree_searcher, user_searcher
from served import NUM_ITEMS, post, saved, serving, wait_until


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for seed in range(2):
        saved(root / f"m{seed}", seed)
    saved(root / "broken", 2)
    weights = root / "broken" / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000:] = bytes(1000)
    weights.write_bytes(content)
    return root


def model(client):
    return post(client, "/v1/recommend", {"user": 11})["model"]


def load(client, path, status=200):
    return post(client, "/v1/models/load", {"path": path}, status)


def test_models_are_swapped_and_swapped_back(models):
    with serving(models / "m0", models_dir=models) as client:
        first = model(client)
        loaded = load(client, "m1")
        assert loaded["snapshot"] == 2
        assert loaded["tried"] == 1
        assert 0 <= loaded["overlap"] < 1
        assert model(client) == loaded["model"] != first
        about = client.get("/v1/models").json()
        assert about["available"] == ["broken", "m0", "m1"]
        assert about["earlier"] == [str(models / "m0")]
        assert post(client, "/v1/models/rollback", {})["model"] == first == model(client)
        assert post(client, "/v1/models/rollback", {}, 409)["error"]["code"] == "conflict"
        # m1 has answered, so the reason is not that none has.
        assert "no earlier model to return to" in client.post("/v1/models/rollback").json()["error"]["message"]


def test_a_model_loaded_again_is_none_to_roll_back_to(models):
    with serving(models / "m0", models_dir=models) as client:
        load(client, "m0")
        assert client.get("/v1/models").json()["earlier"] == []
        assert post(client, "/v1/models/rollback", {}, 409)["error"]["code"] == "conflict"


def of_infinite_scores(chosen):
    """`recommended` with an infinite score in each answer of a chosen snapshot."""
    plain = loading.recommended

    def recommended(snapshot, *given, **more):
        answer, found = plain(snapshot, *given, **more)
        if chosen(snapshot):
            answer.items[-1].score = float("inf")
        return answer, found

    return recommended


def test_a_model_whose_scores_are_not_finite_is_refused(models, monkeypatch):
    first = None
    monkeypatch.setattr(loading, "recommended", of_infinite_scores(lambda snapshot: snapshot.model != first))
    with serving(models / "m0", models_dir=models) as client:
        first = model(client)
        assert "1 of 1 requests had no answer" in load(client, "m1", 422)["error"]["message"]
        assert model(client) == first


@pytest.mark.parametrize("alone", [("m0",), ("m1",), ("m0", "m1")])
def test_models_of_users_alone_are_tried_on_users(tmp_path, monkeypatch, alone):
    for seed, name in enumerate(("m0", "m1")):
        searcher = user_searcher(NUM_ITEMS) if name in alone else tree_searcher(NUM_ITEMS)
        retriever_of(searcher, text=False, num_users=20, seed=seed).save(tmp_path / name)
    with serving(tmp_path / "m0", models_dir=tmp_path) as client:
        loaded = load(client, "m1")
        assert (loaded["tried"], loaded["failed"]) == (20, 0)
    monkeypatch.setattr(loading, "recommended", of_infinite_scores(lambda snapshot: snapshot.model == loaded["model"]))
    with serving(tmp_path / "m0", models_dir=tmp_path) as client:
        assert "20 of 20 requests had no answer" in load(client, "m1", 422)["error"]["message"]


def test_events_of_a_request_are_not_tried_once_its_user_is_erased(models, monkeypatch):
    plain, tried = loading.recommended, []
    monkeypatch.setattr(
        loading,
        "recommended",
        lambda snapshot, body, *more, **own: tried.append(body) or plain(snapshot, body, *more, **own),
    )
    with serving(models / "m0", models_dir=models) as client:
        item = post(client, "/v1/recommend", {"history": [], "k": 1})["items"][0]["item"]
        client.service.loader.recorded.clear()
        for user in (10, 11):
            post(client, "/v1/recommend", {"user": user, "events": [item]})
        client.delete("/v1/users/11").raise_for_status()
        load(client, "m1")
    assert {body.user: body.events for body in tried} == {10: [item], 11: None}


def test_a_rollback_to_a_folder_that_is_gone_says_what_to_load(tmp_path):
    for seed in range(2):
        saved(tmp_path / f"m{seed}", seed)
    with serving(tmp_path / "m0", models_dir=tmp_path) as client:
        second = load(client, "m1")["model"]
        (tmp_path / "m0").rename(tmp_path / ".m0")
        error = post(client, "/v1/models/rollback", {}, 409)["error"]
        assert "does not exist" in error["message"]
        assert "name one to POST /v1/models/load" in error["message"]
        assert "field" not in error, "the request has none"
        assert model(client) == second
        (tmp_path / ".m0").rename(tmp_path / "m0")
        assert post(client, "/v1/models/rollback", {})["model"] == model(client) != second


def test_an_invalid_model_never_answers(models, tmp_path):
    saved(tmp_path / "outside")
    (models / "link").symlink_to(tmp_path / "outside")
    with serving(models / "m0", models_dir=models) as client:
        first = model(client)
        for path, status, said in (
            ("broken", 422, "is damaged"),
            ("none", 422, "does not exist"),
            ("link", 403, "leaves --models-dir"),
            ("../outside", 403, "leaves"),
            (str(tmp_path / "outside"), 403, "leaves"),
            ("", 403, "leaves"),
            ("m0\0", 422, "path"),
        ):
            assert said in load(client, path, status)["error"]["message"]
        assert model(client) == first
        assert 'beamwood_swaps_total{outcome="refused"} 2.0' in client.get("/metrics").text
    (models / "link").unlink()
    with serving(models / "m0") as client:
        assert load(client, "m1", 403)["error"]["code"] == "forbidden"
    with pytest.raises(InputError, match="is damaged"), serving(models / "broken"):
        pass


def test_the_old_model_is_released(models):
    with serving(models / "m0", models_dir=models) as client:
        post(client, "/v1/recommend", {"user": 11, "filter": {"category": ["c1"]}})
        old = [weakref.ref(client.service.models.current), weakref.ref(client.service.models.current.searcher)]
        gc.disable()
        try:
            load(client, "m1")
            wait_until(lambda: [each() for each in old] == [None, None])
        finally:
            gc.enable()


def test_a_cursor_of_another_model_is_gone(models):
    with serving(models / "m0", models_dir=models) as client:
        cursor = post(client, "/v1/recommend", {"user": 11, "k": 5, "pages": True})["cursor"]
        load(client, "m1")
        assert post(client, "/v1/recommend", {"cursor": cursor}, 410)["error"]["code"] == "gone"


def test_twenty_swaps_fail_no_request(models):
    with serving(models / "m0", models_dir=models) as client:
        answers, over = [], threading.Event()

        def ask():
            while not over.is_set():
                answers.append(client.post("/v1/recommend", json={"user": 11, "k": 3}))
                time.sleep(0.01)

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        names = {load(client, f"m{number % 2}")["model"] for number in range(1, 21)}
        over.set()
        joined(asking)
        assert len(answers) > 20
        assert {answer.status_code for answer in answers} == {200}
        assert len(names) == 2
        assert {answer.json()["model"] for answer in answers} == names
        by_model = {}
        for answer in (each.json() for each in answers):
            by_model.setdefault(answer["model"], set()).add(tuple(item["item"] for item in answer["items"]))
        assert all(len(lists) == 1 for lists in by_model.values()), "each answer comes from one model"


def test_changes_of_a_folder_are_detected(models, tmp_path):
    current = tmp_path / "current"
    current.symlink_to(models / "m0")
    with serving(current) as client:
        loader = client.service.loader
        assert loader.changed(current) is None
        current.unlink()
        current.symlink_to(models / "m1")
        assert loader.changed(current) == models / "m1"
        assert loader.changed(current) is None, "once"
    with serving(models / "m0", models_dir=models) as client:
        manifest = (models / "m1" / "manifest.json").read_text()
        assert client.service.loader.changed(models / "m0") in (None, models / "m1", models / "broken")
        (models / "m1" / "manifest.json").write_text(manifest[:-20])
        assert client.service.loader.changed(models / "m0") != models / "m1"
        (models / "m1" / "manifest.json").write_text(manifest)


@pytest.mark.parametrize("linked", [True, False])
def test_a_rollback_lasts_until_there_is_a_newer_model(models, tmp_path, monkeypatch, linked):
    """Neither the watcher nor a SIGHUP loads a model again that was rolled back."""
    current = models / "m0"
    if linked:
        current = tmp_path / "current"
        current.symlink_to(models / "m0")
    times = {"m0": "2026-01-01", "m1": "2026-01-02"}
    monkeypatch.setattr(loading, "_created", lambda path: times.get(path.name, ""))
    with serving(current, models_dir=models) as client:
        loader, first = client.service.loader, model(client)
        if linked:
            current.unlink()
            current.symlink_to(models / "m1")
            assert loader.changed(current) == models / "m1"
        load(client, "m1")
        post(client, "/v1/models/rollback", {})
        assert model(client) == first
        assert loader.changed(current) is None
        times["broken"] = "2026-01-03"
        if linked:
            current.unlink()
            current.symlink_to(models / "broken")
        assert loader.changed(current) == models / "broken", "newer than any that answered"


def test_an_item_that_is_erased_while_a_model_is_carried_over_is_not_shown(models, monkeypatch):
    carried, erased = Catalogue.carried, []
    known = [set(Retriever.load(models / name).items.ids) for name in ("m0", "m1")]
    # Once before the trial, and once after it.
    left = sorted(known[0] & known[1])[:2]

    def while_erasing(catalogue, fresh):
        made = carried(catalogue, fresh)
        if left:
            erased.append(left.pop())
            assert client.delete(f"/v1/items/{erased[-1]}").status_code == 200
        return made

    with serving(models / "m0", models_dir=models) as client:
        monkeypatch.setattr(Catalogue, "carried", while_erasing)
        load(client, "m1")
        assert len(erased) == 2
        assert post(client, "/v1/recommend", {"history": [], "filter": {"items": erased}})["items"] == []
