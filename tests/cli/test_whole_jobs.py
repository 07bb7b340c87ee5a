"""Batch jobs: answers equal those of Python in each format, and an interrupted job resumes."""

import datetime as dt
import json
import os

import polars as pl
import pytest

import beamwood as package
from beamwood.artefact import replace as replacing
from beamwood.errors import InputError
from beamwood.retrieval.batch import group_answers
from beamwood.retrieval.batch import job as jobs
from beamwood.retrieval.columns.where_text import parse_where
from cli_cases import beamwood, interrupt_second_block


def read(path):
    readers = {".parquet": pl.read_parquet, ".csv": pl.read_csv, ".jsonl": pl.read_ndjson}
    return readers[path.suffix](path)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("threads", [1, 2])
def test_all_users_in_a_file(fitted, tmp_path, suffix, threads, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "GROUP_ROWS", 50)
    monkeypatch.setattr(group_answers, "_ROWS", 7)
    out = tmp_path / f"recs{suffix}"
    assert beamwood("recommend", fitted, "--all-users", "-k", 4, "--out", out, "--threads", threads, "--json") == 0
    counts = {"rows": 120, "answered": 120, "short": 0, "empty": 0}
    assert json.loads(capsys.readouterr().out) == {"out": str(out)} | counts
    found = read(out)
    retriever = package.load(fitted)
    users = retriever.users.ids.to_list()
    expected = retriever.recommend(users=users, k=4)
    assert found["item"].to_list() == [item for row in expected.item_ids for item in row]
    assert found["query"].to_list() == [user for user, row in zip(users, expected.item_ids, strict=True) for _ in row]
    assert found["score"].to_list() == pytest.approx([score for row in expected.scores for score in row])
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    if suffix == ".parquet":
        assert pl.read_parquet_metadata(out) is not None
    assert beamwood("recommend", fitted, "--all-users", "--out", out) == 2
    assert "pass --overwrite" in capsys.readouterr().err


def test_an_output_that_is_a_link_stays_one(fitted, tmp_path, monkeypatch, capsys):
    (tmp_path / "shared").mkdir()
    out, page = tmp_path / "latest.csv", tmp_path / "page.html"
    for link in (out, page):
        link.symlink_to(f"shared/{link.name}")
    for _ in range(2):
        assert beamwood("recommend", fitted, "--all-users", "--out", out, "--overwrite") == 0
        assert beamwood("evaluate", fitted, "--html", page) == 0
    assert out.is_symlink()
    assert page.is_symlink()
    assert sorted(os.listdir(tmp_path / "shared")) == ["latest.csv", "page.html"]
    # Only a file is replaced, whatever the link leads to, and nothing is written beside anything else.
    written = []
    monkeypatch.setattr(replacing, "check_writable", written.append)
    monkeypatch.setattr(jobs, "check_writable", written.append)
    for link in (out, page):
        link.unlink()
        link.symlink_to(os.devnull)
    assert beamwood("recommend", fitted, "--all-users", "--out", out, "--overwrite") == 2
    assert "is no earlier output of this command, so it is not replaced" in capsys.readouterr().err
    assert beamwood("evaluate", fitted, "--html", page) == 2
    assert "exists and is not a page of beamwood" in capsys.readouterr().err
    assert not written


IDS = {
    "large": (pl.UInt64, lambda n: 2**64 - 1 - n),
    "small": (pl.Int32, lambda n: n - 5),
    "text": (pl.String, lambda n: f"user {n}"),
    "days": (pl.Date, lambda n: dt.date(2026, 1, 1) + dt.timedelta(days=n)),
    "times": (pl.Datetime("us"), lambda n: dt.datetime(2026, 1, 1, n)),
}


@pytest.mark.parametrize("kind", IDS)
def test_users_in_a_file_have_the_logs_type(tmp_path, capsys, kind):
    dtype, make = IDS[kind]
    rows = [(make(user), item) for user in range(20) for item in range(user % 5, user % 5 + 6)]
    frame = pl.DataFrame(rows, {"user": dtype, "item": pl.UInt64}, orient="row")
    frame.write_parquet(tmp_path / "log.parquet")
    fit = ("fit", tmp_path / "log.parquet", "--method", "popularity", "--out", tmp_path / "mine")
    assert beamwood(*fit) == 0, capsys.readouterr().err
    (tmp_path / "two.txt").write_text(f"{make(3)}\n{make(4)}\n")
    for ask, users in (("--all-users",), set(frame["user"])), (("--users", tmp_path / "two.txt"), {make(3), make(4)}):
        for suffix in (".parquet", ".csv", ".jsonl"):
            out = tmp_path / f"{len(users)}{suffix}"
            assert beamwood("recommend", tmp_path / "mine", *ask, "-k", 2, "--out", out) == 0, capsys.readouterr().err
            assert read(out)["query"].n_unique() == len(users)
        found = read(tmp_path / f"{len(users)}.parquet")
        assert found.schema["query"] == (pl.Int64 if kind == "small" else dtype)
        assert set(found["query"]) == users
    (tmp_path / "strange.txt").write_text(f"{make(3)}\nnobody\n")
    ask = (
        "--users",
        tmp_path / "strange.txt",
        "--on-unknown",
        "ignore",
        "-k",
        1,
        "--out",
        tmp_path / "strange.parquet",
    )
    assert beamwood("recommend", tmp_path / "mine", *ask) == 0, capsys.readouterr().err
    assert read(tmp_path / "strange.parquet")["query"].to_list() == [str(make(3)), "nobody"]


