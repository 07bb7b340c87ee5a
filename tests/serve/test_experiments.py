"""Experiments and outcomes of answers: stable arms, hits and misses by arm, across restarts and replicas."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from contextlib import closing
from unittest.mock import DEFAULT, Mock, call

import msgspec
import pytest

from beamwood.cli.main import main
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever
from beamwood.serve.active import ActiveModels
from beamwood.serve.admission import Admission
from beamwood.serve.experiments import Arm, Experiment, Experiments, arm_of
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.monitoring.replay import replayed
from beamwood.serve.problems import Problem
from beamwood.serve.settings import Limits, ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.serve.store.open import open_store
from beamwood.serve.store.protocol import StoreUnavailable
from retrieval_cases import retriever_of, tree_searcher
from served import item_table, post, serving, wait_until

ARMS = [{"model": "current", "share": 0.75, "name": "old"}, {"model": "other", "share": 0.25}]


def started(client, arms=ARMS, name="e-1"):
    answer = client.put("/v1/experiments", json={"name": name, "arms": arms})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_arms_are_stable_and_have_their_shares():
    arms = [Arm(model="a", share=0.1), Arm(model="b", share=0.0), Arm(model="c", share=0.9)]
    experiment = Experiment(name="x", arms=arms)
    counts = Counter(arm_of(experiment, user).model for user in range(20_000))
    # Within six standard deviations of a binomial.
    assert abs(counts["a"] - 2000) < 255
    assert counts["b"] == 0
    other = Experiment(name="y", arms=arms)
    both = sum(arm_of(experiment, user).model == arm_of(other, user).model == "a" for user in range(20_000))
    assert abs(both - 200) < 85
    # Shares sum to 1 within rounding: what is beyond them is no arm's without a share.
    short = Experiment(name="x", arms=[Arm(model="a", share=0.5), Arm(model="b", share=0.0)])
    assert {arm_of(short, user).model for user in range(20)} == {"a"}


def test_users_keep_their_arm_after_a_restart(models, options):
    seen = {}
    for turn in range(2):
        with serving(models / "one", **options) as client:
            if turn == 0:
                started(client)
            wait_until(lambda: client.service.experiments.current is not None)
            assert client.get("/v1/experiments").json()["not_followed"] is None
            current = client.service.models.current.model
            for user in range(40):
                answer = post(client, "/v1/recommend", {"user": user})
                assert seen.setdefault(user, answer["arm"]) == answer["arm"]
                assert (answer["model"] == current) == (answer["arm"] == "old")
                scored = post(client, "/v1/score", {"user": user, "items": [1, 2]})
                assert (scored["arm"], scored["model"]) == (answer["arm"], answer["model"])
            assert "arm" not in post(client, "/v1/recommend", {"history": [1]})
            assert "arm" not in post(client, "/v1/score", {"history": [1], "items": [2]})
    assert set(seen.values()) == {"old", "other"}
    with serving(models / "one", **options) as client:
        assert client.delete("/v1/experiments").status_code == 200
        assert "arm" not in post(client, "/v1/recommend", {"user": 1})
    with serving(models / "one", **options) as client:
        assert client.get("/v1/experiments").json()["experiment"] is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "e", "arms": [{"model": "current", "share": 0.5}]}, "sum to 1"),
        ({"name": "e", "arms": [{"model": "current", "share": 0.5}] * 2}, "one name"),
        ({"name": "e", "arms": [{"model": "none", "share": 1}]}, "does not exist"),
        ({"name": "e", "arms": [{"model": "../x", "share": 1}]}, "leaves --models-dir"),
        ({"name": "e", "arms": []}, "arms"),
        ({"name": "", "arms": ARMS}, "name"),
    ],
)
def test_invalid_experiments_are_refused(models, options, body, said):
    with serving(models / "one", **options) as client:
        answer = client.put("/v1/experiments", json=body)
        assert answer.status_code in (403, 422)
        assert said in answer.json()["error"]["message"]
        assert client.get("/v1/experiments").json()["experiment"] is None


def test_an_item_that_is_erased_while_an_experiment_starts_is_in_no_arm(models, monkeypatch):
    monkeypatch.setattr("beamwood.serve.items.catalogue._ROUND_SECONDS", 60.0)
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 60.0)
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "one", models_dir=models) as client:
        asked = {"user": 11, "k": 1}
        started(client, [{"model": "other", "share": 1.0}])
        erased = post(client, "/v1/recommend", asked)["items"][0]["item"]
        assert client.delete("/v1/experiments").status_code == 200

        def put(name, text):
            if name == "experiment":
                # The arms are loaded by then.
                assert client.delete(f"/v1/items/{erased}").status_code == 200
            return DEFAULT

        store.put = Mock(side_effect=put, wraps=store.put)
        started(client, [{"model": "other", "share": 1.0}])
        answer = post(client, "/v1/recommend", asked)
        assert answer["arm"] == "other"
        assert [each["item"] for each in answer["items"]] != [erased]


@pytest.mark.parametrize("is_late", [False, True])
def test_an_experiment_that_is_refused_while_it_starts_is_not_stored(models, monkeypatch, is_late):
    """An item that does not fit comes while the arms are loaded, or while the experiment is stored."""
    monkeypatch.setattr("beamwood.serve.items.catalogue._ROUND_SECONDS", 60.0)
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 60.0)
    store, load, stored = MemoryStore(), Experiments._loaded, []
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "one", models_dir=models) as client:
        before = started(client)["experiment"]
        hidden = post(client, "/v1/recommend", {"user": 3, "k": 1})["items"][0]["item"]
        monkeypatch.setattr(Catalogue, "caught_up", Mock(side_effect=InputError("an item does not fit")))

        async def loaded(self, experiment):
            arms = await load(self, experiment)
            if not is_late:
                await self._catalogue.change(lambda _, learned: learned.unavailable.append(hidden))
            return arms

        def put(name, text):
            if name == "experiment":
                stored.append(json.loads(text)["name"])
                if is_late:
                    assert client.delete(f"/v1/items/{hidden}").status_code == 200
            return DEFAULT

        monkeypatch.setattr(Experiments, "_loaded", loaded)
        store.put = Mock(side_effect=put, wraps=store.put)
        answer = client.put("/v1/experiments", json={"name": "e-2", "arms": [{"model": "other", "share": 1}]})
        assert (answer.status_code, stored) == (422, ["e-2"] * is_late)
        assert "does not fit" in answer.json()["error"]["message"]
        assert json.loads(store.get("experiment")) == before
        assert client.get("/v1/experiments").json()["experiment"] == before


def test_a_store_that_is_down_is_reported_once(models, options, monkeypatch):
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 0.01)
    said = []
    monkeypatch.setattr(RequestLog, "said", lambda _, event, **more: said.append(event))
    with serving(models / "one", **options) as client:
        client.service.histories.store.close()
        wait_until(lambda: "experiment_not_followed" in said)
        tried = client.service.metrics.registry.get_sample_value
        before = tried("beamwood_store_errors_total", {"call": "get"})
        wait_until(lambda: tried("beamwood_store_errors_total", {"call": "get"}) > before + 3)
    assert said.count("experiment_not_followed") == 1


def test_an_arm_that_takes_long_to_load_is_followed(models, options, monkeypatch):
    with serving(models / "one", **options) as client:
        started(client)
    monkeypatch.setattr("beamwood.serve.experiments._BEGIN_SECONDS", 0.01)
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 0.01)
    opened, loads = ActiveModels.opened, []

    def slowly(models, folder, **more):
        loads.append(folder)
        time.sleep(0.2)
        return opened(models, folder, **more)

    monkeypatch.setattr(ActiveModels, "opened", slowly)
    with serving(models / "one", **options) as client:
        client.portal.call(client.service.experiments.begin)
        wait_until(lambda: client.service.experiments.current is not None)
    assert loads == [models / "one", models / "other"]


@pytest.mark.parametrize("is_stored", [False, True])
def test_an_arm_has_what_changed_while_it_was_loaded(models, options, monkeypatch, is_stored):
    load, hidden = Experiments._loaded, []

    async def slowly(self, experiment):
        arms = await load(self, experiment)
        await self._catalogue.change(lambda _, learned: learned.unavailable.append(hidden[0]))
        return arms

    monkeypatch.setattr("beamwood.serve.items.catalogue._ROUND_SECONDS", 60.0)
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 60.0)
    with serving(models / "one", **options) as client:
        hidden.append(post(client, "/v1/recommend", {"user": 3, "k": 1})["items"][0]["item"])
        monkeypatch.setattr(Experiments, "_loaded", slowly)
        experiment = Experiment(name="e", arms=[Arm(model="other", share=1.0)])
        if is_stored:
            client.service.histories.store.put("experiment", msgspec.json.encode(experiment).decode())
            client.portal.call(client.service.experiments.look)
        else:
            client.portal.call(client.service.experiments.start, experiment)
        assert {each.learned for each in client.service.models.all()} == {client.service.catalogue.name}
        answer = post(client, "/v1/recommend", {"user": 3, "k": 1000})
        assert answer["arm"] == "other"
        assert hidden[0] not in [each["item"] for each in answer["items"]]


def test_arms_are_awaited_until_the_store_answers(models, monkeypatch):
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 0.01)
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    store.put("experiment", json.dumps({"name": "e-1", "arms": ARMS}))
    store.get = Mock(side_effect=StoreUnavailable("down"))
    with serving(models / "one", models_dir=models) as client:
        begun = client.portal.start_task_soon(client.service.experiments.begin)
        wait_until(lambda: store.get.mock_calls.count(call("experiment")) > 1)
        with pytest.raises(TimeoutError):
            begun.result(0.2)
        del store.get
        begun.result(30)
        assert client.service.experiments.current is not None


def test_an_arm_that_cannot_be_loaded_is_reported_once(models, options, monkeypatch, tmp_path):
    shutil.copytree(models / "other", models / "gone")
    with serving(models / "one", **options) as client:
        started(client, [{"model": "current", "share": 0.5}, {"model": "gone", "share": 0.5}])
    (models / "gone").rename(tmp_path / "gone")
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 0.01)
    monkeypatch.setattr("beamwood.serve.experiments._AGAIN_SECONDS", 0.05)
    said, tried, resolved = [], [], ActiveModels.resolved
    monkeypatch.setattr(RequestLog, "said", lambda _, event, **more: said.append(event))
    monkeypatch.setattr(ActiveModels, "resolved", lambda loader, *name: tried.append(name) or resolved(loader, *name))
    with serving(models / "one", **options) as client:
        wait_until(lambda: len(tried) > 3)
        # It is not taken for none, which one could overwrite without knowing.
        told = client.get("/v1/experiments").json()
        assert (told["experiment"]["name"], "arm" in post(client, "/v1/recommend", {"user": 1})) == ("e-1", False)
        assert told["not_followed"].startswith("arm gone: ")
        assert client.delete("/v1/experiments").json()["not_followed"] is None
    assert said.count("experiment_not_followed") == 1


def test_an_experiment_of_another_version_is_not_taken_for_the_earlier_one(models, monkeypatch):
    monkeypatch.setattr("beamwood.serve.experiments._ROUND_SECONDS", 60.0)
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "one", models_dir=models) as client:
        started(client)
        store.put("experiment", json.dumps({"name": "e-2", "arms": ARMS, "ends": "soon"}))
        with pytest.raises(Problem, match="end it"):
            client.portal.call(client.service.experiments.look)
        told = client.get("/v1/experiments").json()
        assert told["experiment"] is None
        assert "unknown field `ends`" in told["not_followed"]
        assert client.delete("/v1/experiments").json()["not_followed"] is None


def test_an_answer_counts_for_the_experiment_of_its_arm(models, options, monkeypatch):
    """Which may end while it is searched."""
    with serving(models / "one", **options) as client:
        started(client)
        kept = HistoryGateway.kept

        async def slowly(self, *given):
            monkeypatch.setattr(HistoryGateway, "kept", kept)
            await client.service.experiments.stop()
            return await kept(self, *given)

        monkeypatch.setattr(HistoryGateway, "kept", slowly)
        arm = post(client, "/v1/recommend", {"user": 11, "k": 3})["arm"]
        client.portal.call(client.service.outcomes.flush, time.monotonic())
        (group,) = client.get("/v1/experiments").json()["groups"]
        assert (group["experiment"], group["arm"]) == ("e-1", arm)


def test_hits_and_misses_by_arm(models, options, monkeypatch):
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 0.05)
    with serving(models / "one", **options) as client:
        started(client)
        expected = Counter()
        for user in range(12):
            answer = post(client, "/v1/recommend", {"user": user, "k": 3})
            arm, shown = answer["arm"], [each["item"] for each in answer["items"]]
            expected[arm, "answers"] += 1
            taken = shown[1] if user % 2 else "no such item"
            expected[arm, "hits" if user % 2 else "unknown"] += 1
            for _ in range(2):
                # A second event for the same answer is not a second hit; a repeated send is not a second event.
                event = {"user": user, "item": taken, "request_id": answer["request_id"], "key": f"{user}"}
                post(client, "/v1/events", {"events": [event]})
            if user % 2:
                post(client, "/v1/events", {"events": [event | {"item": shown[0], "key": f"{user}b"}]})

        def told():
            found = Counter()
            for group in client.get("/v1/experiments").json()["groups"]:
                assert group["experiment"] == "e-1"
                counts = group["misses"] | {"answers": group["answers"], "hits": group["hits"]}
                assert group["hit_rate"] == round(group["hits"] / group["answers"], 6)
                found.update({(group["arm"], name): count for name, count in counts.items() if count})
            return found

        wait_until(lambda: told() == expected)
        counted = client.get("/metrics").text
        for (arm, outcome), count in expected.items():
            name = {"answers": "answer", "hits": "hit"}.get(outcome, f"missed_{outcome}")
            assert f'beamwood_outcomes_total{{arm="{arm}",outcome="{name}"}} {count}.0' in counted


def test_an_item_of_a_further_page_is_a_hit(models, options, monkeypatch, capsys):
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("beamwood.serve.monitoring.outcomes._ROUND_SECONDS", 0.05)
    with serving(models / "one", **options) as client:
        started(client)
        pages, counts = [], Counter()
        for user in range(8):
            first = post(client, "/v1/recommend", {"user": user, "k": 3, "pages": True})
            pages.append(post(client, "/v1/recommend", {"cursor": first["cursor"], "k": 3}))
            assert pages[-1]["arm"] == first["arm"]
            assert pages[-1]["took_ms"]["total"] > 0
            counts[first["arm"]] += 1
            # What is on neither page is no miss, as a page was not searched.
            for item in (pages[-1]["items"][1]["item"], first["items"][0]["item"]):
                event = {"user": user, "item": item, "request_id": pages[-1]["request_id"]}
                post(client, "/v1/events", {"events": [event]})

        def told():
            groups = client.get("/v1/experiments").json()["groups"]
            return {group["arm"]: (group["answers"], group["hits"], group["misses"]) for group in groups}

        wait_until(lambda: told() == {arm: (2 * count, count, {}) for arm, count in counts.items()})
        client.delete("/v1/users/0")
        assert not client.service.histories.store.noted([pages[0]["request_id"]])
    assert main(["explain", pages[1]["request_id"], "--store", options["store"]]) == 2
    assert "explain the first one" in capsys.readouterr().err


def test_an_answer_is_explained_later(models, options, capsys):
    with serving(models / "one", **options) as client:
        retriever = Retriever.load(models / "one")
        user = retriever.users.decode([int(retriever.histories.lengths.argmax())])[0]
        answer = post(client, "/v1/recommend", {"user": user, "k": 4})
        # Later events are not part of it.
        post(client, "/v1/events", {"events": [{"user": user, "item": answer["items"][0]["item"]}]})
        later = post(client, "/v1/recommend", {"user": user, "k": 4})
        assert later["items"] != answer["items"]
    assert main(["explain", answer["request_id"], "--store", options["store"], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["reproduced"] is True
    assert [(each["item"], each["score"]) for each in told["items"]] == [
        (each["item"], each["score"]) for each in answer["items"]
    ]
    assert "explain" in told["items"][0]
    assert main(["explain", later["request_id"], "--store", options["store"]]) == 0
    shown = capsys.readouterr().out
    assert "as it was answered" in shown
    assert "{" not in shown
    assert shown.count("path: node ") == shown.count("tree: network ") == shown.count("attention: ") == 4
    assert main(["explain", "no-such", "--store", options["store"]]) == 2
    assert "no answer" in capsys.readouterr().err


@pytest.mark.parametrize("pressure", [0.0, 0.5, 1.0])
def test_an_answer_under_other_limits_is_explained_later(models, options, monkeypatch, pressure):
    """The answer is stored with the server's options and the narrowing of its beam."""
    monkeypatch.setattr(Admission, "pressure", pressure)
    limits = Limits(history=2, pages_k=7, filter_ids=3)
    with serving(models / "one", limits=limits, min_beam=2, **options) as client:
        post(client, "/v1/events", {"events": [{"user": "new", "item": item} for item in some_items(models, 6)]})
        bodies = [{"user": "new", "k": 4}, {"user": "new", "k": 4, "pages": True}]
        answers = [post(client, "/v1/recommend", body) for body in bodies]
    assert [each["degraded"] for each in answers] == [pressure > 0] * 2
    assert [each["history_used"] for each in answers] == [2, 2]
    with closing(open_store(options["store"])) as store:
        for answer in answers:
            assert replayed(store, answer["request_id"]).reproduced


