"""A tiny suite on a planted log: run, interrupted and resumed, rendered, checked, verified."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiny_suite import called, lines_of, written

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def benchmarks_are_found():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("made") / "checkout"
    written(root)
    assert called(root, "run", "--all") == 0
    assert called(root, "report") == 0
    return root


@pytest.fixture
def checkout(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def wrong(root, capsys):
    """The errors of `report --check`."""
    capsys.readouterr()
    code = called(root, "report", "--check")
    said = capsys.readouterr().out.splitlines()
    assert code == (1 if len(said) > 1 else 0)
    return said[:-1]


def test_a_line_records_the_run_and_its_origin(made):
    lines = {line["name"]: line for line in lines_of(made)}
    counted, trained = ["popularity/0", "cooccurrence/0"], ["sasrec/0", "sasrec/1"]
    both = ["sasrec+cooccurrence/0", "sasrec+cooccurrence/1"]
    assert sorted(lines) == sorted(f"main/planted/{name}" for name in (*counted, *trained, *both))
    line = lines["main/planted/sasrec/1"]
    assert (line["recipe"], line["seed"], line["commit"]) == ("whole", 1, "0123456")
    assert line["plan"]["start.items"] == "transitions"
    assert line["plan"]["loop.max_steps"] == line["training"]["steps"] == 20
    assert {"python", "numpy", "torch"} <= set(line["versions"])
    assert line["machine"]["threads"] == 1
    assert line["seconds"].keys() == {"fit", "processor", "evaluate"}
    assert line["peak_mib"] > 0
    assert lines["main/planted/sasrec+cooccurrence/1"]["before"] == {"start.retriever": "main/planted/sasrec/1"}
    assert lines["main/planted/sasrec+cooccurrence/1"]["plan"]["start.retriever"] == "run main/planted/sasrec/1"
    with np.load(made / "benchmarks" / "runs" / line["values"]) as values:
        assert values["removed/f@20"].shape == (line["queries"],)
        assert values["removed/f@20"].mean() == pytest.approx(line["figures"]["removed/f@20"], abs=1e-6)


def test_each_recipe_adds_its_figures(made):
    tail, sampled = lines_of(made, "rest")
    assert {"kept/hit_rate@5", "tail removed/ndcg@20"} <= tail["figures"].keys()
    assert {"removed/f@20", "sampled/ndcg@5"} <= sampled["figures"].keys()


def test_a_row_with_long_fits_has_one_seed_on_the_logs_it_names():
    from benchmarks.suite import LogEntry, Row, Suite, Topic

    logs = {name: LogEntry(folder=name, title=name) for name in ("short", "long")}
    rows = {"counted": Row(title="c", once=True), "trained": Row(title="t", once=["long"])}
    suite = Suite(logs, {"main": Topic(title="m", logs=["short", "long"], seeds=[0, 1], rows=rows)})
    assert [run.name.removeprefix("main/") for run in suite] == [
        *("short/counted/0", "short/trained/0", "short/trained/1"),
        *("long/counted/0", "long/trained/0"),
    ]


def test_existing_runs_are_not_repeated(made, capsys):
    assert called(made, "run", "main") == 0
    assert "0 made, 0 failed" in capsys.readouterr().out
    assert called(made, "list") == 0
    assert "8 of 8 made, 0 stale" in capsys.readouterr().out


def test_an_interrupted_training_resumes_and_leaves_one_line(tmp_path, monkeypatch, capsys):
    written(tmp_path)
    from beamwood.evaluation import protocol

    name = "main/planted/sasrec/0"

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "evaluate_split", stop)
        assert called(tmp_path, "run", name) == 130
    assert not (tmp_path / "benchmarks" / "runs").exists()
    assert (tmp_path / "runs" / "benchmarks" / name / "training" / "checkpoint").exists()
    assert called(tmp_path, "run", name) == 0
    (line,) = lines_of(tmp_path)
    assert line["training"]["steps"] == 20
    assert "processor" not in line["seconds"]
    # The first attempt did all of the training, so the table has its seconds.
    rows = {"name": line["name"], "seconds": line["seconds"], "training": line["training"] | {"seconds": 4000.0}}
    lines = tmp_path / "benchmarks" / "runs" / "main.jsonl"
    lines.write_text(json.dumps(line | rows, separators=(",", ":")) + "\n", encoding="utf-8")
    called(tmp_path, "report")
    assert "| 4,000 |" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_each_run_has_its_own_process_and_limit(tmp_path):
    written(tmp_path)
    changed_suite(tmp_path, 'method = "sasrec"', 'method = "sasrec"\nlimit = 0.2')
    names = ["main/planted/sasrec/0", "main/planted/popularity"]
    command = [sys.executable, "-m", "benchmarks", "run", "--root", str(tmp_path), *names]
    environment = os.environ | {"BEAMWOOD_DATA": str(tmp_path / "data")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "main/planted/sasrec/0: stopped after 0.2 seconds; run it again to resume" in done.stdout
    assert "1 made, 1 failed: main/planted/sasrec/0" in done.stdout
    (line,) = lines_of(tmp_path)
    assert (line["name"], line["machine"]["threads"]) == ("main/planted/popularity/0", 1)


def test_a_second_run_of_a_checkout_is_refused(made, capsys):
    from benchmarks.bench import Bench, Place

    with Bench(Place(made)).alone():
        assert called(made, "run", "main") == 2
    assert "another run of this checkout is in progress" in capsys.readouterr().err


def test_a_repeated_report_changes_nothing(checkout, made, capsys):
    assert called(checkout, "report") == 0
    assert "0 pages changed" in capsys.readouterr().out
    assert (checkout / "README.md").read_bytes() == (made / "README.md").read_bytes()
    assert wrong(checkout, capsys) == []


def test_tables_match_lines(made):
    main = (made / "README.md").read_text()
    figures = {line["name"]: line["figures"]["removed/f@20"] for line in lines_of(made)}
    mean = np.mean([figures[f"main/planted/sasrec/{seed}"] for seed in (0, 1)])
    row = next(line for line in main.splitlines() if line.startswith("| `sasrec` "))
    assert f"{mean:.4f}"[1:] in row
    assert row.split(" | ")[1] == "2"
    page = (made / "docs" / "page.md").read_text()
    assert page.count("| `sasrec` |") == 2
    assert "| `sasrec` | test users | seeds |" in page
    assert "No run of the suite has been made for this table." in page
    rest = page.split("<!-- end rest -->")[0]
    assert "(p " in rest
    assert "| Theirs (published) |  | .2500 |  |  |" in rest


def test_a_changed_byte_is_found(checkout, capsys):
    page = checkout / "README.md"
    page.write_text(page.read_text().replace("`popularity` | 1 |", "`popularity` | 2 |"))
    assert wrong(checkout, capsys) == ["README.md: a table does not match its lines; run `python -m benchmarks report`"]


@pytest.mark.parametrize("typed", ["F@20 is .156 here", "a gain of 0.5 %", "p 2e-6", "in `.156` of all", "1.5 times"])
def test_a_typed_decimal_is_found(checkout, capsys, typed):
    page = checkout / "docs" / "page.md"
    page.write_text(page.read_text() + f"\nIt is so: {typed}.\n")
    (said,) = wrong(checkout, capsys)
    assert said.startswith(f"docs/page.md:{page.read_text().count(chr(10))}: typed by hand: ")


@pytest.mark.parametrize(
    "written",
    [
        "Python 3.11 and section 6.1",
        "`--set loss.tau=0.1`",
        "```\nbeamwood fit --tail 0.2\n```",
        "version 0.1.0",
        "[page](docs/v1.5/page.md)",
        "theorems 4.4 to 4.9",
        "<!-- settings dtr -->\n| `loss.tau` | 0.1 |\n<!-- end dtr -->",
    ],
)
def test_numbers_that_are_not_measured_may_be_typed(checkout, capsys, written):
    (checkout / "docs" / "other.md").write_text(written + "\n")
    assert wrong(checkout, capsys) == []


def test_the_log_of_experiments_is_exempt(checkout, capsys):
    (checkout / "docs" / "lab").mkdir()
    (checkout / "docs" / "lab" / "LOG.md").write_text("F@20 .156\n")
    assert wrong(checkout, capsys) == []


def changed_suite(checkout, old, new):
    suite = checkout / "benchmarks" / "suite.toml"
    assert old in suite.read_text()
    suite.write_text(suite.read_text().replace(old, new))


def test_a_missing_recipe_is_found(checkout, capsys, monkeypatch):
    monkeypatch.delitem(sys.modules["benchmarks.recipes"].RECIPES, "sampled")
    assert "rest/planted/sampled/0: its recipe 'sampled' does not exist" in "\n".join(wrong(checkout, capsys))


def test_a_missing_row_is_found(checkout, capsys):
    changed_suite(checkout, "[topics.main.rows.popularity]", "[topics.main.rows.other]")
    changed_suite(checkout, "main/popularity", "main/other")
    assert "main/planted/popularity/0: the suite has no such run" in "\n".join(wrong(checkout, capsys))


def test_missing_values_are_found(checkout, capsys):
    (checkout / "benchmarks" / "runs" / "main" / "planted-popularity-0.npz").unlink()
    assert called(checkout, "report", "--check") == 2
    assert "restore it from git" in capsys.readouterr().err


def test_a_row_with_another_plan_is_marked_with_its_commit(checkout, capsys):
    changed_suite(checkout, '"loop.max_steps" = 20', '"loop.max_steps" = 25')
    assert called(checkout, "report") == 0
    assert "| `sasrec` (as of 0123456) | 2 |" in (checkout / "README.md").read_text()
    assert wrong(checkout, capsys) == []
    assert called(checkout, "list", "main/planted/sasrec") == 0
    assert "2 of 2 made, 2 stale" in capsys.readouterr().out


def test_a_row_older_than_the_run_it_starts_from_is_marked_with_its_commit(checkout, capsys):
    path = checkout / "benchmarks" / "runs" / "main.jsonl"
    lines = [json.loads(text) | {"date": "2026-01-01"} for text in path.read_text().splitlines()]
    lines.append(next(line for line in lines if line["name"] == "main/planted/sasrec/0") | {"date": "2026-01-02"})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert called(checkout, "report") == 0
    page = (checkout / "README.md").read_text()
    assert "| `sasrec+cooccurrence` (as of 0123456) | 2 |" in page
    assert page.count("(as of") == 1
    assert called(checkout, "list", "main/planted/sasrec+cooccurrence") == 0
    assert "2 of 2 made, 1 stale" in capsys.readouterr().out


def test_a_repeated_run_agrees(checkout, capsys):
    assert called(checkout, "verify", "main/planted/sasrec/0") == 0
    said = capsys.readouterr().out
    assert "equal for every user" in said
    assert "main/planted/sasrec/0 agrees with its line" in said
    assert len(lines_of(checkout)) == 6


@pytest.mark.parametrize(("row", "trains"), [("popularity", False), ("sasrec", True)])
def test_a_forged_line_does_not_agree(checkout, capsys, row, trains):
    """The figures of a training may also differ because of the processor."""
    path = checkout / "benchmarks" / "runs" / "main" / f"planted-{row}-0.npz"
    with np.load(path) as stored:
        values = {name: 1 - stored[name] for name in stored.files}
    np.savez_compressed(path, **values)
    assert called(checkout, "verify", f"main/planted/{row}/0") == 1
    said = capsys.readouterr().out
    assert "does not agree with its line" in said
    assert ("a training may end as far away as another seed's" in said) is trains


def test_a_line_without_values_by_user_is_not_repeated(checkout, capsys):
    """Nothing could be compared, and "agrees" would be said of nothing."""
    path = checkout / "benchmarks" / "runs" / "main.jsonl"
    lines = [json.loads(text) | {"values": None} for text in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert called(checkout, "verify", "main/planted/popularity/0") == 2
    assert "main/planted/popularity/0 has no values by user to compare" in capsys.readouterr().err


def test_a_missing_folder_is_fitted_first(checkout, capsys):
    shutil.rmtree(checkout / "runs")
    assert called(checkout, "verify", "main/planted/sasrec+cooccurrence/0") == 0
    said = capsys.readouterr().out
    assert "main/planted/sasrec/0 is fitted first" in said
    assert "agrees with its line" in said


def test_what_a_run_starts_from_is_fitted_in_a_process_before_it(checkout, monkeypatch):
    """Its peak memory is not the run's."""
    bench_of, works, name = sys.modules["benchmarks.bench"], [], "main/planted/sasrec+cooccurrence/0"
    monkeypatch.setattr(bench_of.Bench, "_finishes", lambda bench, work, run, given: works.append(work) or True)
    bench = bench_of.Bench(bench_of.Place(checkout))
    assert bench.in_process(bench.suite.find(name))
    assert bench.in_process(bench.suite.find("main/planted/sasrec/0"))
    assert bench.in_process(bench.suite.find(name), {"start.retriever": checkout})
    assert works == ["starts", "one", "one", "one"]
    shutil.rmtree(checkout / "runs")
    assert called(checkout, "starts", name) == 0
    assert (checkout / "runs" / "benchmarks" / "main/planted/sasrec/0" / "plan.json").is_file()
    assert len(lines_of(checkout)) == 6


