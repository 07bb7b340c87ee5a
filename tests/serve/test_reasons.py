"""Why an item is recommended: the parts of its score add up, for each kind of model."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from beamwood.cli.main import main
from beamwood.kernels.terms import TermArrays
from beamwood.models.terms import Neighbours
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.tree import TreeSearcher
from retrieval_cases import retriever_of, tree_searcher
from served import NUM_ITEMS, item_table, items_of, post, recommend, saved, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture(scope="module")
def client(folder, tmp_path_factory):
    table = item_table(tmp_path_factory.mktemp("items") / "items.parquet", folder[1])
    with serving(folder[0], items=table) as client:
        yield client


def test_the_reasons_add_up(client, folder):
    answer = recommend(client, {"user": 11, "k": 6, "explain": "full"})
    depth = folder[1].searcher.tree.shape.depth
    assert answer["explain"]["way"]["kind"] == "beam"
    for item in answer["items"]:
        why = item["explain"]
        assert [step["level"] for step in why["path"]] == list(range(1, depth + 1))
        leaf = why["path"][-1]
        assert leaf["score"] == pytest.approx(item["score"], rel=1e-4)
        assert sum(why["tree_parts"].values()) == pytest.approx(item["score"], rel=1e-4)
        assert leaf["items"] == 1
        assert 1 <= leaf["rank"] <= leaf["of"]
        assert why["path"][0]["items"] >= leaf["items"]
        assert why["path"][0]["categories"]
        assert {each["item"] for each in why["attention"]} <= set(folder[1].items.decode(folder[1].histories[11]))


def test_items_beside_the_tree_have_no_path(tmp_path):
    plain = tree_searcher(NUM_ITEMS)
    weights, shape, term = plain.weights, plain.tree.shape, Neighbours(2)
    arrays = term.arrays(shape, weights.history_length)
    neighbours = TermArrays(term, {name: arrays[name] for name in term.kept()})
    weights = replace(weights, terms={"neighbours": neighbours, **weights.terms})
    retriever = retriever_of(TreeSearcher(weights, plain.tree, beam_width=8), text=False)
    retriever.save(tmp_path / "model")
    twin, other = retriever.items.decode(np.array([3, 4]))
    with serving(tmp_path / "model") as client:
        assert client.put("/v1/items", json={"items": [{"item": 1000, "similar": [twin]}]}).status_code == 200
        alone = {"history": [other], "explain": "full", "filter": {"items": [1000]}}
        (found,) = recommend(client, alone)["items"]
        (plain,) = recommend(client, alone | {"filter": {"items": [twin]}})["items"]
    assert found["item"] == 1000
    assert ("path" in found["explain"], "path" in plain["explain"]) == (False, True)


def test_reasons_of_two_stages(tmp_path):
    rng = np.random.default_rng(0)
    first, popular = tree_searcher(NUM_ITEMS), PopularitySearcher(rng.random(NUM_ITEMS))
    blend = Blend([Part(first, gate="history"), Part(popular, 0.5)], num_candidates=20, fallback=popular)
    retriever = retriever_of(blend, text=False)
    retriever.save(tmp_path / "model")
    with serving(tmp_path / "model") as client:
        answer = recommend(client, {"user": 11, "k": 5, "explain": "scores"})
        weights = [part["weight"] for part in answer["explain"]["parts"]]
        for item in answer["items"]:
            own = [part["score"] for part in item["explain"]["parts"]]
            assert item["score"] == pytest.approx(np.dot(weights, own), rel=1e-5)
        # Also without reasons.
        took = recommend(client, {"user": 11, "k": 5})["took_ms"]
        assert 0 < took["rank"] < took["search"]
        assert recommend(client, {"user": 11, "k": 5, "max_per_category": 2})["took_ms"]["rank"] > 0
        assert (
            'beamwood_seconds_count{method="POST",route="/v1/recommend",stage="rank"} 3' in client.get("/metrics").text
        )
        nobody = recommend(client, {"history": [], "k": 5})
        assert nobody["source"] == "popular"
        assert {item["source"] for item in nobody["items"]} == {"popular"}
        assert items_of(nobody) == retriever.items.decode(np.argsort(-popular.counts)[:5])
        # The names of the parts do not change with new items.
        new = {"items": [{"item": 9_001, "similar": [items_of(answer)[0]]}]}
        client.put("/v1/items", json=new).raise_for_status()
        again = recommend(client, {"user": 11, "k": 5, "explain": "scores"})
        for told in (again, answer):
            assert told["explain"]["kind"] == "blend"
            assert [part["kind"] for part in told["explain"]["parts"]] == ["tree-din", "popularity"]
            for item in told["items"]:
                assert [part["kind"] for part in item["explain"]["parts"]] == ["tree-din", "popularity"]


def test_reasons_of_a_counting_method(tmp_path):
    """They are the contributions of the history, without an empty list of parts."""
    rng = np.random.default_rng(0)
    near = sparse.random(NUM_ITEMS, NUM_ITEMS, 0.3, format="csr", random_state=1, dtype=np.float32)
    searcher = NeighbourSearcher(near, rng.random(NUM_ITEMS), decay=0.8, length=4, seen="last")
    retriever = retriever_of(searcher, text=False)
    retriever.save(tmp_path / "model")
    history = retriever.items.decode(np.array([3, 9, 3, 14, 15]))
    with serving(tmp_path / "model") as client:
        plain = recommend(client, {"history": history, "k": 5, "explain": "scores"})
        assert "parts" not in plain["explain"]
        assert [item["explain"] for item in plain["items"]] == [{}] * 5
        answer = recommend(client, {"history": history, "k": 5, "explain": "full"})
        for item in answer["items"]:
            added = item["explain"]["history"]
            assert {each["place"] for each in added} <= {1, 2, 3, 4}
            assert [each["score"] for each in added] == sorted((each["score"] for each in added), reverse=True)
            assert all(each["item"] == history[each["place"]] for each in added)
            assert sum(each["score"] for each in added) == pytest.approx(item["score"], rel=1e-5)
            column = near[:, [retriever.items.encode([item["item"]])[0]]].toarray().ravel()
            assert {each["place"]: each["score"] for each in added} == pytest.approx(
                {
                    at: 0.8 ** (4 - at) * column[index]
                    for at, index in enumerate([3, 9, 3, 14, 15])
                    if at and column[index]
                }
            )
        # New items have the reasons of what they are like.
        near_one, seen = retriever.items.decode(np.array([7, 14]))
        new = [{"item": 9_001, "similar": [near_one]}, {"item": 9_002, "similar": [seen]}, {"item": 9_003}]
        client.put("/v1/items", json={"items": new}).raise_for_status()
        body = {"history": [*history[:3], 9_003, *history[4:], 9_002], "filter": {"items": [9_001, near_one]}}
        told = recommend(client, body | {"k": 2, "explain": "full"})["items"]
        assert told[0]["explain"] == told[1]["explain"]
        total = sum(each["score"] for each in told[0]["explain"]["history"])
        assert total == pytest.approx(told[0]["score"], rel=1e-5)


def test_the_page_names_what_a_history_adds_by_titles(tmp_path):
    near = sparse.csr_matrix(np.diag(np.ones(NUM_ITEMS - 3, np.float32), 3))
    retriever = retriever_of(NeighbourSearcher(near, np.arange(NUM_ITEMS)), text=False)
    retriever.save(tmp_path / "model")
    (item,) = retriever.items.decode(np.array([3]))
    with serving(tmp_path / "model", items=item_table(tmp_path / "items.parquet", retriever)) as client:
        page = client.get(f"/?history={item}").text
    assert f'What the history adds</h3><dl class="rows"><dt>Title of {item}</dt>' in page


def test_answers_of_a_counting_method_say_what_counts_fill(tmp_path):
    near = sparse.csr_matrix(np.diag(np.ones(NUM_ITEMS - 3, np.float32), 3))
    retriever = retriever_of(NeighbourSearcher(near, np.arange(NUM_ITEMS)), text=False)
    retriever.save(tmp_path / "model")
    history = retriever.items.decode(np.array([3, 9]))
    with serving(tmp_path / "model") as client:

        def sources(body):
            answer = recommend(client, body)
            return answer["source"], [item["source"] for item in answer["items"]]

        assert sources({"history": history, "k": 2}) == ("model", ["model"] * 2)
        assert sources({"history": history, "k": 4}) == ("mixed", ["model"] * 2 + ["popular"] * 2)
        assert sources({"history": [], "k": 2}) == sources({"user": "nobody", "k": 2}) == ("popular", ["popular"] * 2)
        similar = post(client, "/v1/similar", {"items": history, "k": 4})["items"]
        assert [item["source"] for item in similar] == ["model"] * 2 + ["popular"] * 2
        asked = retriever.items.decode(np.array([50, 6, 12]))
        scored = post(client, "/v1/score", {"history": history, "items": asked})["items"]
        assert {item["item"]: item["source"] for item in scored} == dict(
            zip(asked, ["popular", "model", "model"], strict=True)
        )
        # A new item has the neighbours of the one that it is like.
        new = {"items": [{"item": 9_001, "similar": history[:1]}]}
        client.put("/v1/items", json=new).raise_for_status()
        assert sources({"history": [9_001], "k": 2}) == ("mixed", ["model", "popular"])


def test_the_command_tells_what_the_model_alone_did_not_do(tmp_path, capsys):
    folder, retriever = saved(tmp_path / "model")
    (second,) = retriever.items.decode(np.array([4]))
    store = f"sqlite:{tmp_path / 'events.db'}"
    with serving(folder, store=store) as client:
        assert client.put("/v1/items", json={"items": [{"item": 1000}]}).status_code == 200
        promoted = {"filter": {"where": {"stock": True}}, "share": 0.2, "name": "sale"}
        bodies = {
            "promoted": {"history": [second], "k": 5, "promote": [promoted]},
            "new": {"history": [second], "filter": {"items": [1000]}},
            "empty": {"history": [second], "filter": {"items": []}},
        }
        for name, body in bodies.items():
            post(client, "/v1/recommend", body, headers={"x-request-id": name})
        rows = {"requests": [bodies["new"]]}
        assert client.post("/v1/recommend/batch", json=rows, headers={"x-request-id": "many"}).status_code == 200

    def explained(name, code=0):
        assert main(["explain", name, "--store", store]) == code
        return "".join(capsys.readouterr())

    assert ", promoted by sale\n" in explained("promoted")
    assert "1 item of history" in explained("promoted")
    assert "1000  without a score, new item\n" in explained("new")
    assert "the filter allowed 0 items\nno item was found\n" in explained("empty")
    assert "whose rows are 'many.0' and so on" in explained("many", 2)
    assert main(["explain", "new", "--store", str(tmp_path / "events.db")]) == 2
    assert f"write {store}" in capsys.readouterr().err