def test_explain_uses_the_way_that_answered_among_ways_of_one_width(tmp_path, monkeypatch):
    retriever_of(tree_searcher(90, steered=True), text=False).save(tmp_path / "model")
    store = f"sqlite:{tmp_path / 'events.db'}"
    for pressure in (0.0, 1.0):
        monkeypatch.setattr(Admission, "pressure", pressure)
        with serving(tmp_path / "model", store=store) as client:
            answer = post(client, "/v1/recommend", {"user": 11, "k": 8})
        with closing(open_store(store)) as opened:
            assert replayed(opened, answer["request_id"]).reproduced


def some_items(models, count):
    return Retriever.load(models / "one").items.decode(range(count))


def test_an_answer_with_columns_of_the_table_is_explained_later(models, options, tmp_path, capsys):
    table = item_table(tmp_path / "items.parquet", Retriever.load(models / "one"))
    with serving(models / "one", items=table, **options) as client:
        shown = post(client, "/v1/recommend", {"history": [1], "k": 4, "fields": ["title"]})
        where = {"where": {"title": {"missing": False}}}
        filtered = post(client, "/v1/recommend", {"history": [1], "k": 4, "filter": where})
    store = ("--store", options["store"])
    assert main(["explain", shown["request_id"], *store]) == 0
    assert "as it was answered" in capsys.readouterr().out
    assert main(["explain", filtered["request_id"], *store]) == 2
    assert "give the --items that the server had" in capsys.readouterr().err
    assert main(["explain", filtered["request_id"], *store, "--items", str(table)]) == 0


def test_a_replaced_model_does_not_explain_earlier_answers(models, options, tmp_path, capsys):
    folder = tmp_path / "model"
    shutil.copytree(models / "one", folder)
    with serving(folder, **options) as client:
        answer = post(client, "/v1/recommend", {"history": [1], "k": 4})
    Retriever.load(models / "other").save(folder, overwrite=True)
    assert main(["explain", answer["request_id"], "--store", options["store"]]) == 2
    assert "--folder" in capsys.readouterr().err
    assert main(["explain", answer["request_id"], "--store", options["store"], "--folder", str(models / "one")]) == 0
