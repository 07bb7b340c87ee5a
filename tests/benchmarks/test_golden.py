"""`benchmarks.golden` finds the differences of two records, and its cases are valid."""

import json
import re
import sys
from pathlib import Path

import pytest

from beamwood.methods import METHODS, load_method


@pytest.fixture
def golden(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from benchmarks import golden

    return golden


@pytest.fixture
def run(golden, monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["golden", *map(str, arguments)])
        code = golden.main()
        return code, capsys.readouterr().out

    return run


RECORD = {
    "fit": {"exit": 0, "error": None, "training": {"best_step": 15, "stopped": "max_steps"}},
    "steps": {"0/valid/removed/f@20": 0.1},
    "tensors": {"weights:a": ["float32", [2], "11"], "weights:b": ["float32", [2], "22"]},
    "run": {"tensors:model.a": ["float32", [2], "33"]},
    "evaluate": {"exit": 0, "error": None},
    "metrics": {"views/kept/metrics/f@20": 0.25, "views/removed/metrics/f@20": 0.5},
    "answers": {"users": {"exit": 0, "error": None, "rows": [{"query": "1", "items": [3, 4], "scores": [0.5, 0.25]}]}},
}
REFUSALS = {"k is 0": {"exit": 2, "error": "beamwood: k=0 is outside 1..160, the number of items"}}


def write(folder, record, refusals=REFUSALS):
    (folder / "planted").mkdir(parents=True)
    (folder / "planted/dtr.json").write_text(json.dumps(record))
    (folder / "planted/refusals.json").write_text(json.dumps(refusals))


def changed(*path, value):
    """`RECORD` with one value changed."""
    record = json.loads(json.dumps(RECORD))
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return record


ROWS = ("answers", "users", "rows", 0)
TENSORS = RECORD["tensors"]


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            changed("metrics", "views/removed/metrics/f@20", value=0.375),
            "metrics: 1 of 2 differ, most views/removed/metrics/f",
        ),
        (
            changed("metrics", value={"views/kept/metrics/f@20": 0.25}),
            "metrics: only in the first: views/removed/metrics/f",
        ),
        (changed("steps", "0/valid/removed/f@20", value=0.2), "steps: 1 of 1 differ, most 0/valid/removed/f@20 by 0.1"),
        (changed("fit", "training", "stopped", value="patience"), "training: 1 of 2 differ, most stopped by inf"),
        (changed(*ROWS, "items", value=[4, 3]), "users: 1 of 1 queries have other items; scores differ by 0 at most"),
        (changed(*ROWS, "scores", value=[0.5, 0.5]), "users: 0 of 1 queries have other items; scores differ by 0.25"),
        (changed("answers", "users", "exit", value=2), "answers, users: 1 of 2 differ, most exit by 2: 0 / 2"),
        (changed("tensors", "weights:a", value=["float32", [2], "44"]), "tensors: 1 other content (1 of 2 equal): wei"),
        (changed("tensors", value={"weights:a": TENSORS["weights:a"]}), "tensors: 1 missing (1 of 2 equal): weights:b"),
        (changed("run", value={}), "run: 1 missing (0 of 1 equal): tensors:model.a"),
        ({"fit": {"exit": 2, "error": "no"}}, "fit: 2 of 2 differ"),
    ],
)
def test_each_difference_is_found(run, tmp_path, record, line):
    write(tmp_path / "a", RECORD)
    write(tmp_path / "b", record)
    code, out = run("compare", tmp_path / "a", tmp_path / "b", "--allow-renamed")
    assert code == 1
    assert "planted/dtr: differs" in out
    assert line in out
    assert "planted/refusals: equal" in out


def test_equal_records_and_renamed_arrays(run, tmp_path):
    moved = {"weights:a": TENSORS["weights:a"], "weights:c": TENSORS["weights:b"]}
    for name, record in (("a", RECORD), ("b", RECORD), ("c", changed("tensors", value=moved))):
        write(tmp_path / name, record)
    assert run("compare", tmp_path / "a", tmp_path / "b")[0] == 0
    code, out = run("compare", tmp_path / "a", tmp_path / "c")
    assert (code, "tensors: 1 renamed (1 of 2 equal): weights:b -> weights:c" in out) == (1, True)
    assert run("compare", tmp_path / "a", tmp_path / "c", "--allow-renamed")[0] == 0


def test_refusals_and_missing_cases_are_compared(run, tmp_path):
    write(tmp_path / "a", RECORD)
    write(tmp_path / "b", RECORD, {"k is 0": {"exit": 1, "error": "beamwood: a fault"}})
    code, out = run("compare", tmp_path / "a", tmp_path / "b", "--only", "refusals")
    assert (code, "k is 0: 2 of 2 differ" in out, "dtr" in out) == (1, True, False)
    (tmp_path / "b/planted/dtr.json").unlink()
    assert f"not in {tmp_path / 'b'}" in run("compare", tmp_path / "a", tmp_path / "b", "--only", "dtr")[1]
    assert run("compare", tmp_path / "a", tmp_path / "b", "--only", "nothing")[0] == 1


def test_cases_refer_to_existing_cases(golden):
    """A name in braces is another case or the user table."""
    for text in (*golden.REFUSED_CALLS.values(), *map(repr, golden.CASES.values())):
        for name in re.findall(r"{([a-z0-9_-]+)}", text):
            assert name in {*golden.CASES, "users"}


def test_cases_have_settings_of_their_methods(golden):
    for case in golden.CASES.values():
        assert set(case.settings) <= set(load_method(case.method.split("+")[0]).Config.names())


def test_every_method_has_a_case(golden):
    assert set(METHODS) == {case.method for case in golden.CASES.values() if "+" not in case.method}


@pytest.mark.slow
def test_a_record_equals_itself(run, tmp_path):
    assert run("record", tmp_path / "a", "--only", "popularity")[0] == 0
    record = json.loads((tmp_path / "a/planted/popularity.json").read_text())
    assert record["fit"]["exit"] == record["evaluate"]["exit"] == 0
    assert [len(row["items"]) for row in record["answers"]["users, seen kept"]["rows"]] == [10] * 6
    assert record["tensors"]
    assert record["metrics"]["views/removed/metrics/ndcg@20"] > 0
    assert run("compare", tmp_path / "a", tmp_path / "a")[0] == 0
