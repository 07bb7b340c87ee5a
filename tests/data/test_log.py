"""Reading: every format gives the same log, and every invalid input an error that names the file and the fix."""

import datetime as dt
import gzip

import numpy as np
import pandas as pd
import polars as pl
import pytest

from beamwood.data import ColumnNames, Dataset, read_log
from beamwood.errors import InputError

FRAME = pl.DataFrame(
    {
        "user_id": [3, 1, 3, 1, 2],
        "item_id": ["b", "a", "c", "a", "007"],
        "timestamp": [5, 9, 2, 9, 1],
        "rating": [1.0, 2.0, 3.0, 2.0, 5.0],
    }
)


def write_all(folder):
    FRAME.write_parquet(folder / "log.parquet")
    FRAME.write_csv(folder / "log.csv")
    FRAME.write_csv(folder / "log.tsv", separator="\t")
    (folder / "log.csv.gz").write_bytes(gzip.compress(FRAME.write_csv().encode()))
    FRAME.write_ipc(folder / "log.arrow")
    header = {
        "user_id": "user_id:token",
        "item_id": "item_id:token",
        "timestamp": "timestamp:float",
        "rating": "rating:float",
    }
    FRAME.rename(header).write_csv(folder / "log.inter", separator="\t")
    FRAME.write_ndjson(folder / "log.jsonl")
    (folder / "log.ndjson.gz").write_bytes(gzip.compress((folder / "log.jsonl").read_bytes()))
    ends = ("parquet", "csv", "tsv", "csv.gz", "arrow", "inter", "jsonl", "ndjson.gz")
    return [folder / f"log.{end}" for end in ends]


def test_every_source_gives_the_same_data(tmp_path):
    sources = [
        *write_all(tmp_path),
        FRAME,
        FRAME.lazy(),
        FRAME.to_arrow(),
        pd.DataFrame(FRAME.to_dict(as_series=False)),
    ]
    for source in sources:
        log = read_log(source)
        assert log.report.rows == 5
        assert log.report.duplicates == 1
        data = Dataset.from_log(log)
        assert data.users.ids.to_list() == [1, 2, 3]
        assert data.items.ids.to_list() == ["007", "a", "b", "c"]
        assert [data.items.decode(row) for row in data.histories] == [["a", "a"], ["007"], ["c", "b"]]
        assert data.fingerprint() == Dataset.from_log(read_log(FRAME)).fingerprint()


def test_iso_times_and_ties(tmp_path):
    frame = pl.DataFrame(
        {"user": [1, 1, 1, 2], "item": [1, 2, 3, 4], "date": ["2024-01-02", "2024-01-01", "2024-01-02", "2023-05-05"]}
    )
    frame.write_csv(tmp_path / "log.csv")
    data = Dataset.from_log(read_log(tmp_path / "log.csv"))
    first, *tied = data.items.decode(data.histories[0])
    assert (first, sorted(tied)) == (2, [1, 3])


def test_without_times_the_row_order_is_used():
    for frame in (FRAME.drop("timestamp"), FRAME.with_columns(timestamp=pl.lit(None, pl.Int64))):
        data = Dataset.from_log(read_log(frame))
        assert data.items.decode(data.histories[2]) == ["b", "c"]
        assert data.times is None


def test_given_columns_take_precedence():
    frame = FRAME.rename({"user_id": "who", "item_id": "what"})
    log = read_log(frame, columns=ColumnNames(user="who", item="what"))
    assert log.report.columns == {"user": "who", "item": "what", "time": "timestamp", "weight": "rating"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"user_id": [1, None, 2, 2, None]}, r"'user_id' has 2 of 5 rows with no user id, the first None in row 2"),
        ({"item_id": ["a", "", "b", "c", "d"]}, r"'item_id' has 1 of 5 rows with no item id, the first '' in row 2"),
        ({"timestamp": ["1", "x", "3", "4", "5"]}, r"1 of 5 times that cannot be read, the first 'x' in row 2"),
        ({"timestamp": [1, None, 3, 4, 5]}, r"1 of 5 times that are missing, the first in row 2; fill them"),
        ({"user_id": [1.5, 1, 2, 2, 1]}, "with fractions"),
        ({"user_id": [1, 1, 1, 1, 1]}, "has 1 user; splits"),
    ],
)
def test_wrong_values(change, message):
    frame = FRAME.with_columns(pl.Series(name, values) for name, values in change.items())
    with pytest.raises(InputError, match=message):
        Dataset.from_log(read_log(frame))


