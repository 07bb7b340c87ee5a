"""Input from and output to any library, and suggestions for mistyped names."""

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import beamwood
from beamwood.data import Dataset, Vocabulary, leave_one_out, read_log
from beamwood.errors import InputError
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.types import ItemLists

NAMES = ["user_id", "item_id", "rating", "timestamp"]


def fingerprint(source, **options):
    return Dataset.from_log(read_log(source, **options)).fingerprint()


SOURCES = {
    "pandas": lambda rows: pl.DataFrame(rows, NAMES, orient="row").to_pandas(),
    "arrow": lambda rows: pl.DataFrame(rows, NAMES, orient="row").to_arrow(),
    "lazy": lambda rows: pl.LazyFrame(rows, NAMES, orient="row"),
    "batches": lambda rows: pa.table(pl.DataFrame(rows, NAMES, orient="row").to_arrow()).to_batches()[0],
    "reader": lambda rows: pa.table(pl.DataFrame(rows, NAMES, orient="row").to_arrow()).to_reader(max_chunksize=7),
    "dict": lambda rows: dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True)),
    "arrays": lambda rows: {name: np.array(rows)[:, place] for place, name in enumerate(NAMES)},
    "records": lambda rows: np.array(rows, dtype=[(name, np.int64) for name in NAMES]),
    "mappings": lambda rows: [dict(zip(NAMES, row, strict=True)) for row in rows],
}
BARE = {
    "tuples": list,
    "lists": lambda rows: [list(row) for row in rows],
    "array": np.array,
    "objects": lambda rows: np.array(rows, dtype=object),
    "floats": lambda rows: np.array(rows, dtype=float),
}


@pytest.mark.parametrize("source", SOURCES)
def test_tables_of_every_library_give_one_log(planted, frame, source):
    assert fingerprint(SOURCES[source](planted)) == fingerprint(frame)


@pytest.mark.parametrize("source", BARE)
def test_bare_rows_are_named(planted, frame, source):
    rows = BARE[source](planted)
    assert fingerprint(rows, header=NAMES) == fingerprint(frame)
    with pytest.raises(InputError, match=r"has no names; .* header=\['user', 'item', 'time', '-'\]"):
        read_log(rows)
    with pytest.raises(InputError, match=r"header names 2 columns, the .* has 4"):
        read_log(rows, header=["user", "item"])


@pytest.mark.parametrize("made", [sparse.csr_matrix, sparse.coo_matrix, sparse.csc_array])
def test_a_sparse_matrix_has_a_row_for_each_entry(planted, made):
    entries = {(user, item): rating for user, item, rating, _ in planted}
    users, items = zip(*entries, strict=True)
    matrix = made((np.array([*entries.values()], float), (np.array(users), np.array(items))), shape=(60, 30))
    log = read_log(matrix, min_weight=4)
    assert set(log.frame.select("user", "item").rows()) == {pair for pair, rating in entries.items() if rating >= 4}
    assert len(read_log(matrix).frame) == len(entries)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (None, {}, "it is None; give a path, a frame of pandas"),
        (42, {}, "the int cannot be read as a table"),
        (np.zeros(3), {"header": ["user"]}, "1 dimensions"),
        ([(1, 2), (1, 2, 3)], {"header": ["user", "item"]}, "rows of 2 to 3 cells; give each row as many"),
        ([(1, 2), ("a", 2)], {"header": ["user", "item"]}, "cannot be read as a table"),
        (pl.DataFrame({"user": [1]}), {"header": ["user"]}, "and this is neither"),
        (["a.csv", Path("b.csv")], {}, "it holds texts; for several files, name their folder or a pattern such as"),
        ([[1] * 90, [2] * 90], {}, "has 90 columns without names; give rows of a user, an item and a time each$"),
        ([], {}, "the list has no columns, and so no rows|cannot be read"),
        ({"user": [1, 2], "item": [1]}, {}, "the dict cannot be read as a table"),
    ],
)
def test_invalid_tables_are_refused(source, options, message):
    with pytest.raises(InputError, match=message):
        read_log(source, **options)


@pytest.fixture
def retriever(frame):
    return beamwood.fit(leave_one_out(Dataset.from_log(read_log(frame))), "popularity")


def test_answers_have_the_requested_library(retriever):
    plain = retriever.recommend(users=[3, 5], k=4)
    lists = retriever.recommend(users=[3, 5], k=4, as_="lists")
    assert lists == plain.item_ids
    frame = retriever.recommend(users=np.array([3, 5]), k=4, as_="polars")
    assert frame.columns == ["user", "row", "rank", "item", "score"]
    assert frame["user"].to_list() == [3] * 4 + [5] * 4
    assert frame["item"].to_list() == [item for row in lists for item in row]
    of_pandas = retriever.recommend(users=pl.Series([3, 5]), k=4, as_="pandas")
    assert pl.from_pandas(of_pandas).equals(frame)
    of_arrow = retriever.recommend(users=pa.array([3, 5]), k=4, as_="arrow")
    assert isinstance(of_arrow, pa.Table)
    assert pl.from_arrow(of_arrow).equals(frame)
    by_history = retriever.recommend([[1, 2]], k=4, as_="polars")
    assert by_history.columns == ["row", "rank", "item", "score"]


