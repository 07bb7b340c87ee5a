"""Every kind of source gives the same log; every invalid one gives one line that names the cell and the fix."""

import datetime as dt
import gzip
import time
from datetime import datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.data import ColumnNames, describe_log, read_log
from beamwood.errors import InputError

FRAME = pl.DataFrame(
    {
        "user_id": [2, 1, 2, 1],
        "item_id": ["b", "a", "a", "b"],
        "timestamp": [5, 3, 4, 3],
        "rating": [1.0, 2.5, 3.0, 4.0],
    }
)
ROWS = [(2, "b", 5), (1, "a", 3), (2, "a", 4), (1, "b", 3)]


def write_inter(frame, path):
    names = {
        "user_id": "user_id:token",
        "item_id": "item_id:token",
        "timestamp": "timestamp:float",
        "rating": "rating:float",
    }
    frame.rename(names).write_csv(path, separator="\t")


def write_stream(frame, path):
    frame.write_ipc_stream(path)


WRITERS = {
    "log.parquet": pl.DataFrame.write_parquet,
    "log.pq": pl.DataFrame.write_parquet,
    "log.csv": pl.DataFrame.write_csv,
    "log.csv.gz": lambda frame, path: path.write_bytes(gzip.compress(frame.write_csv().encode())),
    "log.csv.zst": lambda frame, path: frame.write_csv(path, compression="zstd"),
    "log.tsv": lambda frame, path: frame.write_csv(path, separator="\t"),
    "log.feather": pl.DataFrame.write_ipc,
    "log.arrow": write_stream,
    "log.inter": write_inter,
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_file_format_gives_the_same_log(name, tmp_path):
    WRITERS[name](FRAME, tmp_path / name)
    log = read_log(tmp_path / name)
    assert log.frame.rows() == ROWS
    assert log.frame.columns == ["user", "item", "time"]
    assert log.report.columns == {"user": "user_id", "item": "item_id", "time": "timestamp", "weight": "rating"}


@pytest.mark.parametrize(
    "convert", [pl.DataFrame.to_pandas, pl.DataFrame.to_arrow, pl.DataFrame.lazy, pl.DataFrame.clone]
)
def test_every_frame_gives_the_same_log(convert):
    assert read_log(convert(FRAME)).frame.rows() == ROWS


@pytest.mark.parametrize(
    ("user", "item"),
    [("user", "item"), ("USER", "Item"), ("uid", "itemid"), ("visitorid", "movieId"), ("session_id", "product_id")],
)
def test_aliases(user, item):
    log = read_log(pl.DataFrame({user: [1], item: [2], "other": [3]}))
    assert log.frame.select("user", "item").rows() == [(1, 2)]


def test_a_session_column_is_the_user_only_without_a_user_column():
    frame = pl.DataFrame({"session_id": [9], "user_id": [1], "item": [2], "date": [7], "time": [8]})
    log = read_log(frame)
    assert log.frame.rows() == [(1, 2, 8)]
    assert read_log(frame, columns=ColumnNames(user="session_id", time="date")).frame.rows() == [(9, 2, 7)]


@pytest.mark.parametrize(
    ("frame", "columns", "message"),
    [
        (
            {"who": [1], "item": [2]},
            None,
            r"no user column; it has: who, item\. Name it with --user-column",
        ),
        ({"user": [1], "what": [2]}, None, r"no item column; it has: user, what\. Name it with --item-column"),
        (
            {"user": [1], "uid": [1], "item": [2]},
            None,
            r"several columns for the user: user, uid; choose one with --user-column",
        ),
        (
            {"user": [1], "item": [2], "ts": [1], "time": [1]},
            None,
            r"several columns for the time: ts, time; .*--time-column",
        ),
        (
            {"both": [1], "item": [2]},
            ColumnNames(user="both", item="both"),
            r"'both' is named for both the user and the item; name another with --user-column or --item-column",
        ),
        ({"user": [1], "item": [2]}, ColumnNames(item="itm"), r"no column 'itm' for the item; it has: user, item"),
    ],
)
def test_ambiguous_columns_are_refused(frame, columns, message):
    with pytest.raises(InputError, match=message):
        read_log(pl.DataFrame(frame), columns=columns)


def test_text_ids_become_integers_only_if_nothing_is_lost(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("user,item\n007,1\n12,2\n")
    assert read_log(path).frame.select("user", "item").rows() == [("007", 1), ("12", 2)]
    path.write_text("user,item\n7,1\n-12,2\n")
    assert read_log(path).frame.select("user", "item").rows() == [(7, 1), (-12, 2)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([30, 10, 20], "whole numbers"),
        ([3.0, 1.0, 2.0], "whole numbers"),
        ([1.7e9 + 0.3, 1.7e9 + 0.1, 1.7e9 + 0.2], "numbers"),
        (["3", "1", "2"], "whole numbers"),
        (["1.3", "1.1", "1.2e0"], "numbers"),
        ([dt.date(2024, 3, 1), dt.date(2024, 1, 1), dt.date(2024, 2, 1)], "date"),
        ([dt.datetime(2024, 1, 1, 3), dt.datetime(2024, 1, 1, 1), dt.datetime(2024, 1, 1, 2)], "date and time"),
        (["2024-01-03", "2024-01-01", "2024-01-02"], "ISO 8601 text"),
        ([str(1_700_000_000_000_000_000 + late) for late in (3, 1, 2)], "whole numbers"),
        (["2024-01-01T03:00Z", "2024-01-01T02:59+00:00", "20240101T025930Z"], "ISO 8601 text"),
        (["20240101T0300", "20240101T010203", "20240101T030203+0100"], "ISO 8601 text"),
        (["2024-01-01T03:00:00.5Z", "2024-01-01 02:59", "2024-01-01T05:00:00+02:00"], "ISO 8601 text"),
    ],
)
def test_times_of_any_kind_keep_their_order(values, kind):
    log = read_log(pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "time": values}))
    assert log.frame["time"].dtype == pl.Int64
    assert log.frame["time"].arg_sort().to_list() == [1, 2, 0]
    assert log.report.time == f"'time', {kind}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["2024-01-01", "soon", "2024-02-30"],
            r"'time' has 2 of 3 times that cannot be read, the first 'soon' in row 2",
        ),
        (["1", "2", "x"], r"1 of 3 .* the first 'x' in row 3"),
        ([1.0, float("nan"), 2.0], r"1 of 3 times that are missing, the first in row 2; fill them"),
        ([1, None, 2], r"1 of 3 times that are missing, the first in row 2; fill them"),
        ([[1], [2], [3]], r"type List\(Int64\); use numbers, dates or ISO 8601"),
    ],
)
def test_wrong_times(values, message):
    with pytest.raises(InputError, match=message):
        read_log(pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "time": values}))


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        ([1_700_000_000, 0, 1_700_000_001], "0"),
        ([1_700_000_000_000, -1, 0], "-1"),
        (["1700000000.25", "17.5", "1700000001.5"], "17.5"),
        (["2024-01-01", "1970-01-01 00:00:00", "1969-12-31 23:59:59"], "1970-01-01 00:00:00"),
        ([dt.datetime(2024, 1, 1), dt.datetime(1970, 1, 1), dt.datetime(2024, 1, 2)], "1970-01-01 00:00:00"),
        (["2024-01-01", "0001-01-01 00:00:00", "2024-01-02"], "0001-01-01 00:00:00"),
        ([dt.date(2024, 1, 1), dt.date(1900, 1, 1), dt.date(2024, 1, 2)], "1900-01-01"),
    ],
)
def test_times_of_the_first_day_are_reported(values, cell):
    """An empty time is often written as 0, and would silently be the first of a history."""
    frame = pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "time": values})
    told = [note for note in read_log(frame).report.notes if " a time of 1" in note]
    assert len(told) == 1
    assert f"the first {cell} in row 2" in told[0]
    assert told[0].endswith("use --missing drop")


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, 2],
        [0, 86_400, 1],
        [dt.datetime(1970, 1, 1)] * 3,
        [1_700_000_000] * 3,
        ["1969-01-01", "1905-01-01", "2001-01-01"],
    ],
)
def test_other_small_times_are_not_reported(values):
    frame = pl.DataFrame({"user": [1, 1, 1], "item": [1, 2, 3], "time": values})
    assert " a time of 1" not in str(read_log(frame).report.notes)


