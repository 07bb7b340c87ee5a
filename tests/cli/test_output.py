"""The command line as a process: closed, full and non-UTF-8 streams, and SIGTERM."""

import errno
import io
import json
import os
import signal
import subprocess
import sys

import polars as pl
import pytest
import typer

from beamwood import __version__
from beamwood.cli.commands.fit import print_fit
from beamwood.cli.interrupts import begin, claimed
from beamwood.cli.main import main
from beamwood.cli.output import finish
from beamwood.methods import Method
from beamwood.training.interrupt import Interrupted
from bounded import line_of

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A popularity retriever with items "ä0" to "ä11"."""
    folder = tmp_path_factory.mktemp("output")
    rows = range(240)
    names = [f"ä{(row * row + row // 12) % 12}" for row in rows]
    pl.DataFrame({"user_id": [row % 20 for row in rows], "item_id": names, "timestamp": rows}).write_csv(
        folder / "log.csv"
    )
    assert main(["fit", str(folder / "log.csv"), "--method", "popularity", "--out", str(folder / "fitted")]) == 0
    return folder


def shell(folder, command, **environment):
    """The output of a shell command, in which `bw` is beamwood."""
    script = f'bw() {{ "{sys.executable}" -m beamwood "$@"; }}\n{command}'
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, env=ENVIRONMENT | environment, check=False
    )


def test_a_fit_is_reported_with_four_digits(capsys):
    training = {"seen": "first", "valid/f@20": 0.08751234567891234, "decay": 0.98, "left_out": ["5 users"], "steps": 10}
    print_fit({"method": "ease", "out": "runs/log", "seconds": 1.5, "training": training})
    assert capsys.readouterr().out.splitlines() == [
        "saved ease in runs/log after 1.5 s",
        *("  seen: first", "  valid/f@20: 0.08751", "  decay: 0.98", "  left_out: 5 users", "  steps: 10"),
    ]


STATUS = "exit ${PIPESTATUS[0]}"


@pytest.mark.parametrize(
    ("command", "code", "error"),
    [
        (f"bw evaluate fitted --k 2 | true; {STATUS}", 0, None),
        (f"bw evaluate fitted --k 2 --json | true; {STATUS}", 0, None),
        ("bw evaluate fitted --k 2 >&-", 0, None),
        ("bw evaluate fitted && bw recommend fitted --user 3", 0, None),  # 12 items
        (f"bw fit none.csv --method popularity --out x --json | true; {STATUS}", 2, "none.csv does not exist"),
        ("bw fit none.csv --method popularity --out x --json >&-", 2, "none.csv does not exist"),
        ("bw fit none.csv --method popularity --out x 2>&-", 2, None),
        (f"bw fit none.csv --method popularity --out x 2>&1 >/dev/null | true; {STATUS}", 2, None),
        ("bw evaluate fitted --k 2 >/dev/full", 2, "No space left on device"),
    ],
)
def test_closed_streams(folder, command, code, error):
    done = shell(folder, command)
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("beamwood:")]
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (len(lines) == 1 and error in lines[0]) if error else not lines


def test_a_fit_continues_if_its_output_is_closed(folder):
    done = shell(folder, f"bw fit log.csv --method popularity --out heard 2>&1 >/dev/null | true; {STATUS}")
    assert done.returncode == 0
    assert (folder / "heard" / "manifest.json").exists()


def test_characters_outside_the_streams_encoding(folder):
    done = shell(folder, "bw evaluate fitted --k 2 && bw recommend fitted --user 3 -k 2", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\xb1" in done.stdout
    assert "\\xe4" in done.stdout


def test_sigterm_before_training(folder):
    command = [sys.executable, "-c", PAUSED, "fit", "log.csv", "--method", "popularity", "--out", "ended", "--json"]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert line_of(process, process.stderr) == "reading\n"
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    said = "interrupted; nothing was saved; run it again"
    assert errors == f"beamwood: {said}\n"
    assert json.loads(out) == {"error": said, "exit": 130}
    assert not (folder / "ended").exists()


PAUSED = """
import sys, time
from beamwood.__main__ import run
from beamwood.cli.registry import fit

def load_data(source):
    print("reading", file=sys.stderr, flush=True)
    time.sleep(60)

