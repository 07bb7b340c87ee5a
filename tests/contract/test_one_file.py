"""A custom part is one file that the package does not refer to, and works like any built-in method."""

import json
import shutil
import time
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

import beamwood as package
from beamwood.data import Dataset, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.methods import load_method
from beamwood.serve.store.sqlite import SqliteStore
from cli_cases import beamwood
from own_files import METHOD_FILES, PARTS
from plans import read_by
from resumed import whole_as_in_parts

SHORT = {
    "loop.max_steps": 6,
    "loop.evaluate_every": 3,
    "loop.batch_size": 16,
    "choose.validation_users": 20,
    "tree.branching": 4,
    "model.width": 8,
    "optimiser.decay_steps": 6,
}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    market = make_market(MarketConfig(num_users=200, num_items=60, min_events=5, max_events=14), seed=1)
    market.log.write_parquet(folder / "log.parquet")
    return folder / "log.parquet"


def short(method):
    """Settings for a very short training of the method."""
    return read_by(method, SHORT)


def words(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def said(capsys):
    return json.loads(capsys.readouterr().out)


def test_there_is_a_file_for_each_kind_of_part():
    assert {path.stem for path in PARTS} >= {
        "bucket_index",
        "focal_loss",
        "last_taken",
        "fading_mean",
        "journal_store",
        "light_gcn",
        "list_hinge",
        "took_lately",
        "attended_product",
        "trend_term",
        "popular_negatives",
        "hardest_negatives",
    }


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_the_package_does_not_refer_to_it(path):
    name = load_method(str(path)).name if path in METHOD_FILES else path.stem
    source = Path(package.__file__).parent
    for file in source.rglob("*.py"):
        text = file.read_text()
        assert path.stem not in text
        assert f'"{name}"' not in text


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda path: path.stem)
def test_all_commands_accept_it(path, log, tmp_path, capsys):
    """These are settings, fit, evaluate and recommend; the saved folder loads only with the file."""
    method, out = load_method(str(path)), tmp_path / "fitted"
    assert beamwood("settings", path, "--json") == 0
    assert set(said(capsys)) == set(method.Config.names())
    assert (
        beamwood(
            "fit", log, "--split", "leave-one-out", "--method", path, "--out", out, *words(short(method)), "--json"
        )
        == 0
    )
    assert said(capsys)["method"] == method.name
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["method_file"]["path"] == str(path)
    own = ("--method", path) if method.searchers else ()
    if own:
        assert beamwood("evaluate", out) == 2
        assert path.name in capsys.readouterr().err
    assert beamwood("evaluate", out, "--k", "5", "--json", *own) == 0
    assert 0 <= said(capsys)["views"]["kept"]["metrics"]["f@5"] <= 1
    user = pl.read_parquet(log)["user_id"][0]
    assert beamwood("recommend", out, "--user", user, "-k", "4", "--json", *own) == 0
    (row,) = said(capsys)
    assert len(row["items"]) == 4
    assert beamwood("serve", out, "--check", "--json", *own) == 0
    assert said(capsys)["answered"] == 20
    again = package.load(out, method=path) if own else package.load(out)
    assert again.recommend(users=[user], k=4).item_ids == [row["items"]]


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda path: path.stem)
def test_compare_accepts_it(path, log, capsys):
    method = load_method(str(path))
    if method.needs.steps:
        pytest.skip("compare takes no settings, and the defaults of a method that trains take minutes")
    assert beamwood("compare", log, "--methods", f"popularity,{path}", "--json") == 0
    assert method.name in said(capsys)["methods"]


def test_a_folder_that_loads_only_with_its_file_is_compared_and_erased_from(log, tmp_path, capsys):
    path, out, counted = Path(__file__).parents[1] / "one_file/took_lately.py", tmp_path / "own", tmp_path / "counted"
    for method, folder in (path, out), ("popularity", counted):
        assert beamwood("fit", log, "--split", "leave-one-out", "--method", method, "--out", folder) == 0
    both = ("compare", log, "--folders", counted, out, "--k", "5", "--json")
    store, user = tmp_path / "store.db", pl.read_parquet(log)["user_id"][0]
    with closing(SqliteStore(store)) as opened:
        opened.erase(user, time.time())
    erase = ("events", "erase", f"sqlite:{store}", "--from", out, "--out", tmp_path / "erased", "--json")
    for command in both, erase:
        assert beamwood(*command) == 2
        assert f"pass --method '{path}'" in capsys.readouterr().err
    assert beamwood(*both, "--method", path) == 0
    assert list(said(capsys)["methods"]) == ["counted", "own"]
    assert beamwood(*erase, "--method", path) == 0
    assert said(capsys)["in_the_model"] == 1
    shutil.copytree(counted, tmp_path / "other")
    for command, why in (
        (("compare", log), "is for --folders; list methods to fit with --methods"),
        (("compare", log, "--folders", counted, tmp_path / "other"), "defines the searcher of none of the --folders"),
        (("events", "export", f"sqlite:{store}", "--out", tmp_path / "log.parquet"), "--method is for erase"),
    ):
        assert beamwood(*command, "--method", path) == 2
        assert why in capsys.readouterr().err


@pytest.mark.parametrize("path", METHOD_FILES, ids=lambda path: path.stem)
def test_a_resumed_run_equals_an_uninterrupted_one(path, log, tmp_path):
    method = load_method(str(path))
    if not method.needs.steps:
        pytest.skip("it does not train by steps")
    split = leave_one_out(Dataset.from_log(read_log(log)))
    config = method.Config(**short(method))
    whole_as_in_parts(method, split, config, tmp_path)


def test_the_page_on_adding_a_method_shows_the_files():
    page = (Path(__file__).parents[2] / "docs" / "develop" / "add-a-method.md").read_text()
    for path in PARTS:
        assert f"../../tests/one_file/{path.name}" in page
