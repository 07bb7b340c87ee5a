"""The study of the search against named methods: its statistics on synthetic values, and its resumption."""

import json
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from beamwood.training.interrupt import Interrupted

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def benchmarks_are_found(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))


def line(log, users, **values):
    """A line whose values vary by user, in the same way for all methods."""
    from benchmarks.portfolio_bars import compared

    scatter = np.random.default_rng(0).normal(0, 0.02, users)
    scatter -= scatter.mean()
    own = np.random.default_rng(1).normal(0, 0.002, (len(values), users))
    own -= own.mean(axis=1, keepdims=True)
    named = {name: value + scatter + own[place] for place, (name, value) in enumerate(values.items())}
    return {"log": log, "users": users, "figures": compared(named)}


def test_differences_are_paired_and_corrected():
    figures = line("a", 500, fit=0.30, ease=0.31, dtr=0.29, sasrec=0.30)["figures"]
    assert figures["ease"]["above"] == pytest.approx(-0.01, abs=1e-3)
    assert figures["ease"]["above_95"][1] < 0
    assert figures["ease"]["p"] < 1e-6
    assert figures["sasrec"]["p"] > 0.01


def test_bars_hold_for_good_and_fail_for_bad_results():
    from benchmarks.portfolio_bars import bars_of_logs

    good = [line("a", 2000, fit=0.30, ease=0.29, dtr=0.28), line("b", 100, fit=0.10, ease=0.08, dtr=0.09)]
    bars = bars_of_logs(good)
    assert all(bar.holds for bar in bars.values())
    assert not any(name.startswith("b: below") for name in bars)
    assert bars["mean of 2 logs: above dtr"].value == pytest.approx(0.015, abs=1e-3)
    bad = [line("a", 2000, fit=0.29, ease=0.30, dtr=0.20), good[1]]
    failing = {name for name, bar in bars_of_logs(bad).items() if not bar.holds}
    assert failing == {"a: p of being below ease", "a: below ease, %"}
    worse = [line("a", 2000, fit=0.25, ease=0.30, dtr=0.20), good[1]]
    assert "mean of 2 logs: above ease" in {name for name, bar in bars_of_logs(worse).items() if not bar.holds}


