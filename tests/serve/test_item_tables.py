"""`serve --items` reads every table that `fit --items` reads: layouts, file endings, names, types of cells."""

import json
from datetime import timedelta

import polars as pl
import pytest

import beamwood
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.serve.answer.item_fields import ItemFields
from served import saved, serving

ITEMS = Vocabulary(pl.Series([7, 9, 30]))
FRAME = pl.DataFrame(
    {
        "sku": [30, 7, 8],
        "title": ["Coat; long", "Shoe", "Unknown"],
        "price": [20, 5, 1],
        "weight": [0.5, None, 2.0],
        "sale": [True, False, None],
        "note": [None, None, None],
    },
    schema_overrides={"note": pl.String},
)
ANSWERED = [
    {"title": "Shoe", "price": 5, "weight": None, "sale": False, "note": None},
    {"title": None, "price": None, "weight": None, "sale": None, "note": None},
    {"title": "Coat; long", "price": 20, "weight": 0.5, "sale": True, "note": None},
]


def parts(folder):
    folder.mkdir()
    for number in range(3):
        FRAME[number : number + 1].write_parquet(folder / f"part-{number}.parquet")


WRITERS = {
    "items.csv": FRAME.write_csv,
    "semicolons.csv": lambda path: FRAME.write_csv(path, separator=";"),
    "items.tsv": lambda path: FRAME.write_csv(path, separator="\t"),
    "items.parquet": FRAME.write_parquet,
    "items.jsonl": FRAME.write_ndjson,
    "items.arrow": FRAME.write_ipc,
    "parts": parts,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_table_is_read_as_by_fit(name, tmp_path):
    WRITERS[name](tmp_path / name)
    fields = ItemFields.read(tmp_path / name, ITEMS)
    assert fields.of([0, 1, 2], fields.names) == ANSWERED
    assert {"price", "weight", "sale", "title"} <= set(fields.columns())


def test_numbers_of_32_bits_are_shown_as_written(tmp_path):
    pl.DataFrame({"item_id": [7], "price": pl.Series([5.1], dtype=pl.Float32)}).write_parquet(
        tmp_path / "items.parquet"
    )
    fields = ItemFields.read(tmp_path / "items.parquet", ITEMS)
    assert fields.of([0, 1], ["price"]) == [{"price": 5.1}, {"price": None}]


def test_categories_are_numbers_where_the_fit_kept_numbers(tmp_path):
    """As pandas may write text."""
    pl.DataFrame({"item_id": [7], "price": pl.Series(["5,5"], dtype=pl.Categorical)}).write_parquet(
        tmp_path / "items.parquet"
    )
    fields = ItemFields.read(tmp_path / "items.parquet", ITEMS, kept={"price": "number"})
    assert fields.of([0], ["price"]) == [{"price": 5.5}]


def test_text_ids_keep_leading_zeros(tmp_path):
    (tmp_path / "items.csv").write_text("item_id,title\n007,Bond\n7,Seven\n")
    fields = ItemFields.read(tmp_path / "items.csv", Vocabulary(pl.Series(["007", "7"])))
    assert fields.of([0, 1], ["title"]) == [{"title": "Bond"}, {"title": "Seven"}]


def test_text_is_read_as_the_type_that_the_fit_kept(tmp_path):
    rows = 'item,price,sale,added,code,left\n7,"4,5",1,2026-01-05T10:00:00+01:00,007,3\n9,,0,,012,4\n'
    (tmp_path / "items.csv").write_text(rows)
    kept = {"price": "number", "sale": "truth", "added": "time", "code": "labels", "gone": "time"}
    fields = ItemFields.read(tmp_path / "items.csv", ITEMS, kept=kept)
    assert fields.of([0, 1], fields.names) == [
        {"price": 4.5, "sale": True, "added": "2026-01-05T09:00:00", "code": "007", "left": 3},
        {"price": None, "sale": False, "added": None, "code": "012", "left": 4},
    ]
    kinds = {name: column.kind for name, column in fields.columns().items()}
    assert kinds == {"price": "number", "sale": "truth", "added": "time", "code": "labels", "left": "number"}
    (tmp_path / "items.csv").write_text(rows.replace("2026-01-05T10:00:00+01:00", "soon"))
    with pytest.raises(
        InputError, match="--items: added:time: 1 cell is not of kind time, the first 'soon' of item '7'"
    ):
        ItemFields.read(tmp_path / "items.csv", ITEMS, kept=kept)


def test_text_of_the_fit_keeps_its_writing(tmp_path):
    """Labels of the fit such as "1.50" are found in a text file, whose other numbers are numbers."""
    (tmp_path / "items.csv").write_text("item,category,size,sold\n7,3,38,TRUE\n9,1.50,40.0,False\n")
    fields = ItemFields.read(tmp_path / "items.csv", ITEMS, kept={"category": "labels", "size": "labels"})
    assert fields.of([0, 1], fields.names) == [
        {"category": "3", "size": "38", "sold": True},
        {"category": "1.50", "size": "40.0", "sold": False},
    ]
    columns = fields.columns()
    assert columns["category"].codes_of("category", ["3", "1.50"]).min() >= 0
    assert columns["size"].codes_of("size", ["38", "40.0"]).min() >= 0


def test_typed_numbers_are_text_where_the_fit_kept_text(tmp_path):
    pl.DataFrame({"item": [7, 9], "size": [38, None]}).write_parquet(tmp_path / "items.parquet")
    fields = ItemFields.read(tmp_path / "items.parquet", ITEMS, kept={"size": "labels"})
    assert fields.of([0, 1], ["size"]) == [{"size": "38"}, {"size": None}]
    assert fields.columns()["size"].kind == "labels"


def test_categories_in_lists_are_those_of_the_fit(tmp_path):
    frame = pl.DataFrame({"item_id": [7, 9, 30], "category": [["shoes|summer", " sale "], [], None]})
    frame.write_parquet(tmp_path / "items.parquet")
    log = beamwood.read_log({"user": [1, 1, 2], "item": [7, 9, 30]})
    table = beamwood.Dataset.from_log(log, frame).item_table
    fitted = ItemColumns.of(table.filtered_by())["category"]
    served = ItemFields.read(tmp_path / "items.parquet", ITEMS).columns()["category"]
    assert served.lists().to_list() == fitted.lists().to_list() == [["shoes", "summer", "sale"], [], []]


@pytest.mark.parametrize("written", ["text", "whole numbers"])
def test_vectors_are_read_as_those_that_the_fit_kept(written, tmp_path):
    """A text file has them as JSON, and lists of integers would else be labels."""
    frame = pl.DataFrame({"item": [7, 9], "embedding": [[3, 4], None]})
    path = tmp_path / "items.parquet"
    frame.write_parquet(path)
    if written == "text":
        path = tmp_path / "items.csv"
        path.write_text('item,embedding\n7,"[3, 4]"\n9,\n')
    fields = ItemFields.read(path, ITEMS, kept={"embedding": "vector"})
    assert fields.columns()["embedding"].kind == "vector"
    assert fields.columns()["embedding"].similar("embedding", [[3, 4]], 5)[0].tolist() == [0]
    assert fields.of([0, 1], ["embedding"]) == [{"embedding": [3.0, 4.0]}, {"embedding": None}]
    pl.DataFrame({"item": [7, 9], "embedding": [[3, 4], [1]]}).write_parquet(tmp_path / "wrong.parquet")
    with pytest.raises(InputError, match="--items: item column 'embedding': 1 item has a vector of another length"):
        ItemFields.read(tmp_path / "wrong.parquet", ITEMS, kept={"embedding": "vector"})


def test_ids_are_in_the_column_of_the_fit(tmp_path):
    FRAME.rename({"sku": "Artikel"}).write_csv(tmp_path / "items.csv")
    with pytest.raises(InputError, match="no column of item ids; it has: Artikel, title"):
        ItemFields.read(tmp_path / "items.csv", ITEMS)
    assert ItemFields.read(tmp_path / "items.csv", ITEMS, ["Artikel"]).of([0], ["title"]) == [{"title": "Shoe"}]


def test_unreadable_tables_are_refused(tmp_path):
    (tmp_path / "items.parquet").write_bytes(b"no table")
    FRAME.with_columns(sku=pl.col("sku") + 100).write_csv(tmp_path / "others.csv")
    FRAME.with_columns(item_id=pl.col("sku"), item=pl.col("sku")).write_csv(tmp_path / "two.csv")
    for name, words in (
        ("items.parquet", "--items .*cannot be read"),
        ("none.csv", "--items .*does not exist"),
        ("others.csv", "names no item of the model"),
        ("two.csv", "several columns for the item"),
    ):
        with pytest.raises(InputError, match=words):
            ItemFields.read(tmp_path / name, ITEMS)


@pytest.fixture
def odd_table(tmp_path):
    """A model, and an item table with columns of types that are only shown."""
    folder, retriever = saved(tmp_path / "model")
    rows = len(retriever.items)
    columns = {
        "title": pl.Series([["a", "b"]] * rows),
        "name": pl.Series([timedelta(days=1)] * rows),
        "label": pl.Series([f"Name {row}" for row in range(rows)]),
        "photo": pl.Series([b"\xff"] * rows),
        "stock": pl.Series([1] * rows, dtype=pl.Int8),
        "^length$": pl.Series([timedelta(days=1)] * rows),
    }
    pl.DataFrame({"item_id": retriever.items.ids} | columns).write_parquet(tmp_path / "items.parquet")
    return folder, tmp_path / "items.parquet"


def test_a_title_is_text(odd_table):
    folder, items = odd_table
    with serving(folder, items=items) as client:
        page = client.get("/", params={"find": "name 1"})
    assert page.status_code == 200
    assert "Name 10" in page.text


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"stock": 2**63}, 200, ""),
        ({"stock": 10**400}, 422, "stock holds numbers up to 1.8e+308"),
        ({"^length$": 7}, 200, ""),
        ({"^length$": {"days": 1}}, 422, "the column ^length$ is of type Duration"),
        ({"photo": [1]}, 422, "the column photo is of type Binary"),
    ],
)
def test_cells_of_new_items_are_taken_or_refused(odd_table, fields, status, said):
    folder, items = odd_table
    with serving(folder, items=items) as client:
        body = json.dumps({"items": [{"item": 899}, {"item": 900, "fields": fields}]})
        answer = client.put("/v1/items", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status, answer.text
    assert said in answer.text