def test_an_interrupted_fit_resumes(checkout, monkeypatch):
    """Unless its settings have changed."""
    bench_of, halves = sys.modules["benchmarks.bench"], []
    shutil.rmtree(checkout / "runs")

    def stopped(job):
        halves.append((job.work / "training" / "half").exists())
        (job.work / "training").mkdir(exist_ok=True)
        (job.work / "training" / "half").touch()
        raise KeyboardInterrupt

    monkeypatch.setenv("BEAMWOOD_DATA", str(checkout / "data"))
    monkeypatch.setitem(sys.modules["benchmarks.recipes"].RECIPES, "whole", stopped)
    for each in range(3):
        if each == 2:
            changed_suite(checkout, '"loop.max_steps" = 20', '"loop.max_steps" = 25')
        bench = bench_of.Bench(bench_of.Place(checkout))
        run = bench.suite.find("main/planted/sasrec/0")
        with pytest.raises(KeyboardInterrupt):
            bench._fitted(run, bench._split(run))
    assert halves == [False, True, False]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "name runs or patterns such as main/ml1m, or give --all"),
        (["run", "main/planed"], "no run matches 'main/planed'; did you mean"),
        (["verify", "main/planted/sasrec/9"], "run 'main/planted/sasrec/9' is not in the suite"),
    ],
)
def test_wrong_arguments_name_the_fix(made, capsys, arguments, said):
    assert called(made, *arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('folder = "planted"', 'folders = "planted"', "folder"),
        ('logs = ["planted"]', 'logs = ["plant"]', "log 'plant' does not exist; did you mean 'planted'?"),
        ("published.planted", "published.plant", "log 'plant' does not exist; did you mean 'planted'?"),
        ('against = "tail"', 'against = "tial"', "against='tial' is not a row"),
        ('"start.retriever" = "sasrec"', '"start.retriever" = "sasrek"', "names 'sasrek', which is not run on planted"),
        ('same = "main/popularity"', 'same = "main/pop"', "is the same as 'main/pop', which is not a row"),
        ("[topics.main]", "[topics.main", "is not valid TOML"),
    ],
)
def test_a_wrong_suite_names_the_fix(checkout, capsys, old, new, said):
    changed_suite(checkout, old, new)
    assert called(checkout, "list") == 2
    assert said in capsys.readouterr().err


def test_an_absent_log_names_the_fix(checkout, capsys):
    shutil.rmtree(checkout / "data")
    assert called(checkout, "verify", "main/planted/popularity/0") == 2
    assert "set BEAMWOOD_DATA to the folder that holds the logs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- table mian -->\n<!-- end mian -->\n", "table 'mian' is unknown; did you mean 'main'?"),
        ("<!-- table main -->\n", "table main has no end"),
        ("<!-- end main -->\n", "has no pair"),
    ],
)
def test_wrong_markers_name_the_fix(checkout, capsys, text, said):
    (checkout / "docs" / "page.md").write_text(text)
    assert called(checkout, "report") == 2
    assert said in capsys.readouterr().err
