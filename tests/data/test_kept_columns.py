"""Columns kept for filters: cells of a text file get the given type, and invalid cells are named."""

import datetime as dt

import numpy as np
import polars as pl
import pytest

from beamwood import read_log
from beamwood.data import Dataset, describe_log
from beamwood.data.kept_columns import kept_column
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.where import where_mask
from cli_cases import beamwood

ITEMS = """item,price,sale,added,code,spread,edge
a,5,true,2026-01-31,007,0.5,2026-01-31
b,30,false,2026-02-01T12:00:00+02:00,8,,0001-01-01T00:00:00+05:00
c,,True,,9,2,
"""
KEPT = ("price:number", "sale:truth", "added:time", "code", "spread:number")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log.csv").write_text("user,item\n" + "".join(f"u{n % 9},{'abc'[n % 3]}\n" for n in range(60)))
    (tmp_path / "items.csv").write_text(ITEMS)
    return tmp_path


def dataset(folder, *kept):
    return Dataset.from_log(read_log(folder / "log.csv"), folder / "items.csv", keep_columns=kept)


def test_truth_values_are_words_or_numbers():
    frame = pl.DataFrame({"item": range(7), "sale": ["true", "False", "1", "0", "1.0", "0.0", ""]})
    assert kept_column(frame, "sale:truth").to_list() == [True, False, True, False, True, False, None]


def test_columns_as_one_string_are_refused(folder):
    with pytest.raises(InputError, match=r"keep_columns='price' is a string; give a list, as \['price'\]"):
        Dataset.from_log(read_log(folder / "log.csv"), folder / "items.csv", keep_columns="price")


def test_a_column_with_the_name_of_the_ids_is_told():
    rows = pl.DataFrame({"user_id": [1, 1, 2], "item_id": [1, 2, 1]})
    items, users = (rows.select(pl.col(f"{role}_id").unique(), pl.lit("x").alias(role)) for role in ("item", "user"))
    log = read_log(rows)
    said = "the frame: column '{0}' is not read, as the ids in '{0}_id' take that name; rename it to use it"
    notes = Dataset.from_log(log, items, user_table=users).report["notes"]
    assert [said.format(role) for role in ("item", "user")] == [note for note in notes if "take that name" in note]
    assert said.format("item") in describe_log(rows, items)["notes"]
    with pytest.raises(InputError, match="the column 'item' cannot be kept: it holds the ids; keep another, or rename"):
        Dataset.from_log(log, items, keep_columns=["item"])
    with pytest.raises(InputError, match="the item table has no column 'price' to keep; none is known"):
        Dataset.from_log(log, items, keep_columns=["price"])


@pytest.mark.parametrize("kept", [np.array(KEPT), pl.Series(KEPT), list(KEPT), (), np.array([]), pl.Series([])])
def test_columns_are_accepted_in_every_kind_of_list(folder, kept):
    log = read_log(folder / "log.csv")
    with_items = Dataset.from_log(log, folder / "items.csv", keep_columns=kept)
    assert len(with_items.item_table.kept) == len(kept)
    if len(kept):
        with pytest.raises(InputError, match="keep_columns are of the item table"):
            Dataset.from_log(log, keep_columns=kept)
    else:
        assert Dataset.from_log(log, keep_columns=kept).item_table is None


def test_text_cells_get_the_given_type(folder):
    frame = dataset(folder, *KEPT).item_table.filtered_by()
    assert frame["price"].to_list() == [5, 30, None]
    assert frame["price"].dtype == pl.Int64
    assert frame["spread"].to_list() == [0.5, None, 2.0]
    assert frame["sale"].to_list() == [True, False, True]
    assert frame["added"].to_list() == [dt.datetime(2026, 1, 31), dt.datetime(2026, 2, 1, 10), None]
    assert frame["code"].to_list() == ["007", "8", "9"]
    columns = ItemColumns.of(frame)
    for where, found in (
        ({"price": {"lte": 20}}, [True, False, False]),
        ({"sale": True}, [True, False, True]),
        ({"added": {"gt": "2026-01-31"}}, [False, True, False]),
        ({"code": "007"}, [True, False, False]),
    ):
        assert where_mask(where, columns).tolist() == found, where