def test_wide_integer_types_with_small_values_are_accepted():
    log = read_log(pl.DataFrame({"user": pl.Series([1, 2], dtype=pl.Int128), "item": [1, 2]}))
    assert log.frame["user"].dtype == pl.Int64


def test_a_text_file_may_have_unnamed_columns(tmp_path):
    (tmp_path / "log.csv").write_text("user,item,,\n1,2,,\n")
    assert read_log(tmp_path / "log.csv").frame.rows() == [(1, 2)]


def test_without_times_the_row_order_is_used_and_reported():
    for frame in ({"user": [1, 1], "item": [1, 2]}, {"user": [1, 1], "item": [1, 2], "time": [None, None]}):
        log = read_log(pl.DataFrame(frame))
        assert log.frame.columns == ["user", "item"]
        assert "the order of a user's rows" in log.report.time


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"user": [1], "item": [dt.timedelta(1)]}, r"'item' of type Duration.* holds no item ids; use numbers"),
        (
            {"user": [1, 1], "item": pl.Series([1, 2**70], dtype=pl.Int128)},
            r"'item' has 1 of 2 item ids beyond 64 bits, .* in row 2; write them as text",
        ),
        ({"user": [1, None], "item": [1, 2]}, r"'user' has 1 of 2 rows with no user id, the first None in row 2"),
        ({"user": [1, 2], "item": [None, "a"]}, r"'item' has 1 of 2 rows with no item id, the first None in row 1"),
        ({"user": [], "item": []}, r"has no rows"),
        ({"user": [1.5], "item": [1]}, r"'user' holds user ids with fractions"),
        ({"user": [[1]], "item": [1]}, r"type List"),
        (
            {"user": [1, 1], "item": [1, 2], "rating": [1.0, float("nan")]},
            r"'rating' has 1 of 2 weights that are missing or not finite, the first nan in row 2",
        ),
        ({"user": [1, 1], "item": [1, 2], "rating": [float("inf"), 1.0]}, r"first inf in row 1"),
        ({"user": [1, 1], "item": [1, 2], "rating": [1.0, None]}, r"first None in row 2"),
        (
            {"user": [1, 1], "item": [1, 2], "rating": ["good", "2"]},
            r"first 'good' in row 1; mend them or name another with --weight-column",
        ),
    ],
)
def test_wrong_cells(frame, message):
    with pytest.raises(InputError, match=message):
        read_log(pl.DataFrame(frame, strict=False), min_weight=1 if "rating" in frame else None)


