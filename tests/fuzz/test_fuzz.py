"""A short form of `make fuzz`: some cases of each kind, and all arguments of all public functions."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_cases import ENVIRONMENT
from fuzz import calls, run

SHORT = {"calls": 400, "commands": 6, "folders": 60, "logs": 40}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SHORT)
def test_random_cases(kind, tmp_path):
    case = run.cases_of(kind, tmp_path)
    wrong = {}
    for number in range(SHORT[kind]):
        words, call = case("short", number)
        found = run.attempt(words, call)
        if found:
            wrong[words] = found
    assert wrong == {}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_errors_name_every_invalid_argument_of_every_public_function(part, tmp_path):
    """Every value for every argument; the short form tests every 17th."""
    wrong = {}
    for number, (words, called, given) in enumerate(calls.every_case(calls.calls(tmp_path))):
        if number % part == 0:
            found = run.attempt(words, lambda called=called, given=given: called(**given))
            if found:
                wrong[words] = found
    assert wrong == {}


def fuzzed(**sizes):
    """The exit code and the output of the program."""
    given = {f"FUZZ_{name.upper()}": str(value) for name, value in sizes.items()}
    program = [sys.executable, str(Path(run.__file__))]
    environment = ENVIRONMENT | dict.fromkeys(map("FUZZ_{}".format, ("CALLS", "COMMANDS", "FOLDERS", "LOGS")), "0")
    done = subprocess.run(program, capture_output=True, text=True, env=environment | given, check=False, timeout=300)
    return done.returncode, done.stdout


def test_the_program_reports_its_cases_and_how_to_continue():
    code, said = fuzzed(logs=4, seed=3, **{"from": 10})
    assert code == 0, said
    assert said.startswith("logs: 4 of 4 cases tried with seed 3, ")
    assert said.endswith("0 wrong of 0 kinds; go on with FUZZ_FROM=14\n")


def test_a_crash_a_hang_and_a_fault_are_found(monkeypatch, capsys, tmp_path):
    program = tmp_path / "cases.py"
    program.write_text(
        f"import os, sys, time\nsys.path.insert(0, {str(Path(run.__file__).parents[1])!r})\n"
        "from fuzz import run\n"
        "def case(seed, number):\n"
        "    def call():\n"
        "        if number == 3: os.abort()\n"
        "        if number == 5: time.sleep(60)\n"
        "        if number == 7: raise KeyError('seven')\n"
        "    return f'case {number}', call\n"
        "run.cases_of = lambda kind, folder: case\n"
        "run.work(sys.argv[1], *map(int, sys.argv[2:]))\n"
    )
    monkeypatch.setattr(run, "__file__", str(program))
    monkeypatch.setattr(run, "PATIENCE", 8)
    assert run.fuzz("calls", 10, 0, 0, time.monotonic() + 200) == 3
    said = capsys.readouterr().out
    assert f"calls 3: the process ended with {-signal.SIGABRT}" in said
    assert "calls 5: it does not end" in said
    assert 'calls 7: "KeyError in cases.py:' in said
    assert "calls: 10 of 10 cases tried" in said
