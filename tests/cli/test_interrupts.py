"""Ctrl-C ends a command within two seconds, also in native calls, with one line about what is kept."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import polars as pl
import pytest

from beamwood import load
from beamwood.cli.interrupts import PATIENCE, Watch, begin, claimed
from beamwood.data.markets import synthetic
from beamwood.recipes.portfolio import find as finding
from beamwood.recipes.portfolio.members import Member
from beamwood.retrieval.retriever import Retriever
from bounded import SECONDS
from cli_cases import ENVIRONMENT, TINY, beamwood

# The command stops at the given function, reports it, and blocks signals like a long native call: a C call of minutes
# that releases other threads and does not check signals.
PROGRAM = """
import hashlib, importlib, os, signal, sys, threading
# Who runs tests in the background of a shell hands on that Ctrl-C is nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)
module, name = sys.argv[1].rsplit(":", 1)
owner = importlib.import_module(module)
*path, last = name.split(".")
for part in path:
    owner = getattr(owner, part)
real = getattr(owner, last)
count, telling = [int(sys.argv[2])], int(sys.argv[3])
def held(*given, **options):
    found = real(*given, **options)
    count[0] -= 1
    if count[0] == 0:
        # Told from within the call, so that the signal comes there.
        threading.Timer(0.5, os.write, (telling, b"here")).start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
    return found