def test_only_rows_of_at_least_min_weight_are_kept(tmp_path):
    FRAME.write_csv(tmp_path / "log.csv")
    for source in (FRAME, tmp_path / "log.csv"):
        log = read_log(source, min_weight=2.5)
        assert log.frame.rows() == ROWS[1:]
        assert (log.report.rows, log.report.left_out) == (4, 1)
        assert "weight: 'rating' of at least 2.5: 3 rows kept, 1 left out; each row counts once" in log.report.lines()
    for dtype in (pl.Float32, pl.Float64, pl.String):
        tenths = FRAME.with_columns(rating=pl.Series([0.1, 0.7, 0.6, 0.7]).cast(dtype))
        assert len(read_log(tenths, min_weight=0.7).frame) == 2
    unread = read_log(FRAME.with_columns(rating=pl.Series([None, 1.0, float("nan"), 2.0])))
    assert unread.frame.rows() == ROWS
    assert unread.report.weight.endswith(
        "not used; --min-weight keeps the rows of at least a value; each row counts once"
    )


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Int8, pl.String])
def test_rows_with_a_weight_below_0_are_counted(dtype):
    rated = FRAME.with_columns(rating=pl.Series([-1, 4, -2, 0]).cast(dtype))
    assert read_log(rated).report.weight.endswith("each row counts once, also the 2 below 0")
    assert "below 0" not in read_log(rated, min_weight=-1).report.weight
    listed = FRAME.with_columns(rating=pl.Series([[1]] * 4))
    assert read_log(listed).report.weight.endswith("each row counts once")


@pytest.mark.parametrize(
    ("drop", "least", "message"),
    [
        ([], 4.5, r"no row has a 'rating' of at least min_weight=4\.5, the largest is 4; lower it"),
        (["rating"], 4, r"no column of weights for min_weight=4; .* --weight-column"),
        ([], float("nan"), "min_weight=nan is not a finite number"),
    ],
)
def test_wrong_least_weights(drop, least, message):
    with pytest.raises(InputError, match=message):
        read_log(FRAME.drop(drop), min_weight=least)


