"""Logs from other programs: invalid JSON, dates as numbers, offset zones, thousands separators and quotes."""

import datetime
import gzip
import json
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from beamwood.data import ColumnNames, Dataset, read_log
from beamwood.data.cells.ids import LONGEST
from beamwood.errors import InputError
from beamwood.serve.store.event import Event
from refusals import refused

HOLE = 8
HEADER = "user_id,item_id,timestamp"


def at(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


@pytest.fixture
def plain(planted):
    """The expected users, items and times in seconds of each form."""
    return [(user, item, time) for user, item, _, time in planted]


def triples(log, per=1):
    frame = log.frame.with_columns(pl.col("time") // per)
    return [tuple(row) for row in frame.select("user", "item", "time").iter_rows()]


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json", "ndjson"])
def test_json_lines_may_start_with_a_byte_order_mark(plain, tmp_path, ending):
    """Windows programs write one."""
    path = tmp_path / f"log.{ending}"
    lines = [json.dumps({"user": user, "item": item, "ts": time}) for user, item, time in plain]
    text = ("\ufeff" + "\n".join(lines)).encode()
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    assert triples(read_log(path)) == plain


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("oops", "'oops'"),
        ("null", "'null'"),
        ("[1, 2]", "'[1, 2]'"),
        ('{"user_id": 7, "item_id": 3', """'{"user_id": 7, "item_id": 3'"""),
        ('{"user_id": 7, "item_id": 3},', """'{"user_id": ...item_id": 3},'"""),
    ],
)
def test_a_line_that_is_no_row_of_json_is_named(tmp_path, line, shown):
    """As the last line of a file that was cut short."""
    rows = [json.dumps({"user_id": row % 5, "item_id": row}) for row in range(41)]
    (tmp_path / "log.jsonl").write_text("\n".join([*rows, "", line]))
    said = f"line 43 is no row of JSON: {shown}; each line is an object with names: mend this one, or delete it"
    with pytest.raises(InputError, match=f"{re.escape(said)}$"):
        read_log(tmp_path / "log.jsonl")


def test_rows_of_json_over_several_lines_are_refused_with_the_fix(tmp_path):
    rows = [json.dumps({"user_id": row % 5, "item_id": row}, indent=2) for row in range(41)]
    (tmp_path / "log.jsonl").write_text("\n".join(rows))
    with pytest.raises(
        InputError, match=r"rows go on over several lines; .* jq -c \. .*log\.jsonl > log\.rows\.jsonl$"
    ):
        read_log(tmp_path / "log.jsonl")


@pytest.mark.parametrize(("word", "shown"), [("NaN", "NaN"), ("-Infinity", "Infinity")])
def test_nan_words_in_json_name_their_line(plain, tmp_path, word, shown):
    path = tmp_path / "log.jsonl"
    lines = [f'{{"user": {user}, "item": {item}, "rating": 3}}' for user, item, _ in plain]
    lines[41] = lines[41].replace("3}", f"{word}}}")
    path.write_text("\n".join(lines))
    with pytest.raises(
        InputError, match=f"line 42 says {shown}, which is not JSON; write null, or leave the field out$"
    ):
        read_log(path)


TWICE = ['{"user": 7, "item": 3, "ts": 5, "item": 4}', '{"user": {"id": 7, "id": 8}, "item": 3}']


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json"])
@pytest.mark.parametrize(("twice", "name"), [(TWICE[0], "item"), (TWICE[1], "id")])
def test_a_duplicate_key_in_a_json_row_is_refused(plain, tmp_path, ending, twice, name):
    """JSON readers silently use the last one."""
    nested = name == "id"
    rows = [{"user": {"id": user} if nested else user, "item": item, "ts": time} for user, item, time in plain]
    lines = [json.dumps(row) for row in rows]
    lines[36] = twice
    text = ("[" + ", ".join(lines) + "]" if ending == "json" else "\n".join(lines)).encode()
    path = tmp_path / f"log.{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    with pytest.raises(InputError, match=f"log.{ending}: row 37 has '{name}' twice; keep one of the two$"):
        read_log(path)


