"""Progress of a command: steps with the remaining time, in a terminal and elsewhere."""

import io
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time

import pytest

from beamwood import steps
from beamwood.cli import shown
from beamwood.cli.shown import StepDisplay, duration, show_steps, step_in_words
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.recipes.compare import compare
from beamwood.steps import Step, heard_by, step, tell
from cli_cases import ENVIRONMENT, beamwood


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Ticks:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (3600, "1 h 0 min"), (7530, "2 h 5 min")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_the_remaining_time_is_extrapolated():
    clock = Ticks()
    own = Step("evaluating users", 400, clock)
    clock.now = 3.0
    assert step_in_words(own) == "evaluating users, 0 of 400: 3 s"
    own.advance(100)
    assert step_in_words(own) == "evaluating users, 100 of 400: 3 s, about 9 s left"
    own.advance(300)
    assert step_in_words(own) == "evaluating users, 400 of 400: 3 s, about 0 s left"
    assert Step("reading", None, clock).left is None


@pytest.fixture
def quick(monkeypatch):
    """Show steps at once, and update them every hundredth of a second."""
    for name, seconds in {"_LONG": 0.05, "_LOOK": 0.01, "_FIRST_LINE": 0.05, "_BETWEEN": 0.05}.items():
        monkeypatch.setattr(shown, name, seconds)


def until(stream, pattern):
    """Wait until the stream contains a pattern, at most 20 seconds."""
    for _ in range(2000):
        if re.search(pattern, stream.getvalue()):
            return
        time.sleep(0.01)
    raise AssertionError(stream.getvalue())


def test_a_terminal_has_a_live_line_that_is_removed_at_the_end(quick, capsys):
    stream = Terminal()
    with heard_by(StepDisplay(stream)):
        with step("outer", 4) as outer:
            outer.advance()
            with step("inner"):
                until(stream, r"\r\x1b\[2Kouter, 1 of 4: 0 s, about \d s left")
            tell("a line of its own")
        assert stream.getvalue().endswith("\r\x1b[2K")
    assert "inner" not in stream.getvalue()
    assert capsys.readouterr().err == "a line of its own\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_other_streams_get_plain_lines(quick, terminal, monkeypatch):
    monkeypatch.setenv("TERM", "dumb" if terminal else "xterm-256color")
    stream = Terminal() if terminal else io.StringIO()
    with heard_by(StepDisplay(stream)), step("reading log.csv"):
        until(stream, r"reading log.csv: 0 s\nreading log.csv: 0 s\n")
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_a_short_step_is_not_shown():
    stream = Terminal()
    listener = StepDisplay(stream)
    with heard_by(listener), step("short"):
        time.sleep(0.6)
    listener.close()
    assert stream.getvalue() == ""


def test_verbose_prints_times_of_outer_steps_and_quiet_prints_nothing(quick, capsys):
    verbose, quiet = io.StringIO(), io.StringIO()
    for stream, options in ((verbose, {"verbose": True}), (quiet, {"quiet": True})):
        listener = StepDisplay(stream, **options)
        with heard_by(listener), step("outer"), step("inner"):
            tell("a line")
            if not listener.quiet:
                until(stream, "outer")
            assert steps.is_quiet() == listener.quiet
        listener.close()
    assert re.search(r"outer: \d+\.\d s\n$", verbose.getvalue())
    assert "inner" not in verbose.getvalue()
    assert quiet.getvalue() == ""
    assert capsys.readouterr().err == "a line\n"


def test_a_closed_stream_does_not_end_the_step(quick):
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    listener = StepDisplay(stream)
    with heard_by(listener), step("reading"):
        time.sleep(0.2)
    listener.close()
    assert not listener._watch.is_alive()
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_command_leaves_no_thread_and_no_listener():
    before = threading.active_count()
    with show_steps(quiet=False, verbose=False), step("work"):
        pass
    assert threading.active_count() == before
    assert not steps.is_quiet()


# The command line


def fit(small, *options):
    return beamwood("fit", small.log, "--method", "cooccurrence", "--out", small.out / "model", "--overwrite", *options)


@pytest.fixture
def small(market, tmp_path):
    class Small:
        log, out = market / "log.parquet", tmp_path

    return Small


@pytest.fixture
def split(market):
    return disjoint_users(Dataset.from_log(read_log(market / "log.parquet")))


def test_quiet_keeps_results_and_errors(small, capsys):
    assert fit(small) == 0
    usual = capsys.readouterr()
    assert fit(small, "-q") == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert quiet.out.splitlines()[1:] == usual.out.splitlines()[1:]
    assert "split: " in usual.err
    assert fit(small, "--quiet", "--set", "model.decay=9") == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_verbose_prints_times_of_steps(small, capfd):
    assert fit(small, "--verbose") == 0
    said = capfd.readouterr().err
    for words in ("reading ", "sorting rows into histories", "trying settings", "saving "):
        assert re.search(rf"^{words}.*: \d+\.\d s$", said, re.MULTILINE), words
    assert fit(small, "-q", "-v") == 2
    assert "leave one out" in capfd.readouterr().err


def test_quiet_applies_to_training_too(small, capfd):
    from cli_cases import TINY

    settings = [word for setting in TINY for word in ("--set", setting)]
    arguments = ["fit", small.log, "--method", "dtr", "--out", small.out / "tree", *settings]
    assert beamwood(*arguments, "-q") == 0
    assert capfd.readouterr().err == ""


def test_a_comparison_fills_its_table_row_by_row(split):
    said = []
    compare(split, ["popularity", "cooccurrence", "popularity+cooccurrence"], ks=(5,), say=said.append)
    head, *rows = said
    assert head.split() == ["method", "f@5", "kept", "removed", "ms", "a", "user", "fit,", "s"]
    assert [row.split()[0] for row in rows] == ["popularity", "cooccurrence", "popularity+cooccurrence"]
    assert all(re.fullmatch(r"\S+ +0\.\d{4} +0\.\d{4} +\d+\.\d\d +\d+\.\d", row) for row in rows), rows
    assert len({len(line) for line in said}) == 1


COLOURED = re.compile(r"\x1b\[[0-9;]*(3[0-7]|4[0-7]|9[0-7]|38|48)[;m]")


def of_terminal(arguments, **environment):
    """The output of a command in a terminal, with a time limit."""
    ours, theirs = pty.openpty()
    environment = ENVIRONMENT | {"TERM": "xterm-256color"} | environment
    command = [sys.executable, "-m", "beamwood", *map(str, arguments)]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        read, end = b"", time.monotonic() + 120
        while time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                try:
                    part = os.read(ours, 65536)
                except OSError:  # The other end is closed.
                    break
                if not part:
                    break
                read += part
        process.kill() if time.monotonic() >= end else process.wait(timeout=60)
    os.close(ours)
    return process.returncode, read.decode()


def test_no_color_and_a_pipe_have_no_colours(small):
    assert fit(small, "-q") == 0
    arguments = ["evaluate", small.out / "model"]
    code, said = of_terminal(arguments, NO_COLOR="1")
    assert code == 0, said
    assert "test users" in said
    assert not COLOURED.search(said)
    command = [sys.executable, "-m", "beamwood", *map(str, arguments)]
    piped = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, check=True)
    assert "\x1b" not in piped.stdout + piped.stderr
