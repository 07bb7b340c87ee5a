"""Text layouts: separators, column names, and logs in several files."""

import gzip
import json
import random
import re
import shlex
from urllib.parse import quote

import polars as pl
import pytest

from beamwood.data import ColumnNames, Dataset, read_log
from beamwood.data.files.headless import column_guess
from beamwood.data.files.layout import separator_of
from beamwood.data.header import seem_values
from beamwood.errors import InputError

NAMES = ("user_id", "item_id", "rating", "timestamp")
HEADER = ",".join(NAMES)


@pytest.fixture
def whole(frame):
    return Dataset.from_log(read_log(frame)).fingerprint()


def fingerprint(source, **options):
    return Dataset.from_log(read_log(source, **options)).fingerprint()


@pytest.mark.parametrize("ending", ["csv", "tsv", "txt", "dat", "data", "tab"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::", " "])
def test_separators_are_detected_and_reported(write, planted, whole, separator, ending):
    path = write(planted, f"log.{ending}", HEADER.replace(",", separator), separator)
    log = read_log(path)
    assert Dataset.from_log(log).fingerprint() == whole
    own = {"csv": ",", "tsv": "\t", "tab": "\t"}.get(ending)
    said = [f"its columns are separated by {separator!r}, as its first lines have it (or use --separator)"]
    assert list(log.report.notes) == (said if separator != own else [])


@pytest.mark.parametrize(
    ("lines", "own", "expected"),
    [
        (["a;b;c", "1;2,5;3", "1;3,5;4"], ",", ";"),
        (["a,b", '1,"x;y"', '2,"z;w"'], None, ","),
        (["user,item,tags", "1,2,x|y", "2,3,z|w"], ",", ","),
        (["1;2;3,5", "2;2;4,5"], ",", ";"),
        (["id", "1", "2"], ",", ","),
        (["id", "1", "2"], None, None),
        (["a b", "1 2"], None, " "),
        (["a b,c d", "x y,z w"], None, ","),
        (["a;b", '1;"x', 'y"', "2;z"], None, ";"),
        (["a,b", "1,2,3"], ",", ","),
    ],
)
def test_a_separator_fits_all_first_lines(lines, own, expected):
    assert separator_of(lines, own, '"') == expected


def test_a_cell_of_text_may_be_long(write, planted, whole):
    path = write(
        [(*row, "x" * 200_000) for row in planted[:2]] + [(*row, "y") for row in planted[2:]], header=f"{HEADER},text"
    )
    assert fingerprint(path) == whole


@pytest.mark.parametrize("said", ["~", "tab", "\\t", "§", "||"])
def test_a_given_separator_is_used(write, planted, whole, say, said):
    mark = {"tab": "\t", "\\t": "\t"}.get(said, said)
    path = write(planted, "log.export", HEADER.replace(",", mark), mark)
    assert fingerprint(path, separator=said) == whole
    say("fit", path, "--separator", said)
    # Evaluated from the stored reading options of the folder.
    assert "40 users, 30 items" in say("evaluate", path.parent / "out")


def test_a_refit_names_the_separator_that_its_log_lacks(write, planted, say):
    path = write(planted, "log.export", HEADER.replace(",", "~"), "~")
    say("fit", path, "--separator", "~", "--user-column", HEADER.split(",")[0])
    said = say("refit", path.parent / "out", "--log", write(planted, "next.csv", HEADER), code=2)
    assert "seem to be separated by ',': use --separator ',' (--separator: of `beamwood fit`)" in said


@pytest.mark.parametrize("mark", ["^", "~", "\x01", "\x1f", "$$"])
def test_an_unusual_separator_is_named(write, planted, whole, say, mark):
    path = write(planted, "log.csv", HEADER.replace(",", mark), mark)
    said = say("fit", path, code=2).split("use --separator ")[1].split()[0].strip("'")
    assert fingerprint(path, separator=said) == whole


@pytest.mark.parametrize("separator", [",", "\t", "::"])
def test_a_file_without_names_is_read_by_its_advice(write, planted, whole, say, separator):
    path = write(planted, "log.dat", None, separator)
    refused = say("fit", path, code=2)
    assert "its first line seems to hold values" in refused
    advice = refused.split("--columns ")[1].split()[0]
    assert advice == "user,item,rating,time"
    say("fit", path, "--columns", advice)
    assert fingerprint(path, header=advice.split(",")) == whole
    assert "40 users, 30 items" in say("evaluate", path.parent / "out")


@pytest.mark.parametrize(
    ("cells", "guess"),
    [
        (["7", "2", "4.5", "978300760"], "user,item,rating,time"),
        (["978300760123", "7", "2"], "time,user,item"),
        (["A1", "B2", "2019-03-01 10:00:00", "77"], "user,item,time,-"),
        (["7", "2"], "user,item"),
    ],
)
def test_what_values_may_mean(cells, guess):
    assert seem_values(cells)
    assert ",".join(column_guess([cells])) == guess


def test_unused_columns_are_left_out(write, planted):
    path = write(planted, "log.csv", None)
    assert read_log(path, header=["user", "item", "-", "-"]).report.columns == {"user": "user", "item": "item"}


@pytest.mark.parametrize(
    ("header", "columns", "message"),
    [
        (None, "user,item,time", "names 3 columns, its first line has 4"),
        (None, "user,item,item,time", "names 'item' twice"),
        (None, "-,-,-,-", "names no column"),
        (HEADER, "user,item,rating,time", "seems to hold names already; leave --columns out"),
        (HEADER, "a,b,c,d", "seems to hold names already"),
    ],
)
def test_names_that_do_not_fit_are_refused(write, planted, say, header, columns, message):
    assert message in say("fit", write(planted, header=header), "--columns", columns, code=2)


@pytest.mark.parametrize("separator", ["", "\n", '"', "123456789", 5])
def test_a_separator_that_does_not_occur_is_refused(write, planted, separator):
    with pytest.raises(InputError, match="separates nothing; give ';'"):
        read_log(write(planted), separator=separator)


def test_layout_options_are_only_for_text(frame, tmp_path):
    frame.write_parquet(tmp_path / "log.parquet")
    for source in (frame, tmp_path / "log.parquet"):
        with pytest.raises(InputError, match=r"--separator (and --columns are|is) about text files"):
            read_log(source, separator=";")
    with pytest.raises(InputError, match="header='user' is not a list of names"):
        read_log(frame, header="user")


def test_rows_of_another_length_are_refused_with_long_separators(write, planted):
    path = write([*planted, (1, 2, 3)], "log.dat", HEADER.replace(",", "::"), "::")
    with pytest.raises(InputError, match="1 line has another number of columns than 4, the first '1::2::3'"):
        read_log(path)


def test_an_ambiguous_separator_is_required(tmp_path):
    (tmp_path / "log.txt").write_text("user\n1\n")
    with pytest.raises(InputError, match="cannot be detected from its first lines; give it with --separator"):
        read_log(tmp_path / "log.txt")


# Several files


def parts(frame, folder, writer, ending, names=("part-0", "part-1", "part-2")):
    folder.mkdir(parents=True, exist_ok=True)
    for place, name in enumerate(names):
        writer(frame.slice(place * 120, 120), folder / f"{name}.{ending}")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.crc").write_text("x")


def zipped(frame, path):
    path.write_bytes(gzip.compress(frame.write_csv().encode()))


WRITERS = {
    "parquet": pl.DataFrame.write_parquet,
    "csv": pl.DataFrame.write_csv,
    "csv.gz": zipped,
    "jsonl": pl.DataFrame.write_ndjson,
    "feather": pl.DataFrame.write_ipc,
}


@pytest.mark.parametrize("ending", WRITERS)
def test_a_folder_of_parts_is_one_log(frame, whole, tmp_path, ending):
    parts(frame, tmp_path / "log", WRITERS[ending], ending)
    for source in (tmp_path / "log", tmp_path / "log" / "part-*"):
        log = read_log(source)
        assert Dataset.from_log(log).fingerprint() == whole
        assert log.report.notes == ("3 files are read as one, in the order of their names",)


@pytest.mark.parametrize(("folder", "called"), [("_delta_log", "Delta Lake"), (".hoodie", "Hudi")])
def test_table_formats_that_contain_deleted_rows_are_refused(frame, tmp_path, folder, called):
    parts(frame, tmp_path / "logs" / "log", pl.DataFrame.write_parquet, "parquet")
    (tmp_path / "logs" / "log" / folder).mkdir()
    for source in (tmp_path / "logs" / "log", tmp_path / "logs"):
        with pytest.raises(InputError, match=rf"log is a table of {called}, .*write the rows that count to Parquet"):
            read_log(source)


def test_partition_folders_are_a_column(frame, tmp_path):
    for day in ("2024-05-01", "2024-05-02"):
        frame.drop("timestamp").write_parquet(_made(tmp_path / "log" / f"day={day}") / "x.parquet")
    log = read_log(tmp_path / "log")
    assert log.report.columns["time"] == "day"
    assert log.frame["time"].n_unique() == 2


def test_partition_folders_follow_hive_and_spark(frame, tmp_path):
    """Characters that names cannot contain are escaped, and rows without a value have a folder too."""
    named = frame.with_columns(user_id=pl.format("a/{}: 5%", "user_id"))
    for (user,), rows in named.partition_by("user_id", as_dict=True).items():
        rows.drop("user_id").write_parquet(_made(tmp_path / "log" / f"user_id={quote(user, safe=' ')}") / "x.parquet")
    log = read_log(tmp_path / "log")
    assert set(log.frame["user"]) == set(named["user_id"])
    frame.head(3).drop("user_id").write_parquet(
        _made(tmp_path / "log" / "user_id=__HIVE_DEFAULT_PARTITION__") / "x.parquet"
    )
    with pytest.raises(InputError, match=r"3 of 323 rows with no user id, .*--missing drop"):
        read_log(tmp_path / "log")
    assert read_log(tmp_path / "log", missing="drop").frame.height == 320


def test_partition_folders_with_different_keys_are_refused(tmp_path):
    rows = pl.DataFrame({"user": [1, 2], "item": [3, 4], "*": ["a", "b"]})
    for folders in ("a=1/b=2", "b=3/a=4"):
        rows.write_csv(_made(tmp_path / "log" / folders) / "x.csv")
    log = read_log(tmp_path / "log", columns=ColumnNames(context=("a", "b", "*")))
    contexts = log.frame.select("context.a", "context.b", "context.*").unique(maintain_order=True).rows()
    assert contexts == [("1", "2", "a"), ("1", "2", "b"), ("4", "3", "a"), ("4", "3", "b")]
    rows.write_csv(tmp_path / "log" / "more.csv")
    with pytest.raises(InputError, match=r"more\.csv and .*x\.csv are in folders with different keys"):
        read_log(tmp_path / "log")


def test_parts_without_names_are_named_alike(frame, whole, tmp_path, say):
    parts(frame, tmp_path / "log", lambda rows, path: rows.write_csv(path, include_header=False), "csv")
    say("fit", tmp_path / "log", "--columns", HEADER)
    assert fingerprint(tmp_path / "log", header=NAMES) == whole
    assert "40 users, 30 items" in say("evaluate", tmp_path / "out")


def test_other_files_in_a_folder_are_reported(frame, tmp_path):
    parts(frame, tmp_path / "log", pl.DataFrame.write_csv, "csv")
    (tmp_path / "log" / "README.md").write_text("about")
    assert read_log(tmp_path / "log").report.notes[1] == "left out beside them: README.md"


def test_inconsistent_parts_are_refused(frame, tmp_path):
    folder = _made(tmp_path / "log")
    with pytest.raises(InputError, match="is a folder without files of a known ending"):
        read_log(folder)
    with pytest.raises(InputError, match="names no files of a known ending"):
        read_log(folder / "*.csv")
    frame.write_parquet(folder / "a.parquet")
    frame.rename({"rating": "stars"}).write_parquet(folder / "b.parquet")
    with pytest.raises(
        InputError, match=r"b\.parquet has the columns user_id, .*parts of one table, so name one file$"
    ):
        read_log(folder)
    frame.drop("rating").write_parquet(folder / "b.parquet")
    with pytest.raises(InputError, match=r"so name one file, or write all as one, .* pl\.concat\(frames, how="):
        read_log(folder)
    frame.cast({"item_id": pl.String}).write_parquet(folder / "b.parquet")
    with pytest.raises(InputError, match=r"column 'item_id' is of type String in b\.parquet and Int64 in a\.parquet"):
        read_log(folder)
    frame.cast({"item_id": pl.Int32}).write_parquet(folder / "b.parquet")
    assert len(read_log(folder).frame) == 2 * len(frame)
    frame.write_csv(folder / "c.csv")
    with pytest.raises(InputError, match=r"several kinds \(2 of \.parquet, 1 of \.csv\)") as caught:
        read_log(folder)
    assert len(read_log(re.search("such as '(.*)'", str(caught.value))[1]).frame) == 2 * len(frame)
    _made(folder / "d")
    frame.write_parquet(folder / "d/d.parquet")
    with pytest.raises(InputError, match=r"several kinds \(3 of \.parquet") as caught:
        read_log(folder)
    assert len(read_log(re.search("such as '(.*)'", str(caught.value))[1]).frame) == 3 * len(frame)


def _made(folder):
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("packed", [False, True])
def test_json_may_be_one_list(frame, whole, tmp_path, packed):
    text = json.dumps(frame.to_dicts())
    path = tmp_path / ("log.json.gz" if packed else "log.json")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert fingerprint(path) == whole
    lines = tmp_path / "lines.json"
    lines.write_text("".join(f"{json.dumps(row)}\n" for row in frame.to_dicts()))
    assert fingerprint(lines) == whole


# Names


@pytest.mark.parametrize(
    ("user", "item", "time"),
    [
        ("customerNumber", "SKU", "Timestamp"),
        ("CustomerID", "StockCode", "InvoiceDate"),
        ("visitorid", "itemid", "timestamp"),
        ("reviewerID", "asin", "unixReviewTime"),
        ("customer_id", "product_id", "purchase_date"),
        ("USER_ID", "songId", "playedAt"),
    ],
)
def test_usual_names_are_recognised_in_any_case_and_punctuation(user, item, time):
    report = read_log(pl.DataFrame({user: [1], "quux": [2], item: [3], time: [4]})).report
    assert report.columns == {"user": user, "item": item, "time": time}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["usr_id", "item"], r"no user column; it has: usr_id, item\. Name it with --user-column.*'usr_id'"),
        (["user", "itm"], r"no item column; it has: user, itm\. Name it with --item-column.*'itm'"),
    ],
)
def test_a_missing_column_gets_a_suggestion_with_its_option(write, say, names, message):
    rows = [[random.Random(user).randrange(9) if name != names[0] else user for name in names] for user in range(20)]
    path = write(rows * 4, header=",".join(names))
    refused = say("fit", path, code=2)
    with pytest.raises(InputError, match=message):
        read_log(path)
    option, name = refused.split("such as ")[1].split()[:2]
    assert "20 users" in say("fit", path, option, name.strip("'"))


