"""`inspect` shows how a tree is searched: the curve on validation users, and the chosen point."""

import json
from dataclasses import replace

import polars as pl
import pytest
from typer.testing import CliRunner

from beamwood import load
from beamwood.cli.main import app
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.kernels.light import Way
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.ways import Ways
from chromium import check_page, needs_chromium, rows_of
from cli_cases import TINY, beamwood
from din_cases import random_case

POINTS = [("steer", 300, 100, 100.0, 0.1556, 0.001), ("cascade", 50, 100, 296.0, 0.155, -0.004)]
POINTS += [("beam", 150, 0, 2600.4, 0.1557, 0.0)]


NAMES = ("kind", "beam_width", "judged", "nodes", "metric", "lowest")
SEARCH = {"kind": "steer", "beam_width": 300, "judged": 100, "chosen": 0, "monitor": "both/f@20"}
SEARCH |= {"queries": 604, "may_lose": 0.005, "may_lose_level": 0.015}
SEARCH |= {"curve": [dict(zip(NAMES, point, strict=True)) for point in POINTS]}


@pytest.fixture
def folder(tmp_path):
    tree, weights, _ = random_case(1)
    searcher = TreeSearcher(weights, tree, ways=Ways((Way("beam", 50), Way("beam", 150)), 0))
    items = Vocabulary(pl.Series("id", range(tree.num_items)))
    Retriever(searcher, items, metadata={"method": "dtr", "search": SEARCH}).save(tmp_path / "fit")
    return str(tmp_path / "fit")


def test_the_curve_is_a_table_with_the_chosen_point(folder):
    shown = CliRunner().invoke(app, ["inspect", folder, "--users", "0"])
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    words = " ".join(shown.output.split())
    assert "604 validation queries lose at most 0.5 % of both/f@20, and likely at most 1.5 %" in words
    rows = [line for line in lines if "steer" in line or "cascade" in line or "│ beam" in line]
    assert [("chosen" in row, kind) for row, kind in zip(rows, ("steer", "cascade", "beam"), strict=True)] == [
        (True, "steer"),
        (False, "cascade"),
        (False, "beam"),
    ]
    assert "2,600" in rows[2]
    assert "0.40 %" in rows[1]


def test_json_has_the_measured_curve(folder):
    shown = CliRunner().invoke(app, ["inspect", folder, "--users", "0", "--json"])
    search = json.loads(shown.stdout)["search"]
    assert [point["nodes"] for point in search["curve"]] == [100.0, 296.0, 2600.4]
    assert search["chosen"] == 0


@needs_chromium
@pytest.mark.slow
def test_the_page_draws_the_curve_and_marks_the_chosen_point(market, capsys, tmp_path):
    settings = [part for setting in (*TINY, "tree.branching=4") for part in ("--set", setting)]
    assert beamwood("fit", market / "log.parquet", "--method", "dtr", "--out", tmp_path / "tree", *settings) == 0
    fitted = load(tmp_path / "tree")
    replace(fitted, metadata=fitted.metadata | {"search": SEARCH}).save(tmp_path / "tree", overwrite=True)
    page = tmp_path / "page.html"
    capsys.readouterr()
    assert beamwood("inspect", tmp_path / "tree", "--html", page, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    chart = check_page(page, document, tmp_path)["search"]
    points, ring, word = (rows_of(layer) for layer in chart["layer"])
    assert [(row["name"], row["x"], row["y"]) for row in points] == [
        (kind, nodes, metric) for kind, *_, nodes, metric, _ in POINTS
    ]
    assert ring == word == [points[0]]
    text = page.read_text()
    assert text.count('class="best"') == 1
    assert "the light head walks down the tree" in text
    assert "By the lower end of a paired interval it loses at most" in text
    assert ">1.5 %</data>" in text