def test_a_typed_column_keeps_its_type(folder):
    typed = pl.read_csv(folder / "items.csv").select("item", "price").with_columns(pl.col("price").cast(pl.Int8))
    for kept in ("price", "price:number"):
        read = Dataset.from_log(read_log(folder / "log.csv"), typed, keep_columns=(kept,))
        assert read.item_table.filtered_by()["price"].dtype == pl.Int8
    with pytest.raises(InputError, match="price:time: the column is of type Int8; leave the kind out"):
        Dataset.from_log(read_log(folder / "log.csv"), typed, keep_columns=("price:time",))
    lists = typed.with_columns(pl.concat_list("price"))
    with pytest.raises(InputError, match=r"price:text: the column is of type List\(Int8\); leave the kind out"):
        Dataset.from_log(read_log(folder / "log.csv"), lists, keep_columns=("price:text",))


LONG = [2**63 + 1, 2**63 + 2, None]


@pytest.mark.parametrize("dtype", [pl.UInt64, pl.Int128, pl.Decimal(38, 0), pl.String])
def test_long_numbers_are_compared_exactly_or_refused(folder, dtype):
    def kept(values, wanted):
        items = pl.DataFrame({"item": ["a", "b", "c"], "seller": pl.Series(values, dtype=pl.Int128).cast(dtype)})
        read = Dataset.from_log(read_log(folder / "log.csv"), items, keep_columns=(wanted,))
        return ItemColumns.of(read.item_table.filtered_by())

    wanted = "seller:number" if dtype == pl.String else "seller"
    exact = kept([2**60 + 1, 2**60 + 2, None], wanted)
    assert where_mask({"seller": 2**60 + 1}, exact).tolist() == [True, False, False]
    assert where_mask({"seller": [2**60 + 1, 0.5]}, exact).tolist() == [True, False, False]
    with pytest.raises(InputError, match=r"9223372036854775809'? of item 'a'; .*keep it as seller:text"):
        kept(LONG, wanted)
    assert where_mask({"seller": str(LONG[0])}, kept(LONG, "seller:text")).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        (
            ("code:truth",),
            r"code:truth: 3 cells are not of kind truth, the first '007' of item 'a'; mend them, or .* code:text",
        ),
        (
            ("edge:time",),
            "edge:time: 1 cell is not of kind time, the first '0001-01-01T00:00:00\\+05:00' of item 'b'",
        ),
        (("sale:number",), "sale:number: 3 cells are not of kind number, the first 'true'"),
        (("price:numbr",), "the kind 'numbr' of the column 'price' is unknown; did you mean 'number'"),
        (("prise",), "no column 'prise' to keep"),
        (("price:number", "price:text"), "'price' is kept as two kinds"),
    ],
)
def test_invalid_columns_are_named(folder, kept, message):
    with pytest.raises(InputError, match=message):
        dataset(folder, *kept).item_table.filtered_by()


def test_numbers_without_a_type_are_text_and_fit_reports_it(folder, capsys):
    asked = ("--items", folder / "items.csv", "--keep-columns", "price,code", "--out", folder / "fit")
    assert beamwood("fit", folder / "log.csv", *asked, "--method", "popularity") == 0
    said = capsys.readouterr().err
    assert "--keep-columns price keeps numbers as text; write price:number" in said
    assert "--keep-columns code" not in said
    assert beamwood("recommend", folder / "fit", "--history", "[]", "--where", "price<=20") == 2
    assert "keep it as a number with `beamwood fit --keep-columns price:number`" in capsys.readouterr().err