def test_wrong_files(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_log(tmp_path / "none.csv")
    with pytest.raises(InputError, match="is a folder without files of a known ending"):
        read_log(tmp_path)
    (tmp_path / "log.xyz").write_text("a")
    with pytest.raises(InputError, match=r"log\.xyz has an unknown ending; if it is text, say"):
        read_log(tmp_path / "log.xyz")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"broken\.parquet cannot be read"):
        read_log(tmp_path / "broken.parquet")
    (tmp_path / "empty.csv").write_text("user_id,item_id\n")
    with pytest.raises(InputError, match="has no rows"):
        read_log(tmp_path / "empty.csv")
    (tmp_path / "nothing.csv").write_text("")
    with pytest.raises(InputError, match=r"nothing\.csv cannot be read"):
        read_log(tmp_path / "nothing.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(
        InputError, match=r"has no user column and no item column; it has: a, b\. Name them with --user"
    ):
        read_log(tmp_path / "other.csv")
    with pytest.raises(InputError, match="no column 'who' for the user; it has: user_id"):
        read_log(FRAME, columns=ColumnNames(user="who"))
    with pytest.raises(InputError, match="the int cannot be read as a table"):
        read_log(42)


def test_item_table():
    items = pl.DataFrame({"item_id": ["c", "a", "b", "z"], "category": ["x|y", "y", None, "x"]})
    with pytest.raises(InputError, match=r"1 item of the log \(1 row\) is not in the item table, such as \['007'\]"):
        Dataset.from_log(read_log(FRAME), items)
    data = Dataset.from_log(read_log(FRAME), items, unlisted="keep")
    assert data.items.ids.to_list() == ["007", "a", "b", "c", "z"]
    assert data.item_table.categories.tolist() == [-1, 1, -1, 0, 0]
    assert data.item_table.category_labels.to_list() == [None, "y", None, "x|y", "x"]
    assert data.report["items_not_in_table"] == 1
    assert data.report["items_without_interactions"] == 1
    with pytest.raises(InputError, match="lists 1 item twice"):
        Dataset.from_log(read_log(FRAME), pl.concat([items, items.head(1)]))
    with pytest.raises(InputError, match="has no item column; it has: x"):
        Dataset.from_log(read_log(FRAME), pl.DataFrame({"x": [1]}))
    for ids in (["a", None], [1, None]):
        with pytest.raises(InputError, match=r"1 of 2 rows with no item id.*; fill them, or leave these rows out$"):
            Dataset.from_log(read_log(FRAME), pl.DataFrame({"item_id": ids}))


def test_boundary_column():
    frame = pl.DataFrame(
        {
            "user": [1, 1, 1, 2, 2],
            "item": [1, 2, 3, 4, 5],
            "part": ["history", "future", "future", "history", "future"],
        }
    )
    data = Dataset.from_log(read_log(frame, columns=ColumnNames(boundary="part")))
    assert np.array_equal(data.in_history, [True, False, False, True, False])
    floats = frame.with_columns(part=pl.Series([1.0, 0.0, 0.0, 1.0, 0.0]))
    for same in (floats, floats.cast({"part": pl.String})):
        again = Dataset.from_log(read_log(same, columns=ColumnNames(boundary="part")))
        assert np.array_equal(again.in_history, data.in_history)
    with pytest.raises(InputError, match="1 of 5 values that say neither"):
        read_log(
            frame.with_columns(part=pl.Series(["history", "maybe", "1", "0", "true"])),
            columns=ColumnNames(boundary="part"),
        )


def with_items(**columns):
    log = read_log(pl.DataFrame({"user": [1, 1, 2, 2], "item": [0, 1, 2, 3]}))
    return Dataset.from_log(log, pl.DataFrame({"item": range(4), **columns}))


@pytest.mark.parametrize(
    ("cells", "labels", "first"),
    [
        ([["a", "b"], ["b"], [], None], ["a|b", "b", None, None], [0, 1, -1, -1]),
        ([["a", None], [None], ["c"], ["a"]], ["a", None, "c", "a"], [0, -1, 1, 0]),
        ([[], [], [], []], [None] * 4, [-1] * 4),
        ([[7], [8, 7], None, []], ["7", "8|7", None, None], [0, 1, -1, -1]),
    ],
)
def test_categories_in_lists(cells, labels, first):
    table = with_items(category=cells).item_table
    assert table.category_labels.to_list() == labels
    assert table.categories.tolist() == first