@pytest.mark.parametrize("years", [(), ("2020", "2021")])
def test_a_misspelt_column_gets_a_suggestion(frame, years):
    from beamwood.data import ColumnNames

    for given, meant in (("usr_id", "user_id"), ("USER_ID", "user_id"), ("UserId", "user_id")):
        with pytest.raises(InputError, match=f"no column '{given}' for the user.*did you mean --user-column '{meant}'"):
            read_log(frame.with_columns(pl.lit(1).alias(year) for year in years), columns=ColumnNames(user=given))


# The log's own split


def own_split(planted, last, word=str):
    """Each row with the name of its split: the last rows of each user, or all rows of the last users."""
    later = [place % 8 == 7 if last == "rows" else user >= 36 for place, (user, *_) in enumerate(planted)]
    return [(*row, word("test" if each else "train")) for row, each in zip(planted, later, strict=True)]


WITH_SPLIT = f"{HEADER},split"


def test_a_log_with_a_split_column_names_the_option(write, planted, say):
    path = write(own_split(planted, "rows", str.upper), header=WITH_SPLIT)
    said = say("describe", path)
    assert "'split' seems to be the log's own split (TRAIN 280, TEST 40), and all rows count alike; --split" in said
    advised = "--split boundary --boundary-column 'split'"
    assert f"{advised} uses it" in said
    kept = say("fit", path, *shlex.split(advised))
    assert "its history rows train" in kept
    assert "own split" not in kept


def test_a_split_column_by_users_gets_advice_to_drop_rows(write, planted, say):
    said = say("fit", write(own_split(planted, "users"), header=WITH_SPLIT))
    assert "no user has rows of both, so remove the rows that should not be trained on" in said


def test_a_split_column_with_three_values_needs_conversion(write, planted, say):
    rows = [(*row[:-1], "valid" if place % 8 == 6 else row[-1]) for place, row in enumerate(own_split(planted, "rows"))]
    said = say("fit", write(rows, header=WITH_SPLIT))
    assert "(train 240, test 40, valid 40), and all rows count alike; --split boundary needs a column with" in said


@pytest.mark.parametrize("words", [("train", "bus"), ("north", "south"), ("1", "0"), ("test", "false")])
def test_other_columns_with_that_name_are_not_a_split(write, planted, say, words):
    rows = [(*row, words[place % 2]) for place, row in enumerate(planted)]
    assert "own split" not in say("fit", write(rows, header=WITH_SPLIT))