sys.modules["beamwood.cli.commands.fit"].load_data = load_data
run()
"""


@pytest.mark.parametrize("command", ["compare", "demo"])
def test_commands_that_cannot_resume_name_no_checkpoint(folder, tmp_path, monkeypatch, capsys, command):
    def stopped(*_, **__):
        raise Interrupted("interrupted; the checkpoint of step 3 is in /tmp/x; run the same command with --resume")

    monkeypatch.setattr(Method, "fitted", stopped)
    asked = [str(folder / "log.csv"), "--methods", "popularity,sasrec"] if command == "compare" else []
    asked += ["--out", str(tmp_path / "demo")] if command == "demo" else []
    assert main([command, *asked]) == 130
    said = capsys.readouterr().err
    assert "--resume" not in said
    assert said.endswith("interrupted; nothing is kept of a comparison\n" if command == "compare" else "--overwrite\n")


def test_an_interrupted_command_also_says_that_its_page_is_unwritten(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    begin()
    with pytest.raises(typer.Exit) as ended:
        finish({"a": 1}, print, as_json=True, page=(str(tmp_path / "file" / "x.html"), ""), stopped="interrupted; kept")
    assert ended.value.exit_code == 130
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["a"], document["exit"]) == (1, 130)
    assert document["error"].startswith("interrupted; kept; ")
    assert "x.html cannot be written" in document["error"]
    assert said.err == f"beamwood: {document['error']}\n"


class _WithoutReader(io.StringIO):
    """A stdout whose reader has left."""

    def flush(self):
        raise BrokenPipeError

    def fileno(self):
        return os.open(os.devnull, os.O_WRONLY)


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(("stopped", "code"), [("interrupted; kept", 130), (None, 2)])
def test_an_error_is_said_though_nobody_reads_the_result(monkeypatch, capsys, as_json, stopped, code):
    """As in `beamwood fit log.csv | tee out`, where Ctrl-C also ends tee."""
    begin()
    monkeypatch.setattr(sys, "stdout", _WithoutReader())
    with pytest.raises(typer.Exit) as ended:
        finish({"a": 1}, lambda: print("a"), as_json=as_json, error="wrong", stopped=stopped)
    assert ended.value.exit_code == code
    said = "wrong" if stopped is None else f"{stopped}; wrong"
    assert capsys.readouterr().err == f"beamwood: {said}\n"


def test_an_interrupted_command_prints_no_second_document(capsys):
    """The watch may have printed one, and prints none while the command prints its own."""
    begin()
    claims = []
    with pytest.raises(typer.Exit) as ended:
        finish({}, lambda: claims.append(claimed()), as_json=False, stopped="interrupted; kept")
    assert (claims, ended.value.exit_code) == ([False], 130)
    capsys.readouterr()
    with pytest.raises(typer.Exit) as ended:
        finish({"a": 1}, print, as_json=True, stopped="interrupted; kept")
    assert ended.value.exit_code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("command", ["evaluate", "inspect"])
def test_unwritable_pages(folder, tmp_path, capsys, command):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path, tmp_path / "file" / "page.html"):
        assert main([command, str(folder / "fitted"), "--html", str(place)]) == 2
        error = capsys.readouterr().err
        assert "--html" in error
        assert "Traceback" not in error
    assert (tmp_path / "file").read_text() == "mine"


def test_the_demo_replaces_only_its_own_report(tmp_path, capsys):
    (tmp_path / "demo.html").write_text("mine")
    for options in ([], ["--overwrite"]):
        assert main(["demo", "--out", f"{tmp_path}/demo/", *options]) == 2
        assert "not a report of the demo's" in capsys.readouterr().err
    assert (tmp_path / "demo.html").read_text() == "mine"
    (tmp_path / "demo.html").write_text("<title>beamwood demo</title>")
    assert main(["demo", "--out", f"{tmp_path}/demo"]) == 2
    assert "pass --overwrite" in capsys.readouterr().err


def test_a_deleted_current_folder_is_one_line(folder, tmp_path, monkeypatch, capsys):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["fit", str(folder / "log.csv"), "--method", "popularity"]) == 2
    assert capsys.readouterr().err.strip().endswith("the current folder was deleted; change to one that exists")


def test_too_much_memory_is_one_line(folder, tmp_path, capsys):
    # The recurrent weights alone have 3e18 bytes.
    log, units = str(folder / "log.csv"), "model.hidden=500000000"
    assert main(["fit", log, "--method", "gru4rec", "--out", str(tmp_path / "out"), "--set", units]) == 2
    assert "too little memory" in (said := capsys.readouterr().err)
    assert "lower what was set high, such as batch_size or width" in said
    assert "Traceback" not in said


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux holds a process to its address space")
def test_too_little_address_space_is_one_line(folder):
    limited = f"ulimit -v 600000; exec {sys.executable} -m beamwood describe {folder / 'log.csv'} --json"
    ended = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2, ended.stderr
    (line,) = ended.stderr.strip().splitlines()
    assert "needs 1,400 MiB of address space and this shell allows 585; raise ulimit -v" in line
    assert json.loads(ended.stdout)["exit"] == 2


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
    ],
)
def test_a_library_without_memory_is_one_line(folder, capsys, monkeypatch, error):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr("beamwood.data.describe_log", refuse)
    assert main(["describe", str(folder / "log.csv")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("beamwood: there is too little memory (")


def test_the_version_and_no_command(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"beamwood {__version__}\n"
    assert main([]) == 2
    shown = capsys.readouterr()
    assert "doctor" in shown.out
    assert shown.err == ""


def test_a_warning_for_users_is_one_line_without_a_place_in_the_program(folder):
    (folder / "own.py").write_text("import warnings\n\nwarnings.warn('this method\\n  is slow')\n")
    done = shell(folder, "bw settings own.py")
    assert "this method is slow\n" in done.stderr
    assert "own.py:3" not in done.stderr