def test_a_log_gets_one_line_and_is_not_measured_again(tmp_path, monkeypatch, capsys):
    from beamwood.data.markets.synthetic import MarketConfig, make_market
    from beamwood.recipes.portfolio.members import Member
    from benchmarks import portfolio

    folder = tmp_path / "data" / "ml100k"
    folder.mkdir(parents=True)
    log = make_market(MarketConfig(num_users=150, num_items=60, max_events=40), seed=0).log
    assert isinstance(log, pl.DataFrame)
    log.write_parquet(folder / "interactions.parquet")
    monkeypatch.setenv("BEAMWOOD_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(portfolio, "SINGLES", ("ease", "cooccurrence"))
    monkeypatch.setattr(portfolio, "BLENDS", ("cooccurrence+ease",))
    find, calls = portfolio.find, []

    def counting(split, **options):
        calls.append(1)
        found = find(split, **options, members=[Member("popularity", "popularity"), Member("ease", "ease")])
        return replace(found, document=found.document | {"seconds": 77.0})

    monkeypatch.setattr(portfolio, "find", counting)
    # Each fit, and each choice of weights, takes one second.
    monkeypatch.setattr(portfolio, "time", SimpleNamespace(perf_counter=count().__next__))
    asked = ["portfolio", "--minutes", "9", "--json", "--root", str(tmp_path)]
    documents = []
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", asked)
        assert portfolio.main() == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    assert len(calls) == 1
    (text,) = (tmp_path / portfolio.LINES).read_text().splitlines()
    figures = json.loads(text)["figures"]
    assert set(figures) == {"fit", "ease", "cooccurrence", "cooccurrence+ease"}
    assert {"value", "bound", "holds"} == set(next(iter(documents[0]["bars"].values())))
    monkeypatch.setattr(sys, "argv", ["portfolio", "--minutes", "9", "--root", str(tmp_path), "--logs", "ml100k"])
    assert portfolio.main() == 0
    assert "| ml100k | 15 |" in capsys.readouterr().out
    # Without its line, the stored values give it again.
    (tmp_path / portfolio.LINES).unlink()
    monkeypatch.setattr(portfolio.beamwood, "fit", None)
    assert portfolio.main() == 0
    assert len(calls) == 1
    # Fitted models are reused for what has no values yet, with the seconds of their fits.
    (tmp_path / portfolio.LINES).unlink()
    for name in ("fit", "ease", "cooccurrence+ease"):
        (tmp_path / "runs" / "portfolio" / f"ml100k-9m-3m-{portfolio.source_digest()}" / f"{name}.npz").unlink()
    assert portfolio.main() == 0
    assert len(calls) == 2
    (text,) = (tmp_path / portfolio.LINES).read_text().splitlines()
    for each in (figures, json.loads(text)["figures"]):
        seconds = {name: own["seconds"] for name, own in each.items()}
        assert seconds == {"fit": 77.0, "ease": 2.0, "cooccurrence": 2.0, "cooccurrence+ease": 3.0}
    # What another source has measured is not taken for this one's.
    (tmp_path / portfolio.LINES).unlink()
    monkeypatch.setattr(portfolio, "source_digest", lambda: "another")
    with pytest.raises(TypeError):
        portfolio.main()
    assert len(calls) == 3
    # Another limit of the named methods is another study.
    shorter = ["portfolio", "--minutes", "9", "1", "--root", str(tmp_path), "--logs", "ml100k"]
    monkeypatch.setattr(sys, "argv", shorter)
    with pytest.raises(TypeError):
        portfolio.main()
    assert len(calls) == 4


def test_lines_are_grouped_by_their_limits(tmp_path):
    from benchmarks.portfolio_table import portfolio_tables, read

    from beamwood.errors import InputError

    made = [line("a", 2000, fit=0.30, ease=0.31, dtr=0.20), line("b", 100, fit=0.12346, dtr=0.09)]
    limits = [{"chosen": "dtr", "minutes": each, "named_minutes": each / 3} for each in (3, 15)]
    lines = [own | limit for own, limit in zip(made, limits, strict=True)]
    path = tmp_path / "lines.jsonl"
    # Of two lines for a log and its limits the last counts.
    old = line("a", 500, fit=0.50, ease=0.40) | limits[0]
    path.write_text("".join(json.dumps(each) + "\n" for each in (old, *lines)))
    shown = portfolio_tables(read(path))
    first, second = shown.split("**The search has ")[1:]
    assert first.startswith("15 minutes, each named method 5 minutes")
    assert "| `b` | 100 | `dtr` | **.1235** | .0900 |" in first
    assert second.startswith("3 minutes, each named method 1 minute**")
    assert "| `a` | 2,000 | `dtr` | .3000 | **.3100** | .2000 |" in second
    assert "| a: below ease, % | 3.2 | ≤ 2 | **no** |" in second
    assert read(tmp_path / "none") == []
    path.write_text('{"log": "a"}\n')
    with pytest.raises(InputError, match="line 1: KeyError"):
        read(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--logs", "ml100"], "log 'ml100' is not measured; did you mean 'ml100k'"),
        (["--minutes", "0"], "--minutes 0 is not one or two numbers above 0"),
        (["--minutes", "3", "-1"], "--minutes 3 -1 is not one or two numbers above 0"),
        (["--minutes", "3", "1", "1"], "--minutes 3 1 1 is not one or two numbers above 0"),
        ([], "set BEAMWOOD_DATA"),
    ],
)
def test_errors_name_the_problem(tmp_path, monkeypatch, capsys, arguments, message):
    from benchmarks import portfolio

    monkeypatch.setenv("BEAMWOOD_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["portfolio", *arguments, "--root", str(tmp_path)])
    assert portfolio.main() == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Interrupted("the checkpoint is kept")])
def test_ctrl_c_ends_a_benchmark_without_a_traceback(error):
    """A training answers it with an error of its own."""
    from benchmarks.command import exit_code

    def work():
        raise error

    assert exit_code("benchmarks.portfolio", work) == 130