_IDS = {
    "numbers": pl.Series(range(7), dtype=pl.Int32),
    "large": pl.Series([*range(6), 2**64 - 1], dtype=pl.UInt64),
    "text": pl.Series(list("abcdefg")),
    "days": pl.Series([dt.date(2026, 1, 1 + day) for day in range(7)]),
}


@pytest.mark.parametrize("kind", _IDS)
def test_a_frame_has_the_types_of_the_log_with_rows_or_without(kind):
    ids = _IDS[kind]
    histories = ItemLists.from_lists([[0, 3], [1], [2]])
    retriever = Retriever(PopularitySearcher(np.arange(7)), Vocabulary(ids), Vocabulary(ids[:3]), histories)
    users = ids[:2].to_list()
    full = retriever.recommend(users=users, k=7, as_="polars")
    types = {"user": ids.dtype, "row": pl.Int64, "rank": pl.Int64, "item": ids.dtype, "score": pl.Float64}
    assert full.schema == types
    # The largest value is last, beyond the rows used for type inference.
    many = retriever.recommend(users=users * 100, k=7, seen="keep", as_="polars")
    assert many["item"].null_count() == 0
    assert set(many["item"]) == set(ids)
    for form in ("polars", "pandas", "arrow"):
        expected = retriever.recommend(users=users, k=7, as_=form)
        for rest in ({"users": users, "allowed": []}, {"users": []}):
            empty = retriever.recommend(**rest, k=3, as_=form)
            assert len(empty) == 0
            if form == "pandas":
                assert empty.dtypes.equals(expected.dtypes)
            else:
                assert empty.schema == expected.schema
    strangers = retriever.recommend(users=[*users, None], k=1, on_unknown="ignore", as_="polars")
    assert strangers["user"].to_list() == [*users, None]


def test_histories_come_from_every_library(retriever):
    expected = retriever.recommend([[1, 2], [3]], k=3).item_ids
    series = pl.Series([[1, 2], [3]])
    for histories in (series, series.to_pandas(), series.to_arrow(), [np.array([1, 2]), np.array([3])], ((1, 2), (3,))):
        assert retriever.recommend(histories, k=3).item_ids == expected
    with pytest.raises(InputError, match="histories is a sparse matrix, which has no ids"):
        retriever.recommend(sparse.eye(3), k=3)


def test_an_unknown_form_names_the_nearest(retriever):
    with pytest.raises(InputError, match="as_='pandsa' is unknown; did you mean 'pandas'"):
        retriever.recommend(users=[3], k=3, as_="pandsa")


# What was mistyped


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["recomend", "x"], "recommend"),
        (["fit", "LOG", "--metod", "ease"], "--method"),
        (["fit", "LOG", "--method", "Eaze"], "ease"),
        (["fit", "LOG", "--method", "EASE"], "ease"),
        (["fit", "LOG", "--method", "ease", "--set", "model.regularization=3"], "model.regularisation"),
        (["fit", "LOG", "--method", "ease", "--preset", "papr"], "paper"),
        (["fit", "LOG", "--method", "ease", "--split", "leave-1-out"], "leave-one-out"),
        (["fit", "LOG", "--method", "ease", "--item-column", "Item"], "--item-column 'item_id'"),
        (["fit", "LOG", "--method", "ease", "--missing", "dorp"], "drop"),
        (["compare", "LOG", "--methods", "ease,popularty"], "popularity"),
        (["settings", "cooccurence"], "cooccurrence"),
    ],
)
def test_mistyped_names_get_a_suggestion(write, planted, say, arguments, nearest):
    path = write(planted)
    said = say(arguments[0], *[path if word == "LOG" else word for word in arguments[1:]], code=2)
    assert nearest in said.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["fit", "FOLDER/lgo.csv"], "FOLDER/log.csv"),
        (["describe", "FOLDER/Log.csv.gz"], "FOLDER/log.csv"),
        (["fit", "FOLDER/log.csv", "--items", "FOLDER/log.cvs"], "FOLDER/log.csv"),
        (["fit", "FOLDER/log.csv", "--method", "ease", "--config", "FOLDER/ease.tml"], "FOLDER/ease.toml"),
        (["evaluate", "FOLDER/runs/mien"], "FOLDER/runs/mine"),
        (["recommend", "FOLDER/run/mine", "--user", "3"], "FOLDER/runs/mine"),
    ],
)
def test_a_mistyped_path_gets_a_suggestion(write, planted, say, tmp_path, arguments, found):
    write(planted)
    (tmp_path / "ease.toml").write_text("")
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    said = say(*[word.replace("FOLDER", str(tmp_path)) for word in arguments], code=2)
    assert f"did you mean '{found.replace('FOLDER', str(tmp_path))}'?" in said.strip().splitlines()[-1]


@pytest.mark.parametrize("path", ["qqqq.parquet", "run/none", "log.csv/log.csv"])
def test_a_path_without_a_similar_one_gets_no_suggestion(write, planted, say, tmp_path, path):
    write(planted)
    (tmp_path / "runs").mkdir()
    said = say("fit", tmp_path / path, code=2).strip().splitlines()[-1]
    assert said.endswith("does not exist; check the path")
