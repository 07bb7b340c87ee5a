"""The fields and content vectors of new items: shown as they were put, and what places an item."""

import datetime as dt
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.serve.items import catalogue
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.settings import ServeSettings
from beamwood.serve.store.memory import MemoryStore
from new_items import WIDE, answered, ask, ids, known, put
from retrieval_cases import retriever_of, vector_searcher
from served import NUM_ITEMS, item_table, saved, serving, wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("serve") / "model", text=True)


def test_fields_of_new_items_are_shown(folder, tmp_path):
    table = item_table(tmp_path / "items.parquet", folder[1])
    with serving(folder[0], items=table, **WIDE) as client:
        put(client, {"item": "new-1", "similar": known(folder, 3), "fields": {"title": "Fresh", "price": 3.0}})
        found = answered(client, history=known(folder, 4), filter={"items": ["new-1"]}, fields=["title"])
        assert found[0]["fields"] == {"title": "Fresh"}


def test_fields_that_are_no_columns_are_named(folder, tmp_path):
    """A misspelt field would be stored, and no filter would find the item by it."""
    table, fields = item_table(tmp_path / "items.parquet", folder[1]), {"title": "Fresh", "Price": 3.0, "price": 3.0}
    with serving(folder[0], items=table, **WIDE) as client:
        assert put(client, {"item": "new-1", "fields": fields})["unknown_fields"] == ["Price"]
        assert put(client, {"item": "new-2", "fields": {"price": 3.0}})["unknown_fields"] == []
        assert ask(client, "PATCH", "/v1/items/new-2", {"fields": {"prize": 3.0}})["unknown_fields"] == ["prize"]
        assert client.get("/v1/items").json()["unknown_fields"] == ["Price", "prize"]


CELLS = [
    ("price", 12.5, 12.5),
    ("price", 3, 3),
    ("price", 2e300, 2e300),
    ("since", "2026-01-31", "2026-01-31T00:00:00"),
    ("day", "2026-01-31", "2026-01-31"),
    ("sale", True, True),
    ("brand", "acme", "acme"),
    ("price", None, None),
    ("sizes", ["s", "m"], ["s", "m"]),
    ("sizes", "all", ["all"]),
    ("category", None, "c1|c2"),
]
WRONG = [("price", "dear"), ("price", True), ("sale", 1), ("since", "soon"), ("brand", 5), ("sizes", 5), ("day", 3)]


@pytest.fixture
def typed_table(folder, tmp_path):
    """An item table with a column of each type, with the smallest integer types."""
    count = len(folder[1].items)
    frame = pl.DataFrame({"item_id": folder[1].items.ids, "price": pl.Series([5] * count, dtype=pl.Int8)})
    day = pl.Series([dt.date(2026, 1, 1)] * count)
    frame = frame.with_columns(
        day=day, since=day.cast(pl.Datetime), sale=pl.lit(False), brand=pl.lit("old").cast(pl.Categorical),
        sizes=pl.Series([["s"]] * count), category=pl.lit("c1"),
    )  # fmt: skip
    frame.write_parquet(tmp_path / "items.parquet")
    return tmp_path / "items.parquet"


def test_fields_of_new_items_are_shown_as_they_were_put(folder, typed_table):
    with serving(folder[0], items=typed_table, **WIDE) as client:
        for name, value, shown in CELLS:
            put(client, {"item": "new-1", "category": "c1|c2", "fields": {} if value is None else {name: value}})
            found = answered(client, history=[], filter={"items": ["new-1"]}, fields=[name])
            assert found[0]["fields"] == {name: shown}
            others = answered(client, history=[], fields=["price"], k=3)
            assert {each["fields"]["price"] for each in others} == {5}


def test_fields_of_a_wrong_type_are_refused(folder, typed_table):
    with serving(folder[0], items=typed_table) as client:
        for name, value in WRONG:
            error = put(client, {"item": "new-1", "fields": {name: value}}, status=422)["error"]
            assert error["field"] == "items[0].fields"
            assert name in error["message"]
            assert not any(word in error["message"] for word in ("where", "builder", "schema"))
        put(client, {"item": "new-1"})
        error = ask(client, "PATCH", "/v1/items/new-1", {"fields": {"price": "dear"}}, 422)["error"]
        assert error["field"] == "fields"


@pytest.fixture(scope="module")
def models(folder, tmp_path_factory):
    """A folder with the model "kept", and "plain" without its columns."""
    root = tmp_path_factory.mktemp("models")
    replace(folder[1], columns=None).save(root / "plain")
    folder[1].save(root / "kept")
    return root