@pytest.mark.parametrize("cell", [dt.timedelta(1), b"\xff", {"a": 1}, [["a"]]])
def test_categories_of_unsupported_types_are_refused(cell):
    with pytest.raises(InputError, match=r"column 'category' of type .* holds no categories; make them text"):
        with_items(category=[cell] * 4)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([[1.0], [2.0], None, [float("nan")]], "'v': 1 item has null, NaN or infinity .* such as item 3; mend"),
        ([[1.0], None, [None], [float("inf")]], "'v': 2 items have null, NaN or infinity .* such as item 2; mend"),
        ([[1.0], [], [1.0, 2.0], None], "'v': 1 item has a vector of another length than 1, .* such as item 2"),
        ([[], [], [], []], "holds no lists of numbers"),
        ([["a"]] * 4, "holds no lists of numbers"),
        ([1.0] * 4, "holds no lists of numbers"),
    ],
)
def test_incomplete_vectors_are_refused(cells, message):
    with pytest.raises(InputError, match=message):
        with_items(v=cells).item_table.vectors("v")
    good = with_items(v=pl.Series([[1, 2], [3, 4], None, [5, 6]], dtype=pl.Array(pl.Int8, 2)))
    assert good.item_table.vectors("v").tolist() == [[1, 2], [3, 4], [0, 0], [5, 6]]


@pytest.mark.parametrize(
    ("dtype", "listed", "extra"),
    [
        (pl.UInt64, [0, 1, 2, 3, -1], 1),
        (pl.Int64, [0, 1, 2, 3, 300], 0),
        (pl.Int64, ["0", "1", "2", "3", "B0", "007", "+1"], 3),
        (pl.Int64, ["0", "1", "2", "3", "4"], 0),
    ],
)
def test_item_tables_with_other_ids_than_the_log(dtype, listed, extra):
    log = read_log(pl.DataFrame({"user": [1, 1, 2, 2], "item": [0, 1, 2, 3]}).with_columns(pl.col("item").cast(dtype)))
    data = Dataset.from_log(log, pl.DataFrame({"item": listed}))
    assert data.report["items_of_another_type"] == extra
    assert len(data.items) == len(listed) - extra
    assert data.items.ids.dtype == dtype
    people = Dataset.from_log(log, user_table=pl.DataFrame({"user": ["1", "2", "x"], "age": [1, 2, 3]}))
    assert people.user_table["age"].to_list() == [1, 2]
    assert people.report["users_of_another_type"] == 1


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (
            ["B0", "007"],
            r"its item ids, such as \['B0', '007'\], are not of type Int64, .*; write them as the log does",
        ),
        (["0", "1", "2", "03"], r"such as \[3\] \(it has ids of another type, such as \['03'\]\); add them"),
    ],
)
def test_ids_in_another_notation_do_not_match(listed, message):
    with pytest.raises(InputError, match=message):
        with_items_of(listed)


def test_ids_of_another_kind_do_not_match():
    log = read_log(pl.DataFrame({"user": [1, 2], "item": [dt.date(2020, 1, 1), dt.date(2020, 1, 2)]}))
    with pytest.raises(InputError, match="are not of type Date"):
        Dataset.from_log(log, pl.DataFrame({"item": ["2020-01-01", "x"]}))


def test_a_table_with_several_id_columns():
    several = pl.DataFrame({"item": range(10, 14), "item_id": range(4)})
    rows = {"uid": [1, 1, 2, 2], "asin": [0, 1, 2, 3]}
    log = read_log(pl.DataFrame(rows))
    with pytest.raises(InputError, match="several columns for the item: item, item_id; choose one with --items-column"):
        Dataset.from_log(log, several)
    assert len(Dataset.from_log(log, several, item_column="item_id").items) == 4
    assert len(Dataset.from_log(log, pl.DataFrame({"id": range(4), "item": range(4)})).items) == 4
    users = pl.DataFrame({"user": [1, 2], "user_id": [1, 2]})
    with pytest.raises(InputError, match="several columns for the user: user, user_id; keep one of them"):
        Dataset.from_log(log, user_table=users)


def test_among_several_id_columns_the_logs_name_is_used():
    log = read_log(pl.DataFrame({"user": [1, 1, 2, 2], "item_id": [0, 1, 2, 3]}))
    several = pl.DataFrame({"asin": ["a", "b", "c", "d", "e"], "item_id": range(5)})
    assert Dataset.from_log(log, several).items.ids.to_list() == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="not of type Int64"):
        Dataset.from_log(log, several, item_column="asin")
    users = pl.DataFrame({"uid": ["x", "y"], "user": [1, 2], "age": [30, 40]})
    assert Dataset.from_log(log, user_table=users).user_table["age"].to_list() == [30, 40]


def with_items_of(listed):
    log = read_log(pl.DataFrame({"user": [1, 1, 2, 2], "item": [0, 1, 2, 3]}))
    return Dataset.from_log(log, pl.DataFrame({"item": listed}))


def test_single_precision_weights_reach_the_bound_that_they_were_written_with():
    frame = FRAME.with_columns(rating=pl.Series([0.7, 0.6, 0.8, 0.7, 0.1], dtype=pl.Float32))
    assert read_log(frame, min_weight=0.7).frame["item"].to_list() == ["b", "c", "a"]
