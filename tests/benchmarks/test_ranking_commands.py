"""Each command of `benchmarks.ranking` runs on a small log, and its rows say what they are of."""

import json
import sys
from pathlib import Path

import pytest

from beamwood.data.synthetic import MarketConfig, make_market


@pytest.fixture
def bench(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    # As `one_thread` of the benchmarks would start the process anew with.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    market = make_market(MarketConfig(num_users=120, num_items=130, min_events=5, max_events=12), seed=0)
    market.log.write_parquet(tmp_path / "log.parquet")
    from benchmarks import ranking

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ranking", *map(str, arguments)])
        ranking.main()
        return capsys.readouterr().out

    return run


def test_losses_are_trained_once_and_compared(bench, tmp_path):
    run = ("run", "--log", tmp_path / "log.parquet", "--out", tmp_path / "out", "--epochs", 2, "--seeds", "0,1")
    variants = "popularity;logistic;guided, nfm1"
    assert len(bench(*run, "--variants", variants).splitlines()) == 6
    assert bench(*run, "--variants", variants) == ""
    rows = json.loads(bench("table", "--out", tmp_path / "out", "--json"))["rows"]
    assert [(row["variant"], row["seeds"]) for row in rows] == [(name, 2) for name in variants.split(";")]
    assert "sampled/hit_rate@10 p" in rows[2]


def test_what_the_program_of_the_study_does_otherwise_is_measured(bench, tmp_path):
    lines = bench("selection", "--log", tmp_path / "log.parquet", "--epochs", 2).splitlines()
    rows = [json.loads(line) for line in lines]
    trained = ["all but two", "all but two", "all but one", "all but one"]
    assert [row["trained on"] for row in rows] == trained
    assert [row["variant"] for row in rows] == ["logistic", "guided"] * 2
    for row in rows:
        assert ("chosen on validation" in row) == (row["trained on"] == "all but two")
        assert row["best on test"]["hit_rate@10"] >= row["last"]["hit_rate@10"]