def test_a_cell_that_a_later_model_cannot_take_is_left_out_and_logged(models, folder, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(RequestLog, "said", lambda _, event, **more: said.append((event, more)))
    store, (twin, other) = f"sqlite:{tmp_path / 'events.db'}", known(folder, 3, 4)
    left_out = {"path": str(models / "kept"), "columns": ["price"], "count": 1, "items": ["odd"]}
    with serving(models / "plain", models_dir=models, store=store, **WIDE) as client:
        odd = {"item": "odd", "similar": [twin], "fields": {"price": "12 EUR", "stock": True}}
        put(client, odd, {"item": "even", "similar": [other], "fields": {"price": 7.25}})
        ask(client, "POST", "/v1/models/load", {"path": "kept"})
        priced = {"filter": {"where": {"price": 7.25}}}
        assert ids(client, history=[], **priced) == ["even"]
        assert ids(client, history=[], filter={"items": ["odd"], "where": {"price": {"missing": True}}}) == ["odd"]
        assert ids(client, history=[], filter={"items": ["odd"], "where": {"stock": True}}) == ["odd"]
        assert [more for event, more in said if event == "cells_left_out"] == [left_out]
        ask(client, "PATCH", "/v1/items/odd", {"available": False})
        assert ids(client, history=[], filter={"items": ["odd"]}) == []
        assert [event for event, _ in said].count("cells_left_out") == 1, "once for a model"
    said.clear()
    with serving(models / "kept", store=store, **WIDE) as client:
        wait_until(lambda: ids(client, history=[], **priced) == ["even"])
        assert ("cells_left_out", left_out) in said
        error = ask(client, "PATCH", "/v1/items/odd", {"fields": {"price": "13 EUR"}}, 422)["error"]
        assert error["field"] == "fields"


def test_a_cell_that_another_replica_cannot_take_does_not_keep_its_changes_away(models, folder, monkeypatch):
    store, (shown, hidden) = MemoryStore(), known(folder, 3, 4)
    monkeypatch.setattr(ServeSettings, "opened_store", lambda _: store)
    with serving(models / "plain", **WIDE) as first, serving(models / "kept", **WIDE) as second:
        put(first, {"item": "odd", "fields": {"price": "12 EUR"}})
        ask(first, "DELETE", f"/v1/items/{hidden}")
        wait_until(lambda: ids(second, history=[], filter={"items": [hidden, shown]}) == [shown])
        assert ask(second, "PUT", "/v1/items/availability", {"clear": [shown]})["changed"] == 1


def test_a_cell_that_the_model_of_an_arm_cannot_take_is_refused(models):
    with serving(models / "plain", models_dir=models) as client:
        arms = [{"model": "current", "share": 0.5}, {"model": "kept", "share": 0.5}]
        ask(client, "PUT", "/v1/experiments", {"name": "e", "arms": arms})
        error = put(client, {"item": "even"}, {"item": "odd", "fields": {"price": "12 EUR"}}, status=422)["error"]
        assert error["field"] == "items[1].fields"
        assert client.get("/v1/items").json()["items"] == []


def test_an_item_is_placed_by_its_content(tmp_path):
    retriever = retriever_of(vector_searcher(NUM_ITEMS))
    content = np.random.default_rng(3).normal(size=(NUM_ITEMS, 4)).astype(np.float32)
    columns = retriever.columns.columns | {"embedding": VectorColumn.of(content)}
    replace(retriever, columns=ItemColumns(NUM_ITEMS, columns)).save(tmp_path / "model")
    twin, other = retriever.items.decode(np.array([7, 8]))
    with serving(tmp_path / "model", **WIDE) as client:
        done = put(client, {"item": "new", "fields": {"embedding": content[7].tolist(), "price": 3}})
        assert [each["source"] for each in done["items"]] == ["vector"]
        stored = client.service.catalogue.new_items["new"]
        assert stored.fields == {"price": 3}
        assert len(stored.alike) <= 30
        assert stored.alike[0] == twin
        ask(client, "PATCH", "/v1/items/new", {"fields": {"embedding": content[8].tolist()}})
        assert client.service.catalogue.new_items["new"].alike[0] == other
        ask(client, "PATCH", "/v1/items/new", {"fields": {"price": 4}})
        assert client.service.catalogue.new_items["new"].alike[0] == other
        ask(client, "PATCH", "/v1/items/new", {"fields": {"embedding": None}})
        assert not client.service.catalogue.new_items["new"].alike
        failed = put(client, {"item": "wrong", "fields": {"embedding": [1, 2]}}, status=422)
        assert "embedding is not a list of 4 finite numbers" in failed["error"]["message"]
        # What an operator names counts before, and the vectors are of known items only.
        done = put(client, {"item": "new", "similar": [twin], "fields": {"embedding": content[8].tolist()}})
        assert [each["source"] for each in done["items"]] == ["similar"]
        assert (
            put(client, {"item": "second", "fields": {"embedding": content[9].tolist()}})["items"][0]["source"]
            == "vector"
        )


def test_similar_content_is_looked_up_once(tmp_path, monkeypatch):
    """Among many items that takes long, and changes of other processes would come first each time."""
    retriever = retriever_of(vector_searcher(NUM_ITEMS))
    content = np.random.default_rng(3).normal(size=(NUM_ITEMS, 4)).astype(np.float32)
    replace(retriever, columns=ItemColumns(NUM_ITEMS, {"embedding": VectorColumn.of(content)})).save(tmp_path / "model")
    similar, write, asked, tried = VectorColumn.similar, catalogue.write_learned, [], []

    def counted(*arguments):
        asked.append(1)
        return similar(*arguments)

    def late(*arguments):
        tried.append(1)
        return write(*arguments) if len(tried) == 3 else None

    monkeypatch.setattr(VectorColumn, "similar", counted)
    monkeypatch.setattr(catalogue, "write_learned", late)
    with serving(tmp_path / "model", **WIDE) as client:
        done = put(client, {"item": "new", "fields": {"embedding": content[7].tolist()}})
        assert [each["source"] for each in done["items"]] == ["vector"]
    assert (len(tried), len(asked)) == (3, 1)


def test_the_item_table_of_a_server_may_have_the_vectors(tmp_path):
    folder, retriever = saved(tmp_path / "model", text=True)
    content = np.random.default_rng(3).normal(size=(NUM_ITEMS, 4))
    frame = pl.DataFrame({"item_id": retriever.items.ids, "embedding": content.tolist()})
    frame.write_parquet(tmp_path / "items.parquet")
    with serving(folder, items=tmp_path / "items.parquet") as client:
        done = put(client, {"item": "new", "fields": {"embedding": content[7].tolist()}})
        assert [each["source"] for each in done["items"]] == ["vector"]
        assert client.service.catalogue.new_items["new"].alike[0] == retriever.items.decode(np.array([7]))[0]
