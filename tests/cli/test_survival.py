"""Saved files survive interrupts, kills and full disks, and damage is detected."""

import signal
import subprocess
import sys
import time

import polars as pl
import pytest

from cli_cases import ENVIRONMENT, TINY, beamwood


def test_damaged_and_changed_files_are_refused(market, fitted, tmp_path, capsys):
    weights = fitted / "weights.safetensors"
    whole = weights.read_bytes()
    try:
        for damage in (whole[:-7], b"", whole[:-1] + bytes([whole[-1] ^ 1])):
            weights.write_bytes(damage)
            assert beamwood("recommend", fitted, "--user", "3") == 2
            assert "weights.safetensors" in capsys.readouterr().err
    finally:
        weights.write_bytes(whole)
    more = tmp_path / "items.parquet"
    table = pl.read_parquet(market / "items.parquet")
    pl.concat([table, table.head(1).with_columns(item_id=pl.lit(10_000, table["item_id"].dtype))]).write_parquet(more)
    assert beamwood("evaluate", fitted, "--items", more) == 2
    assert "was fitted on 60 items" in capsys.readouterr().err
    changed = tmp_path / "changed.parquet"
    pl.read_parquet(market / "log.parquet").head(-1).write_parquet(changed)
    assert beamwood("evaluate", fitted, "--log", changed) == 2
    said = capsys.readouterr().err
    assert "content has changed" in said
    assert said.endswith("give the old log with --log\n")


def test_an_evaluation_whose_log_has_moved_names_the_option_for_its_place(market, fitted, tmp_path, capsys):
    log, moved = market / "log.parquet", tmp_path / "moved.parquet"
    log.rename(moved)
    try:
        assert beamwood("evaluate", fitted) == 2
        assert "have moved, give their new place with --log\n" in capsys.readouterr().err
        assert beamwood("evaluate", fitted, "--log", moved) == 0
    finally:
        moved.rename(log)


def test_a_page_replaces_only_a_page(market, fitted, tmp_path, capsys):
    log = market / "log.parquet"
    why = {log: "is not a page of beamwood, so it is not replaced", fitted / "manifest.json": "which is a saved folder"}
    for other, said in why.items():
        before = other.read_bytes()
        assert beamwood("evaluate", fitted, "--html", other) == 2
        assert said in capsys.readouterr().err
        assert other.read_bytes() == before
    page = tmp_path / "page.html"
    for _ in range(2):
        assert beamwood("evaluate", fitted, "--html", page) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.slow
def test_an_interrupt_keeps_the_run(market):
    out = market / "long"
    command = [sys.executable, "-m", "beamwood", "fit", str(market / "log.parquet"), "--method", "dtr"]
    command += ["--out", str(out)]
    for setting in [*TINY[:5], "loop.max_steps=1000000", "loop.evaluate_every=20", "loop.patience=1000000"]:
        command += ["--set", setting]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    metrics = market / "long.run" / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size > 500):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "--resume" in errors
    resumed = subprocess.run(
        [*command, "--resume", "--time-limit", "20s"], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    assert (out / "manifest.json").exists()


def test_a_kill_while_saving_keeps_the_old_artefact(market, fitted):
    command = [sys.executable, "-m", "beamwood", "fit", str(market / "log.parquet"), "--method", "popularity"]
    command += ["--out", str(fitted), "--overwrite"]
    program = (
        "import os, runpy, signal, sys\n"
        "real, left = os.fsync, [int(sys.argv[1])]\n"
        "def fsync(descriptor):\n"
        "    left[0] -= 1\n"
        "    os.kill(os.getpid(), signal.SIGKILL) if left[0] < 0 else real(descriptor)\n"
        "os.fsync = fsync\n"
        "sys.argv = ['beamwood', *sys.argv[2:]]\n"
        "runpy.run_module('beamwood', run_name='__main__')\n"
    )
    for point in (0, 2, 5):
        killed = subprocess.run(
            [sys.executable, "-c", program, str(point), *command[3:]], capture_output=True, env=ENVIRONMENT, check=False
        )
        assert killed.returncode == -signal.SIGKILL
        assert beamwood("recommend", fitted, "--user", "3") == 0
        assert beamwood("inspect", fitted) == 0


def test_a_full_disk_keeps_the_old_artefact(market, fitted):
    program = (
        "import resource, runpy, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))\n"
        "sys.argv = ['beamwood', *sys.argv[1:]]\n"
        "runpy.run_module('beamwood', run_name='__main__')\n"
    )
    arguments = ["fit", str(market / "log.parquet"), "--method", "cooccurrence", "--out", str(fitted), "--overwrite"]
    full = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert full.returncode == 2, full.stderr
    assert "Traceback" not in full.stderr
    assert beamwood("recommend", fitted, "--user", "3") == 0
    assert [entry.name for entry in market.iterdir() if entry.name.startswith(".")] == []


@pytest.mark.parametrize("module", ["typer", "beamwood.cli.output"])
def test_an_interrupt_during_imports_is_reported(module):
    program = (
        "import builtins, runpy, sys\n"
        "real = builtins.__import__\n"
        "def load(name, *arguments, **options):\n"
        "    if name == sys.argv[1]:\n"
        "        raise KeyboardInterrupt\n"
        "    return real(name, *arguments, **options)\n"
        "builtins.__import__ = load\n"
        "runpy.run_module('beamwood', run_name='__main__')\n"
    )
    stopped = subprocess.run(
        [sys.executable, "-c", program, module], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )
    assert stopped.returncode == 130
    assert stopped.stderr == "beamwood: interrupted; nothing was saved; run it again\n"