def test_an_interrupted_job_resumes(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "GROUP_ROWS", 50)
    whole, out = tmp_path / "whole.parquet", tmp_path / "recs.parquet"
    assert beamwood("recommend", fitted, "--all-users", "-k", 4, "--out", whole) == 0
    calls = interrupt_second_block(monkeypatch)
    assert beamwood("recommend", fitted, "--all-users", "-k", 4, "--out", out) == 130
    assert not out.exists()
    assert beamwood("recommend", fitted, "--all-users", "-k", 4, "--out", out) == 2
    assert beamwood("recommend", fitted, "--all-users", "-k", 5, "--out", out, "--resume") == 2
    assert beamwood("recommend", fitted, "--all-users", "-k", 4, "--out", out, "--resume") == 0
    # The first group was not computed again.
    users = read(whole)["query"].unique(maintain_order=True)
    assert calls == [users[first] for first in (0, 50, 50, 100)]
    assert read(out).equals(read(whole))


def test_histories_in_a_file_with_a_condition(fitted, tmp_path):
    (tmp_path / "asked.txt").write_text("1,2,3\n[4, 5]\n")
    out = tmp_path / "recs.jsonl"
    where = "category in ('group 0, category 1', 'group 0, category 2')"
    ask = ("recommend", fitted, "--histories", tmp_path / "asked.txt", "-k", 3, "--where", where, "--out", out)
    assert beamwood(*ask) == 0
    retriever = package.load(fitted)
    wanted = ["group 0, category 1", "group 0, category 2"]
    expected = retriever.recommend([[1, 2, 3], [4, 5]], 3, where={"category": wanted})
    assert read(out)["item"].to_list() == [item for row in expected.item_ids for item in row]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--all-users",), "name it with --out recs.parquet"),
        (("--user", "3", "--resume"), "name it with --out"),
        (("--all-users", "--user", "3", "--out", "x.csv"), "give one of --user"),
        (("--all-users", "--out", "x.txt"), "ends in '.txt'"),
        (("--user", "3", "--where", "prize < 3"), "no item column 'prize'"),
        (("--user", "3", "--where", "category ="), "it ends where a value should"),
    ],
)
def test_errors_name_the_fix(fitted, arguments, message, capsys):
    assert beamwood("recommend", fitted, *arguments) == 2
    assert message in capsys.readouterr().err


TEXTS = [
    ("price<=20", {"price": {"lte": 20}}),
    ("price != 2.5", {"price": {"ne": 2.5}}),
    ("price<=20 and brand in (a, 'b c')", {"all": [{"price": {"lte": 20}}, {"brand": {"in": ["a", "b c"]}}]}),
    ("brand = 20", {"brand": {"eq": "20"}}),
    ("stock = true or not brand not in (a)", {"any": [{"stock": {"eq": True}}, {"not": {"brand": {"not_in": ["a"]}}}]}),
    ("(price>1 or price<0) and since >= 2026-01-31", None),
    # No number, which the column's condition says.
    ("price<1_0", {"price": {"lt": "1_0"}}),
    ("brand is missing", {"brand": {"missing": True}}),
    ("brand is not missing", {"brand": {"missing": False}}),
]


def columns():
    from beamwood.retrieval.columns.item_columns import ItemColumns
    from retrieval_cases import item_frame

    return ItemColumns.of(item_frame(50))


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=[text for text, _ in TEXTS])
def test_text_is_parsed_to_the_mapping(text, expected):
    found = parse_where(text, columns())
    if expected is None:
        either = {"any": [{"price": {"gt": 1}}, {"price": {"lt": 0}}]}
        expected = {"all": [either, {"since": {"gte": "2026-01-31"}}]}
    assert found == expected


@pytest.mark.parametrize(
    "text", ["", "price", "price <", "price < 3 4", "price in 3", "price in (3", "((price=3)", "= 3", "'"]
)
def test_invalid_conditions_are_refused(text):
    with pytest.raises(InputError, match="--where"):
        parse_where(text, columns())
