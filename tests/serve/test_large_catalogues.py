"""A service's work for a request or a change grows with it, not with the catalogue."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from beamwood.data import Vocabulary
from beamwood.data.vocabularies.id_table import MoreTexts, NumberIds, TextIds
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.serve.items import widened as widened_module
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from beamwood.tree import Tree
from served import post, saved, serving, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("large") / "model")


@pytest.fixture
def counted(monkeypatch):
    """The names of calls, as they come."""
    calls = []

    def count(owner, name):
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *args, **more: calls.append(name) or plain(*args, **more))
        return calls

    return count


def put(client, count, **more):
    items = [{"item": -1 - number} | more for number in range(count)]
    answer = client.request("PUT", "/v1/items", json={"items": items})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    "body",
    [
        {"filter": {"category": ["c1"]}},
        {"promote": [{"filter": {"category": ["c1"]}, "share": 0.2}]},
        {"promote": [{"filter": {"where": {"price": {"lte": 20}}}, "share": 0.2}]},
        # New items have more than their share of the best.
        {},
        {"filter": {"where": {"price": {"missing": True}}}},
    ],
)
@pytest.mark.parametrize("hides", [False, True])
def test_what_was_asked_before_derives_nothing_anew(folder, body, hides, counted):
    retriever = folder[1]
    history = retriever.items.decode(np.arange(4))
    with serving(folder[0]) as client:
        best = [each["item"] for each in post(client, "/v1/recommend", {"history": history, "k": 10})["items"]]
        put(client, 12, similar=best[:1])
        if hides:
            hidden = {"clear": retriever.items.decode(np.array([50]))}
            assert client.request("PUT", "/v1/items/availability", json=hidden).json()["changed"] == 1
        asked = {"history": history, "k": 10, "exclude_seen": False} | body
        before = post(client, "/v1/recommend", asked)
        calls = counted(Tree, "counts_of")
        assert post(client, "/v1/recommend", asked)["items"] == before["items"]
    assert calls == []


def test_a_change_reads_neither_all_ids_nor_all_weights(folder, counted, monkeypatch):
    calls, sizes, plain = counted(Vocabulary, "_joined"), [0], np.isfinite
    with serving(folder[0]) as client:
        weights = client.service.models.current.tree.weights
        monkeypatch.setattr(np, "isfinite", lambda values: sizes.append(np.size(values)) or plain(values))
        put(client, 80, similar=folder[1].items.decode(np.array([3])))
        erased = folder[1].items.decode(np.array([7]))[0]
        assert client.request("DELETE", f"/v1/items/{erased}").status_code == 200
        assert len(client.service.models.current.tree._beside.rows_O) > 0, "some have no leaf"
    assert calls == []
    assert max(sizes) < weights.nodes.size


def test_new_items_of_a_category_look_at_its_items_once(folder, monkeypatch):
    asked, plain = [], LabelColumn.items_of
    monkeypatch.setattr(LabelColumn, "items_of", lambda own, codes: asked.append(codes) or plain(own, codes))
    monkeypatch.setattr(LabelColumn, "having", lambda *_: pytest.fail("a mask of the catalogue was made"))
    with serving(folder[0], by_category=True) as client:
        put(client, 5, category="c1|c2")
        put(client, 7, category="c1|c2")
        items = client.request("GET", "/v1/items").json()["items"]
    assert [each["source"] for each in items] == ["category"] * 7
    assert len(asked) == 1


def test_a_change_makes_and_writes_its_own_piece_alone(folder, monkeypatch, tmp_path):
    """Also in another process on the store, which reads no other piece."""
    store = MemoryStore()
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    frame = pl.DataFrame({"item_id": folder[1].items.ids, "title": [f"title {n}" for n in range(90)]})
    frame.write_parquet(tmp_path / "items.parquet")
    settings = {"items": tmp_path / "items.parquet", "by_category": True}
    with serving(folder[0], **settings) as client, serving(folder[0], **settings) as replica:
        put(client, 1000, category="c1", fields={"title": "new"})
        wait_until(lambda: len(replica.service.models.current.names.items) == 1090)
        made, written, read, looked_up = [], [], [], []
        monkeypatch.setattr(NumberIds, "find", _noting(looked_up, NumberIds.find))
        monkeypatch.setattr("beamwood.serve.items.widened.mixture_of", _noting(made, widened_module.mixture_of))
        monkeypatch.setattr(MemoryStore, "replace", _noting(written, MemoryStore.replace))
        monkeypatch.setattr(MemoryStore, "get", _noting(read, MemoryStore.get))
        body = {"fields": {"title": "other"}}
        assert client.request("PATCH", "/v1/items/-500", json=body).status_code == 200
        wait_until(lambda: replica.service.models.current.learned == client.service.models.current.learned)
        for each in (client, replica):
            asked = {"history": [], "filter": {"items": [-500, -501]}, "fields": ["title"], "k": 5}
            found = {item["item"]: item["fields"]["title"] for item in post(each, "/v1/recommend", asked)["items"]}
            assert found == {-500: "other", -501: "new"}
    assert len(made) <= 2 * 128
    assert max(len(ids) for _, ids in looked_up) <= 128
    texts = [text for call in written if call[1] == "catalogue" for text in call[4].values()]
    assert len(texts) == 2, "the document and a piece"
    assert 4 * sum(map(len, texts)) < sum(piece.size for piece in client.service.catalogue.learned.pieces["items"])
    assert {call[1].split("@")[0] for call in read if call[1].startswith("catalogue.")} == {"catalogue.items.3"}


def _noting(calls, plain):
    def noted(*args):
        calls.append(args)
        return plain(*args)

    return noted


@pytest.mark.parametrize("count", [0, 1, 40, 90])
def test_the_most_common_labels_are_counted_together(folder, count, monkeypatch):
    column = folder[1].columns.columns["category"]
    below = np.random.default_rng(count).permutation(90)[:count].astype(np.int32)
    expected = Counter(code for item in below.tolist() for code in column.of_item(item)).most_common(3)
    monkeypatch.setattr(LabelColumn, "of_item", lambda *_: pytest.fail("one by one"))
    assert column.most_common(below, 3) == expected


def test_new_labels_share_the_table_of_the_known(folder, monkeypatch, tmp_path):
    """A title of its own for each new item makes no table of all titles anew."""
    retriever = folder[1]
    frame = pl.DataFrame({"item_id": retriever.items.ids, "title": [f"title {n}" for n in range(90)]})
    frame.write_parquet(tmp_path / "items.parquet")
    with serving(folder[0], items=tmp_path / "items.parquet") as client:
        monkeypatch.setattr(TextIds, "of", lambda *_: pytest.fail("a table was made"))
        for number in range(3):
            item = {"item": -1 - number, "fields": {"title": f"new {number}"}}
            assert client.request("PUT", "/v1/items", json={"items": [item]}).status_code == 200
        asked = {"history": [], "filter": {"where": {"title": ["new 1", "title 7"]}}, "k": 5}
        found = post(client, "/v1/recommend", asked)["items"]
    assert {each["item"] for each in found} == {-2, retriever.items.decode(np.array([7]))[0]}


@pytest.mark.parametrize("known", [0, 1, 7])
def test_more_texts_are_as_one_table_of_all(known):
    texts = [f"text {n} é" for n in range(12)]
    ours = MoreTexts(MoreTexts(TextIds.of(pl.Series(texts[:known], dtype=pl.String)), texts[known:9]), texts[9:])
    plain = TextIds.of(pl.Series(texts))
    asked = ["text 9 é", "no", "text 0 é", "text 8 é", "text 9 é"]
    assert ours.find(asked).tolist() == plain.find(asked).tolist() == [9, -1, 0, 8, 9]
    assert ours.find([1]) is None
    assert ours.ids(np.array([11, 0, 8, 0])) == plain.ids(np.array([11, 0, 8, 0]))
    assert len(ours) == 12
    assert ours.series().to_list() == texts
    assert all((array == plain.arrays()[name]).all() for name, array in ours.arrays().items())
    ours.check()