setattr(owner, last, held)
sys.argv = ["beamwood", *sys.argv[4:]]
from beamwood.__main__ import run
run()
"""


def stopped(arguments, function, calls=1):
    """The exit code, the output, and the seconds from SIGINT to the end, of a command blocked in this function."""
    told, telling = os.pipe()
    program = [sys.executable, "-c", PROGRAM, function, str(calls), str(telling), *map(str, arguments)]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, pass_fds=[telling]) as process:
        os.close(telling)
        try:
            assert os.read(told, 4) == b"here", process.communicate(timeout=SECONDS)[1]
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=SECONDS)
            took = time.monotonic() - began
        finally:
            process.kill()
            os.close(told)
    return process.returncode, said.strip().splitlines()[-1], took


ANEW = "beamwood: interrupted; nothing was saved; run it again"


@pytest.mark.parametrize(
    ("command", "function", "line"),
    [
        ("describe LOG", "polars:LazyFrame.collect", ANEW),
        ("fit LOG --method ease --out OUT", "beamwood.methods.ease:weights", ANEW),
        ("fit LOG --method popularity --out OUT", "beamwood.artefact.write:sync", ANEW),
        (
            "fit LOG --out OUT --time-limit 10m",
            "beamwood.recipes.portfolio.validation:Validation.values",
            "beamwood: interrupted; what was found so far is in OUT.search; the same command with --resume goes on",
        ),
        (
            "recommend FITTED --all-users --out OUT.csv",
            "beamwood.retrieval.retriever:Retriever.hits",
            "beamwood: interrupted; what is finished is in OUT.csv.parts; the same command with --resume goes on",
        ),
    ],
)
def test_native_calls_do_not_delay_it(market, fitted, tmp_path, command, function, line):
    names = {"LOG": market / "log.parquet", "FITTED": fitted}
    words = [str(names.get(word, word)).replace("OUT", str(tmp_path / "out")) for word in command.split()]
    code, said, took = stopped(words, function)
    assert (code, said) == (130, line.replace("OUT", str(tmp_path / "out")))
    assert took < 2 + SLACK


# The delay until a thread is scheduled on a busy machine.
SLACK = 3.0


PANIC = "Failed to access NumPy array API capsule: PyErr { type: <class 'KeyboardInterrupt'>, value: .. }"


@pytest.mark.parametrize(
    ("command", "raised", "code", "line"),
    [
        ("recommend FITTED --user 3", pl.exceptions.PanicException(PANIC), 130, ANEW),
        (
            "recommend FITTED --all-users --out OUT.csv",
            pl.exceptions.PanicException(PANIC),
            130,
            "beamwood: interrupted; what is finished is in OUT.csv.parts; the same command with --resume goes on",
        ),
        ("recommend FITTED --user 3", pl.exceptions.PanicException("a bug"), 1, "PanicException: a bug"),
        ("recommend FITTED --user KeyboardInterrupt", None, 2, "unknown"),
    ],
)
def test_a_library_may_turn_it_into_a_panic(fitted, tmp_path, monkeypatch, capsys, command, raised, code, line):
    hits = Retriever.hits

    def ending(*given, **options):
        if raised is not None:
            raise raised
        return hits(*given, **options)

    monkeypatch.setattr(Retriever, "hits", ending)
    words = [{"FITTED": str(fitted)}.get(word, word).replace("OUT", str(tmp_path / "out")) for word in command.split()]
    assert beamwood(*words) == code
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.replace("OUT", str(tmp_path / "out")) in said
    assert (said == line.replace("OUT", str(tmp_path / "out"))) == (code == 130)


@pytest.mark.parametrize(
    ("command", "reported"),
    [
        ("fit LOG --method popularity --out OUT", "beamwood.cli.commands.fit.finish"),
        ("fit LOG --out OUT --time-limit 10m", "beamwood.cli.search.finish"),
        ("refit FITTED --out OUT", "beamwood.cli.commands.refit.finish"),
        ("recommend FITTED --all-users --out OUT.csv", "beamwood.retrieval.batch.job.count_by_rank"),
        ("demo --out OUT --seconds 5", "beamwood.cli.commands.demo.finish"),
    ],
)
def test_what_is_saved_is_not_said_to_be_lost(market, fitted, tmp_path, monkeypatch, capsys, command, reported):
    def ending(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(reported, ending)
    monkeypatch.setattr(finding, "find", partial(finding.find, members=[Member("popularity", "popularity")]))
    monkeypatch.setattr("beamwood.cli.commands.demo.METHODS", ("popularity", "cooccurrence"))
    monkeypatch.setattr(synthetic, "make_market", partial(synthetic.make_market, synthetic.MarketConfig(num_users=120)))
    names = {"LOG": market / "log.parquet", "FITTED": fitted}
    words = [str(names.get(word, word)).replace("OUT", str(tmp_path / "out")) for word in command.split()]
    assert beamwood(*words) == 130
    out = words[words.index("--out") + 1]
    assert capsys.readouterr().err.splitlines()[-1] == f"beamwood: interrupted; {out} is saved"
    assert os.path.exists(out)


def test_groups_of_a_replaced_folder_are_not_resumed(fitted, tmp_path, monkeypatch, capsys):
    folder, out = tmp_path / "model", tmp_path / "recs.csv"
    shutil.copytree(fitted, folder)
    whole, again, hits = load(folder), load(folder), Retriever.hits
    other = replace(again, metadata=again.metadata | {"note": "another model"})
    calls = []

    def replaced(*given, **options):
        monkeypatch.setattr("beamwood.cli.answering.load", load)
        other.save(folder, overwrite=True)
        return whole

    def ending(*given, **options):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return hits(*given, **options)

    monkeypatch.setattr("beamwood.retrieval.batch.job.GROUP_ROWS", 10)
    monkeypatch.setattr("beamwood.cli.answering.load", replaced)
    monkeypatch.setattr(Retriever, "hits", ending)
    command = ["recommend", folder, "--all-users", "--out", out]
    assert beamwood(*command) == 130
    capsys.readouterr()
    assert beamwood(*command, "--resume") == 2
    assert "holds groups of another job or model" in capsys.readouterr().err


@pytest.mark.slow
def test_a_training_reports_its_checkpoint(market, tmp_path):
    out = tmp_path / "out"
    settings = [word for setting in TINY for word in ("--set", setting)]
    command = ["fit", market / "log.parquet", "--method", "dtr", "--out", out, *settings]
    code, said, took = stopped(command, "beamwood.training.trainable:Stepper.drawn")
    assert code == 130
    kept = f"no checkpoint is yet in {out}.run"
    assert said == f"beamwood: interrupted; {kept}; run the same command with --resume to go on"
    assert took < 2 + SLACK


@pytest.mark.parametrize(
    ("words", "function"),
    [
        (["--method", "sasrec", "--set", "loop.max_steps=2"], "beamwood.fitting.vectors.sequence.SequenceTask.prepare"),
        (["--method", "popularity"], "beamwood.artefact.write.sync"),
    ],
)
def test_the_checkpoint_of_an_earlier_run_is_not_reported(market, tmp_path, monkeypatch, capsys, words, function):
    """The earlier run is not this one's, and a counting method has none."""
    out = tmp_path / "out"
    command = ["fit", market / "log.parquet", "--out", out, "--overwrite"]
    assert beamwood(*command, "--method", "sasrec", "--set", "loop.max_steps=1") == 0

    def ending(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(function, ending)
    capsys.readouterr()
    assert beamwood(*command, *words) == 130
    assert capsys.readouterr().err.strip().splitlines()[-1] == ANEW


def test_who_claims_the_line_gets_time_to_print(monkeypatch):
    begin()
    watch, waits = Watch.__new__(Watch), []

    def wait(self, seconds):
        waits.append(seconds)
        claimed()
        return False

    def ending(code):
        raise SystemExit(code)

    monkeypatch.setattr(Watch, "_await", wait)
    monkeypatch.setattr(os, "_exit", ending)
    with pytest.raises(SystemExit, match="130"):
        watch._watch()
    assert waits == [None, PATIENCE, PATIENCE]


def test_a_search_interrupted_twice_says_that_it_is_unfinished(market, tmp_path, monkeypatch, capsys):
    def ending(*_, **__):
        raise KeyboardInterrupt

    def cut_short(*given, **options):
        return replace(find(*given, **options), interrupted=True)

    find = partial(finding.find, members=[Member("popularity", "popularity")])
    monkeypatch.setattr(finding, "find", cut_short)
    monkeypatch.setattr("beamwood.cli.search.finish", ending)
    out = tmp_path / "out"
    assert beamwood("fit", market / "log.parquet", "--out", out, "--time-limit", "10m") == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"beamwood: interrupted; the best so far is in {out}; the same command with --resume goes on"


@pytest.mark.parametrize("measuring", ["recipes.comparison.Comparison.add", "evaluation.protocol.evaluate_split"])
def test_a_demo_interrupted_while_it_measures_says_how_to_repeat_it(tmp_path, monkeypatch, capsys, measuring):
    def ending(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"beamwood.{measuring}", ending)
    monkeypatch.setattr("beamwood.cli.commands.demo.METHODS", ("popularity", "cooccurrence"))
    monkeypatch.setattr(synthetic, "make_market", partial(synthetic.make_market, synthetic.MarketConfig(num_users=120)))
    assert beamwood("demo", "--out", tmp_path / "out", "--seconds", 5) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "beamwood: interrupted; run the demo again with --overwrite"


# A run that has saved its state and printed the line, whose interpreter takes long to end.
ENDING = """
import os, signal, time
from beamwood.cli import interrupts
from beamwood.training.interrupt import SAVING
signal.signal(signal.SIGINT, lambda *_: None)
interrupts.Watch(as_json=False)
SAVING.set()
os.kill(os.getpid(), signal.SIGINT)
assert interrupts.claimed()
time.sleep(20)
"""


def test_a_slow_end_after_saving_is_not_reported_as_saving():
    program = [sys.executable, "-c", ENDING]
    ended = subprocess.run(program, capture_output=True, text=True, env=ENVIRONMENT, timeout=SECONDS, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
