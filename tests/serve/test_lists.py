"""Similar items and scores of given items equal those of the package."""

import numpy as np
import pytest

from served import post, saved, serving


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture(scope="module")
def client(folder):
    with serving(folder[0]) as client:
        yield client


@pytest.mark.parametrize("by", ["model", "vectors", "tree"])
def test_similar(client, folder, by):
    retriever = folder[1]
    items = retriever.items.decode(np.array([4, 8]))
    answer = post(client, "/v1/similar", {"items": items, "k": 7, "by": by, "filter": {"where": {"stock": True}}})
    expected = retriever.similar(items, 7, by=by, where={"stock": True})
    assert [item["item"] for item in answer["items"]] == expected.item_ids[0]
    one = post(client, "/v1/similar", {"item": items[0], "k": 3, "by": by})
    assert [item["item"] for item in one["items"]] == retriever.similar(items[:1], 3, by=by).item_ids[0]


def test_similar_to_unknown_items(client, folder):
    known = folder[1].items.decode(np.array([4]))[0]
    assert post(client, "/v1/similar", {"items": [known, "x"]})["unknown_items"] == ["x"]
    assert post(client, "/v1/similar", {"item": "x"}, 404)["error"]["code"] == "unknown_item"
    for wrong in ({}, {"item": known, "items": [known]}, {"items": []}, {"item": known, "by": "name"}):
        assert post(client, "/v1/similar", wrong, 422)["error"]["code"] == "invalid_request"


def test_score(client, folder):
    retriever = folder[1]
    items = retriever.items.decode(np.array([4, 8, 2, 30]))
    for who, asked in (({"user": 11}, (None, [11])), ({"history": items[:2]}, ([items[:2]], None))):
        answer = post(client, "/v1/score", {**who, "items": [*items, "x"]})
        scores = dict(zip(items, retriever.score(asked[0], [items], users=asked[1])[0].tolist(), strict=True))
        assert {item["item"]: item["score"] for item in answer["items"]} == pytest.approx(scores)
        assert [item["item"] for item in answer["items"]] == sorted(items, key=lambda item: -scores[item])
        assert answer["unknown_items"] == ["x"]
    assert post(client, "/v1/score", {"items": items}, 422)["error"]["field"] == "user"


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/recommend", {}), ("/v1/similar", {}), ("/v1/similar", {"by": "vectors"}), ("/v1/score", {"items": [0, 1]})],
)
def test_a_model_that_was_damaged_meanwhile_is_no_fault_of_the_request(path, body, tmp_path):
    folder, retriever = saved(tmp_path / "model")
    history = retriever.items.decode(np.arange(4))
    who = {"items": history} if path == "/v1/similar" else {"history": history}
    weights = retriever.searcher.weights.arrays()
    with serving(folder) as client, (folder / "weights.safetensors").open("r+b") as file:
        content = file.read()
        for name in ("nodes", "similarity.vectors"):
            file.seek(content.index(weights[name].tobytes()))
            file.write(np.full(weights[name].size, np.nan, np.float32).tobytes())
        file.flush()
        error = post(client, path, who | body, 500)["error"]
    assert error["code"] == "internal"
    assert "a score is NaN or infinite" in error["message"]
