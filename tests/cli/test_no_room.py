"""Full disks, unwritable paths and two processes in one folder: one line, exit code 2, no damage."""

import json
import os
import re
import resource
import tempfile
from contextlib import contextmanager

import pytest

import beamwood as package
from beamwood.artefact.only_one import only_one
from cli_cases import beamwood
from retrieval_cases import retriever_of, vector_searcher


@contextmanager
def files_of(most):
    """A context in which the kernel refuses larger files, like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refused(capsys, *arguments):
    """The error line of a refused command."""
    assert beamwood(*arguments) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


def test_an_export_on_a_full_disk_leaves_no_file(tmp_path, capsys):
    retriever_of(vector_searcher(600)).save(tmp_path / "model")
    with files_of(2000):
        assert "File too large" in refused(capsys, "export", tmp_path / "model", "--vectors", tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_log_is_read_where_no_temporary_file_can_be_made(market, monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", None)
    with files_of(0):
        assert beamwood("describe", market / "log.parquet") == 0
    assert "split users: " in capsys.readouterr().out


def without_times(said):
    """The output without times."""
    return re.sub(r"[\d.]+ (s|ms)\b|[\d.]+ at the 99th|─+|═+| +", "", said)


@pytest.mark.parametrize("most", [100, 3000])
def test_a_training_on_a_full_disk_can_be_resumed(market, tmp_path, capsys, most):
    small = ["model.width=4", "model.num_blocks=1", "loop.max_steps=4", "loop.evaluate_every=2"]
    command = ["fit", market / "log.parquet", "--method", "sasrec", "--out", tmp_path / "model"]
    command += [word for setting in small for word in ("--set", setting)]
    with files_of(most):
        line = refused(capsys, *command)
    assert "File too large" in line
    assert "run the same command with --resume to go on" in line
    assert not (tmp_path / "model").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model.run"]
    assert beamwood(*command, "--resume") == 0
    assert package.load(tmp_path / "model", verify=True).recommend([[5, 6]], k=2)


def test_answers_and_pages_on_a_full_disk_keep_the_old_file(fitted, tmp_path, capsys):
    page = tmp_path / "page.html"
    commands = {tmp_path / name: ["recommend", fitted, "--all-users", "--out"] for name in ("recs.csv", "recs.parquet")}
    for path, command in {**commands, page: ["evaluate", fitted, "--html"]}.items():
        assert beamwood(*command, path) == 0
        before = path.read_bytes()
        capsys.readouterr()
        with files_of(len(before) // 2):
            assert "File too large" in refused(capsys, *command, path, *(["--overwrite"] if path != page else []))
        assert path.read_bytes() == before
    for path, command in commands.items():
        assert beamwood(*command, path, "--resume") == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "recs.csv", "recs.parquet"]


@pytest.mark.parametrize(
    "command",
    [
        "compare LOG --methods popularity,transitions",
        "evaluate FITTED",
        "describe LOG",
        "fit LOG --method popularity --out OUT --overwrite",
    ],
)
def test_results_are_kept_if_the_page_cannot_be_written(market, fitted, tmp_path, capsys, command):
    names = {"LOG": market / "log.parquet", "FITTED": fitted, "OUT": tmp_path / "model"}
    words = [names.get(word, word) for word in command.split()]
    page = ["--html", tmp_path / "page.html"]
    assert beamwood(*words) == 0
    whole = without_times(capsys.readouterr().out)
    with files_of(100_000):
        assert beamwood(*words, *page, "--quiet") == 2
        said = capsys.readouterr()
        assert "page.html cannot be written" in said.err.strip().splitlines()[-1]
        assert without_times(said.out) == whole
        assert beamwood(*words, *page, "--json") == 2
    said = json.loads(capsys.readouterr().out)
    assert "page.html cannot be written" in said["error"]
    assert said["exit"] == 2
    assert len(said) > 2


@pytest.mark.parametrize(
    "command",
    [
        "fit LOG --method popularity --out /proc/model",
        "fit LOG --method sasrec --out /proc/deep/model",
        "fit LOG --out /proc/model",
        "recommend FITTED --all-users --out /proc/recs.csv",
        "evaluate FITTED --html /proc/page.html",
    ],
)
def test_unwritable_paths_are_refused(market, fitted, capsys, command):
    names = {"LOG": market / "log.parquet", "FITTED": fitted}
    line = refused(capsys, *(names.get(word, word) for word in command.split()))
    assert "/proc/" in line
    assert "--out" in line or "could not be saved" in line or "cannot be" in line


@pytest.mark.parametrize(
    "command",
    [
        "inspect LONG",
        "refit LONG",
        "serve LONG --check",
        "serve FITTED --models-dir LONG --check",
        "fit LOG --method popularity --out LONG",
        "fit LOG --method sasrec --out LONG",
        "fit LOG --method LONG",
        "fit LOG --method dtr --set tree.start=LONG",
        "fit LOG --method dtr --set loss.labels=rectified --set loss.estimator=LONG",
        "fit LOG --out LONG",
        "fit LOG --out LONG --resume",
        "demo --out LONG",
        "describe LOG --html LONG.html",
        "evaluate FITTED --html LONG.html",
        "recommend FITTED --all-users --out LONG.csv",
        "recommend FITTED --all-users --out LONG.csv --resume",
    ],
)
# The first is too long itself; the second with what is put behind it for a temporary file.
@pytest.mark.parametrize("letters", [300, 240])
def test_names_that_are_too_long_are_refused(market, fitted, tmp_path, capsys, command, letters):
    names = {"LOG": market / "log.parquet", "FITTED": fitted}
    words = [names.get(word, word.replace("LONG", str(tmp_path / ("a" * letters)))) for word in command.split()]
    line = refused(capsys, *words)
    assert "aaa" in line
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("folder", "command"),
    [
        ("model.run", "fit LOG --method sasrec --out OUT/model"),
        ("model.search", "fit LOG --out OUT/model --time-limit 10m --resume"),
        ("model.search", "fit LOG --out OUT/model --time-limit 10m"),
        ("recs.csv.parts", "recommend FITTED --all-users --out OUT/recs.csv --resume"),
    ],
)
def test_a_second_process_is_refused_with_the_process_id(market, fitted, tmp_path, capsys, folder, command):
    names = {"LOG": market / "log.parquet", "FITTED": fitted}
    words = [names.get(word, word.replace("OUT", str(tmp_path))) for word in command.split()]
    (tmp_path / folder).mkdir()
    with only_one(tmp_path / folder, "wait"):
        line = refused(capsys, *words)
    assert f"{tmp_path / folder} is in use by process {os.getpid()}; wait" in line
    assert list((tmp_path / folder).iterdir()) == []