def test_wrong_files(tmp_path):
    def fails(path, message):
        with pytest.raises(InputError, match=message):
            read_log(path)

    fails(tmp_path / "none.parquet", r"none\.parquet does not exist")
    fails(tmp_path, "is a folder without files of a known ending")
    (tmp_path / "log.sav").write_text("x")
    fails(tmp_path / "log.sav", "is of a kind that is not read; write it as Parquet")
    (tmp_path / "empty.csv").write_text("")
    fails(tmp_path / "empty.csv", "cannot be read: it is empty")
    (tmp_path / "header.csv").write_text("user,item\n")
    fails(tmp_path / "header.csv", "has no rows")
    (tmp_path / "twice.csv").write_text("user,item,item\n1,2,3\n")
    fails(tmp_path / "twice.csv", r"twice\.csv has several columns named 'item'; give each its own name")
    (tmp_path / "twice.inter").write_text("user:token\titem:token\titem:float\n1\t2\t3\n")
    fails(tmp_path / "twice.inter", r"twice\.inter .*column 'item'")
    FRAME.write_parquet(tmp_path / "cut.parquet")
    whole = (tmp_path / "cut.parquet").read_bytes()
    (tmp_path / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    fails(tmp_path / "cut.parquet", r"cut\.parquet cannot be read")
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(FRAME.write_csv().encode())[:30])
    fails(tmp_path / "cut.csv.gz", r"cut\.csv\.gz cannot be read")
    (tmp_path / "noise.feather").write_bytes(b"ARROW1\0\0" + b"noise" * 20)
    fails(tmp_path / "noise.feather", r"noise\.feather cannot be read")
    fails(42, "the int cannot be read as a table")


def test_pandas_whole_numbers_with_gaps_and_mixed_objects():
    assert read_log(pd.DataFrame({"user": [1.0, 2.0], "item": [1, 2]})).frame["user"].to_list() == [1, 2]
    with pytest.raises(InputError, match="cannot be read as a table"):
        read_log(pd.DataFrame({"user": [1, "a"], "item": [1, 2]}))
    said = r"column 'note' holds values of several types, such as .*, by frame\.astype\(\{'note': str\}\), or drop it$"
    with pytest.raises(InputError, match=said):
        read_log(pd.DataFrame({"user": [1, 2], "item": [1, 2], "note": [1, "a"]}))
    assert read_log(pa.table({"user": ["x"], "item": [1]})).frame["user"].to_list() == ["x"]


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=20))
def test_repeated_rows_are_kept_and_counted(rows):
    log = read_log(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"))
    assert log.frame.select("user", "item", "time").rows() == rows
    assert log.report.duplicates == len(rows) - len(set(rows))
    assert log.report.as_dict()["rows"] == len(rows)
    assert any("kept" in line for line in log.report.lines()) == (log.report.duplicates > 0)


def test_two_weight_columns_are_refused_only_if_weights_are_used():
    frame = pl.DataFrame({"user": [1, 2], "item": [1, 2], "rating": [3, 4], "weight": [1.0, 2.0]})
    assert "weight" not in read_log(frame).report.columns
    with pytest.raises(InputError, match=r"several columns for the weight: rating, weight; .*--weight-column"):
        read_log(frame, min_weight=4)
    assert len(read_log(frame, columns=ColumnNames(weight="rating"), min_weight=4).frame) == 1


def test_an_error_names_the_row_number_of_the_source():
    """Rows without an item are dropped first, then those of other kinds of events."""
    rows = {"user": [1, 1, 2, 2], "item": [None, 3, 4, 5], "event": ["buy", "look", "buy", "buy"]}
    with pytest.raises(InputError, match=r"1 of 2 times that cannot be read, the first 'x' in row 4"):
        read_log(pl.DataFrame(rows | {"time": ["1", "2", "3", "x"]}), missing="drop", events=["buy"])


@pytest.mark.parametrize(("unit", "name"), [("us", "a', b"), ("ns", "when"), ("ms", "when")])
def test_a_description_shows_dates(unit, name):
    """Also early years, whose nanoseconds are as small as microseconds of later ones, in a column of any name."""
    first = datetime(1970, 1, 2)
    frame = pl.DataFrame({"user": [1, 2] * 10, "item": [*range(20)], name: [first] * 20})
    dates = frame.with_columns(pl.col(name).cast(pl.Datetime(unit)))
    told = describe_log(dates, columns=ColumnNames(time=name))["times"]
    assert (told["first"], told["unit"], told["days"]) == ("1970-01-02 00:00:00", "dates", 1)
    seconds = frame.with_columns(pl.col(name).dt.epoch("s") + 1_600_000_000)
    told = describe_log(seconds, columns=ColumnNames(time=name))["times"]
    assert (told["first"], told["unit"], told["days"]) == ("2020-09-14 12:26:40", "seconds", 1)


def test_many_other_columns_cost_little(tmp_path):
    """Checking that a column has no times must be fast."""
    columns = {"user": ["a", "b"] * 50, "item": list("xyzw") * 25} | {
        f"note{at}": ["some text"] * 100 for at in range(200)
    }
    pl.DataFrame(columns).write_csv(tmp_path / "log.csv")
    began = time.process_time()
    assert "time" not in read_log(tmp_path / "log.csv").report.columns
    assert time.process_time() - began < 10