@pytest.mark.parametrize("ending", ["jsonl", "json"])
def test_equal_names_in_nested_objects_are_not_duplicates(plain, tmp_path, ending):
    """A nested key, a key within text, and ids equal to keys."""
    rows = [{"user": "item", "item": item, "of": {"item": 3, "note": '{"item": 1, "item": 2}'}} for _, item, _ in plain]
    path = tmp_path / f"log.{ending}"
    path.write_text(json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows)))
    assert read_log(path).frame["item"].to_list() == [item for _, item, _ in plain]


def test_an_empty_list_is_refused(tmp_path):
    (tmp_path / "log.json").write_text("[]")
    with pytest.raises(InputError, match=r"log.json has no columns, and so no rows; give a log"):
        read_log(tmp_path / "log.json")


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream.arrow", "table", "pandas"])
def test_zones_by_offset_are_read(plain, tmp_path, form):
    times = pa.array([time * 1000 for *_, time in plain], pa.timestamp("ms", "-03:30"))
    table = pa.table({"user": [row[0] for row in plain], "item": [row[1] for row in plain], "time": times})
    path = tmp_path / f"log.{form}"
    if form == "parquet":
        pq.write_table(table, path)
    elif form == "table":
        path = table
    elif form == "pandas":
        path = table.to_pandas()
        assert str(path["time"].dt.tz) == "UTC-03:30"
    else:
        with pa.OSFile(str(path), "wb") as file:
            writer = pa.ipc.new_stream if form.startswith("stream") else pa.ipc.new_file
            with writer(file, table.schema) as out:
                out.write_table(table)
    assert triples(read_log(path), per=10**6) == plain


def test_a_duplicate_column_in_parquet_is_refused(tmp_path):
    columns = [pa.array([1, 2]), pa.array([3, 4]), pa.array([5, 6])]
    pq.write_table(pa.Table.from_arrays(columns, ["user", "item", "item"]), tmp_path / "log.parquet")
    with pytest.raises(InputError, match=r"log.parquet has several columns named 'item'; give each its own name$"):
        read_log(tmp_path / "log.parquet")


