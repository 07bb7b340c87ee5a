"""`compare --folders`: saved folders of one split, evaluated as by `evaluate`; other splits are refused."""

import json

import numpy as np
import polars as pl
import pytest

from beamwood.cli.measure import SHOWN, print_table
from beamwood.evaluation.results import VIEWS, PerQuery
from cli_cases import beamwood


@pytest.fixture(scope="module")
def folders(market):
    made = {}
    for name, method, seed in (("a", "popularity", 2026), ("b", "cooccurrence", 2026), ("c", "transitions", 2026)):
        made[name] = market / name
        fit = ("fit", market / "log.parquet", "--method", method, "--seed", seed, "--out", made[name])
        assert beamwood(*fit) == 0
    assert beamwood("fit", market / "log.parquet", "--method", "ease", "--seed", 7, "--out", market / "other") == 0
    return made | {"other": market / "other"}


def test_figures_equal_those_of_evaluate(market, folders, capsys):
    capsys.readouterr()
    three = (folders["a"], folders["b"], folders["c"])
    assert beamwood("compare", market / "log.parquet", "--folders", *three, "--k", "5", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert list(document["methods"]) == ["a", "b", "c"]
    assert document["verdict"]["removed"]["simplest"] == "a"
    for name, folder in zip("abc", three, strict=True):
        assert beamwood("evaluate", folder, "--k", "5", "--json") == 0
        views = json.loads(capsys.readouterr().out)["views"]
        for view in ("kept", "removed"):
            assert document["methods"][name][view]["metrics"] == views[view]["metrics"]
    repeated = ("--folders", three[0], "--folders", three[1])
    assert beamwood("compare", market / "log.parquet", *repeated, "--k", "5", "--tail", "0.3") == 0
    said = capsys.readouterr().out
    for column in ("ms a user", "at the 99th percentile", "scored", "MB"):
        assert column in said


def test_folders_of_other_data_or_another_split_are_refused(market, folders, tmp_path, capsys):
    log, a, b = market / "log.parquet", folders["a"], folders["b"]
    more = pl.read_parquet(log)
    more.vstack(more.head(1).with_columns(timestamp=pl.lit(10**6, more["timestamp"].dtype))).write_parquet(
        tmp_path / "changed.parquet"
    )
    (tmp_path / "link").symlink_to(a)
    both = ("compare", log, "--folders", a, b)
    cases = [
        (("compare", log, "--folders", a, folders["other"]), "--seed 7, "),
        (("compare", log, "--folders", a, folders["other"]), "trained on test users of the other"),
        (("compare", tmp_path / "changed.parquet", "--folders", a, b), "may have been trained on"),
        (("compare", tmp_path / "changed.parquet", "--folders", a, b), "give the old log as LOG\n"),
        ((*both, "--seed", 7), "was fitted with --seed 2026; leave --seed out"),
        ((*both, "--split", "time"), "was fitted with --split users; leave --split out"),
        ((*both, "--methods", "popularity,ease"), "--methods is for methods that are fitted"),
        ((*both, "--time-limit", "5m"), "--time-limit is for methods that are fitted"),
        ((*both, "--user-column", "user_id"), "--user-column is stored in each of the --folders"),
        ((*both, "--min-weight", "0"), "--min-weight is stored in each of the --folders"),
        (("compare", log, "--folders", a), "at least two folders"),
        (("compare", log, "--folders", a, f"{a}/"), "each once"),
        (("compare", log, "--folders", a, tmp_path / "link"), "each once"),
        (("compare", "--folders", a, b, folders["c"]), "is a fitted folder, not a log; write beamwood compare LOG"),
        (("compare", "--folders", a, b), f"{b} is a fitted folder, not a log; write beamwood compare LOG"),
        (("compare", log, a, b), "and folders as --folders A B C"),
        (("compare", log, "--folders", a, tmp_path / "none"), "none"),
    ]
    for arguments, message in cases:
        assert beamwood(*arguments) == 2, arguments
        error = capsys.readouterr().err
        assert message in error, (arguments, error)
        assert "Traceback" not in error


def test_folders_with_the_same_name_are_distinguished(market, folders, tmp_path, capsys):
    (tmp_path / "one").mkdir()
    out = tmp_path / "one" / "a"
    assert beamwood("fit", market / "log.parquet", "--method", "cooccurrence", "--out", out) == 0
    capsys.readouterr()
    assert beamwood("compare", market / "log.parquet", "--folders", folders["a"], out, "--k", "5", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["methods"]) == [str(folders["a"]), str(out)]


def test_names_in_tables_are_no_markup(capsys):
    """The names of folders, one of which would end a style that was never begun."""
    values = {f"{name}@5": np.array([0.1, 0.3]) for name in SHOWN}
    views = {
        view: PerQuery(np.arange(2), values, {}, view, (5,), 0, None, scored=1.0, seconds=1.0, encodes=False)
        for view in VIEWS
    }
    names = ("m[a]", "[/x]", "x:bug:")
    print_table(dict.fromkeys(names, views), (5,))
    for name in names:
        print_table({name: views}, (5,))
    said = capsys.readouterr().out
    assert [said.count(name) for name in names] == [3, 3, 3]
