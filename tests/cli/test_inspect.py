"""A tree from its fit to its diagnosis with `inspect`."""

import json
import re
from dataclasses import replace

import pytest

from beamwood.cli.diagnosis_data import diagnosis_data
from beamwood.retrieval.retriever import Retriever
from cli_cases import TINY, beamwood


def test_dtr_from_end_to_end(market, capsys):
    out = market / "tree"
    settings = [part for setting in TINY for part in ("--set", setting)]
    assert beamwood("fit", market / "log.parquet", "--method", "dtr", "--out", out, *settings, "--json") == 0
    assert json.loads(capsys.readouterr().out)["training"]["steps"] == 6
    assert beamwood("inspect", out, "--json") == 0
    assert json.loads(capsys.readouterr().out)["tree"]["leaves"] >= 60
    assert beamwood("evaluate", out, "--json", "--k", "5") == 0
    assert beamwood("fit", market / "log.parquet", "--method", "dtr", "--out", out, *settings) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert beamwood("fit", market / "log.parquet", "--method", "dtr", "--out", out, *settings, "--overwrite") == 0


def test_a_folder_saved_in_python_names_no_log(market, tmp_path, capsys):
    """Each command says what to do instead, as no option names a split that Python made."""
    settings = [part for setting in TINY for part in ("--set", setting)]
    assert beamwood("fit", market / "log.parquet", "--method", "dtr", "--out", tmp_path / "tree", *settings) == 0
    fitted = Retriever.load(tmp_path / "tree")
    own = {key: value for key, value in fitted.metadata.items() if key not in ("source", "split", "read")}
    replace(fitted, metadata=own).save(tmp_path / "python")
    capsys.readouterr()
    for command in ("evaluate", "refit"):
        assert beamwood(command, tmp_path / "python") == 2
        assert "by beamwood.evaluate, refit and compare, which take the split" in capsys.readouterr().err
    assert beamwood("inspect", tmp_path / "python", "--users", "5") == 0
    assert "the folder names no log: halves of stored histories" in capsys.readouterr().err


def test_inspect_diagnoses_a_tree(market, capsys, tmp_path):
    out = market / "inspected"
    settings = [part for setting in TINY for part in ("--set", setting)]
    log = tmp_path / "moved.parquet"
    log.write_bytes((market / "log.parquet").read_bytes())
    assert beamwood("fit", log, "--method", "dtr", "--out", out, *settings, "--set", "tree.branching=4") == 0
    capsys.readouterr()
    page = tmp_path / "page.html"
    assert beamwood("inspect", out, "--widths", "20,60", "--html", page, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["queries"] == "12 validation users"
    levels = document["diagnostics"]["levels"]
    assert [level["level"] for level in levels] == list(range(1, document["tree"]["depth"] + 1))
    assert document["diagnostics"]["beams"][-1]["overlap"] == 1
    assert document["diagnostics"]["heap_tolerance"] == 0.5
    drawn = page.read_text()
    assert drawn.count('<figure class="chart" id="calibration-') == len(levels)
    assert "Calibrated is the softmax of the level." in drawn
    assert [node["level"] for node in document["outline"]][:2] == [0, 1]
    few, every = (diagnosis_data(str(out), Retriever.load(out), users, None, None).labels for users in (5, 12))
    assert [row.tolist() for row in few] != [every[row].tolist() for row in range(5)], "users are drawn"
    assert beamwood("inspect", out, "--users", "5") == 0
    shown = capsys.readouterr().out
    assert "heap violations" in shown
    assert "all items" in shown
    assert "\nmargin of the labels in the beam (a label is lost below 0)\n" in shown
    log.unlink()
    assert beamwood("inspect", out, "--users", "7", "--json") == 0
    captured = capsys.readouterr()
    assert "stored histories" in json.loads(captured.out)["queries"]
    assert "may have seen" in captured.err
    assert beamwood("inspect", out, "--widths", "5,x") == 2
    capsys.readouterr()
    assert beamwood("inspect", out, "--widths", "30,5") == 2
    assert "--widths 5 is below 20, the length of a list; give 20 or more" in capsys.readouterr().err
    assert beamwood("inspect", out, "--users", "0", "--html", page) == 2
    assert beamwood("inspect", out, "--log", market / "items.parquet") == 2


@pytest.mark.parametrize(("method", "words"), [("tdm", "sigmoid of the node"), ("plt", "product along the path")])
def test_inspect_calibrates_the_trained_probability(market, capsys, tmp_path, method, words):
    out = tmp_path / "new"
    settings = [part for setting in [*TINY, "tree.branching=16"] for part in ("--set", setting)]
    assert beamwood("fit", market / "log.parquet", "--method", method, "--out", out, *settings) == 0
    capsys.readouterr()
    assert beamwood("inspect", out, "--users", "5", "--widths", "20", "--html", tmp_path / "page.html") == 0
    shown = capsys.readouterr().out
    assert words in shown
    assert "│ - " in shown
    assert "searched_by: the native core" in shown
    drawn = (tmp_path / "page.html").read_text()
    assert re.search(f"Calibrated is the [^.]*{words}", drawn)


@pytest.mark.parametrize("widths", ["a", "0", "20,"])
def test_widths_are_checked_without_a_tree_too(fitted, capsys, widths):
    assert beamwood("inspect", fitted, "--widths", widths) == 2
    assert f"--widths {widths!r} is not a list of numbers of 1 or more" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html page.html", "--widths 20,50", "--log none.csv", "--items none.csv"])
def test_options_of_the_diagnostics_are_refused_without_a_tree(fitted, capsys, option):
    name, value = option.split()
    assert beamwood("inspect", fitted, name, value) == 2
    assert f"{name} is for the diagnostics of a tree; {fitted} has none" in capsys.readouterr().err