@pytest.mark.parametrize(("pattern", "per"), [("%Y%m%d", 86400), ("%Y%m%d%H%M", 60), ("%Y%m%d%H%M%S", 1)])
@pytest.mark.parametrize("kind", [int, str])
def test_dates_as_whole_numbers_are_dates(plain, pattern, per, kind):
    first = at(plain[0][2]).strftime(pattern)
    rows = [(user, item, kind(at(time).strftime(pattern))) for user, item, time in plain]
    log = read_log(rows, header=["user", "item", "when"], columns=ColumnNames(time="when"))
    assert log.report.time == f"'when', dates as whole numbers, such as {first}"
    assert triples(log, per=10**6 * per) == [(user, item, time // per) for user, item, time in plain]


@pytest.mark.parametrize("wrong", [20230230, 20231301, 19231101])
def test_other_whole_numbers_are_not_dates(plain, wrong):
    rows = [(user, item, 20230101 + place % 28) for place, (user, item, _) in enumerate(plain)]
    rows[7] = (*rows[7][:2], wrong)
    log = read_log(rows, header=["user", "item", "time"])
    assert log.report.time == "'time', whole numbers"
    assert triples(log) == rows


@pytest.mark.parametrize("zone", ["UTC", "PST", "CEST"])
def test_times_as_unix_and_java_print_them(plain, write, zone):
    hours = {"UTC": 0, "PST": -8, "CEST": 2}[zone]
    rows = [(u, i, at(t + 3600 * hours).strftime(f"%a %b %d %H:%M:%S {zone} %Y")) for u, i, t in plain]
    assert triples(read_log(write(rows, header=HEADER)), per=10**6) == plain


@pytest.mark.parametrize("clock", ["%H:%M:%S", "%I:%M %p"])
def test_times_of_day_name_the_date_column(plain, write, clock):
    rows = [(u, i, at(t).strftime("%Y-%m-%d"), at(t).strftime(clock)) for u, i, t in plain]
    path = write(rows, header="user,item,sold_on,time")
    message = (
        "column 'time' holds times of day without a date; write both in one column with 'sold_on', or use --time-col"
    )
    with pytest.raises(InputError, match=message):
        read_log(path)
    assert read_log(path, columns=ColumnNames(time="sold_on")).report.time.startswith("'sold_on'")
    frame = pl.DataFrame({"user": [1, 2], "item": [3, 4], "time": [datetime.time(3), datetime.time(4)]})
    with pytest.raises(InputError, match=r"holds times of day without a date; write both in one column$"):
        read_log(frame)


@pytest.mark.parametrize("quoted", ['"sep=;"', "SEP=;", "\ufeffsep=;"])
def test_a_line_with_the_separator_is_read(plain, tmp_path, quoted):
    lines = [quoted, "user;item;time", *(f"{user};{item};{time}" for user, item, time in plain)]
    (tmp_path / "log.csv").write_text("\n".join(lines), encoding="utf-8")
    log = read_log(tmp_path / "log.csv")
    assert triples(log) == plain
    assert "its columns are separated by ';', as its first line says" in log.report.notes


@pytest.mark.parametrize("title", ["# exported by the shop", "Orders of May\n", '"Orders"\n\n'])
def test_a_title_line_is_refused(plain, write, title):
    path = write(plain, header=f"{title}\n{HEADER}")
    shown = title.strip().splitlines()[0]
    with pytest.raises(
        InputError, match=f"its first line, '{shown}', seems to be a title; delete all before the header line"
    ):
        read_log(path)


@pytest.mark.parametrize("mark", [",", "'", " ", "\u00a0"])
def test_thousands_separators_in_ids_are_reported(plain, mark):
    rows = [(f"{user + 4000:,}".replace(",", mark), item, time) for user, item, time in plain]
    (note,) = read_log(rows, header=["user", "item", "time"]).report.notes
    assert note.startswith(f"'user': {len(plain):,} user ids seem to be numbers with marks for thousands, the first ")


def test_ids_that_a_service_refuses_are_reported():
    """Such as addresses of pages."""
    rows = {"user": ["a", "b", "a" * (LONGEST + 1)], "item": ["x" * LONGEST, "y", "\u00e9" * LONGEST]}
    assert [note for note in read_log(rows).report.notes if "longer" in note] == [
        "'user': 1 user id is longer than 512 characters, the first in row 3; a service refuses events "
        "with such ids, so shorten them before you serve"
    ]
    Event(1, "x" * LONGEST, 1.0)
    with pytest.raises(InputError, match="has 513 characters; give 1 to 512"):
        Event(1, "x" * (LONGEST + 1), 1.0)


@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', '="{}"'])
def test_quotes_around_ids_are_reported(plain, quoted):
    rows = [(user, quoted.format(item), time) for user, item, time in plain]
    (note,) = read_log(rows, header=["user", "item", "time"]).report.notes
    first = quoted.format(plain[0][1])
    assert f"item ids are within quotes, the first {first!r} in row 1; each is read as one item" in note


@pytest.mark.parametrize("row", [5, 319])
def test_a_quote_without_its_pair_is_named_with_its_line(plain, write, row):
    plain[row] = (plain[row][0], f'"{plain[row][1]}', plain[row][2])
    with pytest.raises(InputError, match=f"a quote without its pair in line {row + 2} swallows lines; mend it"):
        read_log(write(plain, header=HEADER))


def test_leading_zeros_are_reported(plain, say, write):
    rows = [(f"{user:04}" if time % 2 else user, item, time) for user, item, time in plain]
    both = len({user for user, *_ in rows}) - len({user for user, *_ in plain})
    said = say("fit", write(rows, header=HEADER))
    assert f"{both} of {both + 40} users differ from another one only by zeros at the start, such as " in said
    assert "zeros at the start" not in say("fit", write([(f"{u:04}", i, t) for u, i, t in plain], header=HEADER))


@pytest.mark.parametrize(
    ("name", "message"),
    [("log.csv.bz2", "is packed in a way"), ("log.zip", "is not a whole archive"), ("log.xlsx", "is a spreadsheet")],
)
def test_files_to_unpack_or_convert_are_refused(tmp_path, name, message):
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match=f"{name} {message}"):
        read_log(tmp_path / name)


def test_two_columns_are_guessed_for_two_roles(write):
    with pytest.raises(InputError, match="such as --user-column 'id' --item-column 'id2' "):
        read_log(write([(1, 2), (3, 4)], header="id,id2"))


def test_a_column_of_another_role_is_not_guessed(write):
    rows = [(1, 2, "2024-01-01", 3), (3, 4, "2024-01-02", -1)]
    for names, lacks in (("pupil,course,enrolled_at,rating", "user"), ("student,lesson,enrolled_at,rating", "item")):
        said = refused(write(rows, header=names))
        assert f"has no {lacks} column" in said
        assert "--user-column 'course'" not in said
        assert "--item-column 'rating'" not in said
    log = read_log(write(rows, header="student,course,enrolled_at,rating"))
    assert log.report.columns == {"user": "student", "item": "course", "time": "enrolled_at", "weight": "rating"}


@pytest.mark.parametrize("levels", [["user_id"], ["user_id", "item_id"]])
def test_an_index_with_names_is_data(frame, levels):
    pandas = frame.to_pandas()
    assert read_log(pandas.set_index(levels)).frame.equals(read_log(frame).frame)
    assert read_log(pandas.set_index(levels, drop=False)).frame.equals(read_log(frame).frame)


def test_rows_of_any_kind_are_read(plain):
    names = ["user", "item", "time"]
    assert triples(read_log(iter(plain), header=names)) == plain
    with pytest.raises(InputError, match=f"rows with no item id, the first None in row {1 + HOLE}"):
        read_log(np.ma.masked_array(plain, np.arange(3 * len(plain)).reshape(-1, 3) == 3 * HOLE + 1), header=names)
    torch = pytest.importorskip("torch")
    assert triples(read_log(torch.tensor(plain), header=names)) == plain
    users, items, times = (list(column) for column in zip(*plain, strict=True))
    seconds = {"user": users, "item": items, "time": np.array(times, "datetime64[s]")}
    assert triples(read_log(seconds), per=10**6) == plain


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (sparse.csr_matrix(np.ones((2, 2), complex)), "holds complex128 entries; give numbers"),
        (sparse.coo_array(np.ones(3)), "the sparse matrix has 1 dimension; give one of users and items"),
        (np.ones((3, 40)), "the array has 40 columns without names; .*give scipy.sparse.csr_matrix of it"),
        ({1: [2, 3], 4: [5]}, "its key 1 is not a column name"),
        (pl.Series([1, 2]), "the Series is one column; give a frame"),
        (pd.Series([1, 2]), "the Series is one column; give a frame"),
        (pa.array([1, 2]), "Array is one column; give a frame"),
    ],
    ids=lambda case: type(case).__name__,
)
def test_values_that_are_not_a_log_name_the_fix(source, message):
    with pytest.raises(InputError, match=message):
        read_log(source)


@pytest.mark.parametrize("make", [pl.DataFrame, pd.DataFrame, pa.table, pl.LazyFrame])
def test_users_must_be_a_column_not_a_table(frame, make):
    from beamwood import fit, splits

    fitted = fit(splits.disjoint_users(Dataset.from_log(read_log(frame))), "popularity")
    kind = type(make({"user": [1]})).__name__
    with pytest.raises(InputError, match=f"users is a {kind}; give one of its columns"):
        fitted.recommend(users=make({"user": [1]}), k=3)
