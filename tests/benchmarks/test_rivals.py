"""Models and indexes side by side: bars, the paper's table against ours, and the short form on a small log."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
[logs.small]
market = { num_users = 150, num_items = 60, min_events = 8, max_events = 16 }
title = "A small market"

[topics.rivals]
title = "Rivals"
logs = ["small"]
judged = ["removed/f@20"]
columns = [
  { figure = "removed/f@20", heading = "F@20", interval = true },
  { figure = "ms", heading = "ms", digits = 2 },
]

[topics.rivals.rows.two_tower]
title = "`two_tower`"
method = "two_tower"
settings = { "loop.max_steps" = 20, "loop.evaluate_every" = 10 }

[topics.rivals.rows.ivf]
title = "`two_tower`, `ivf`"
method = "indexed"
start = { "start.folder" = "two_tower" }
settings = { "index.kind" = "ivf" }
"""


@pytest.fixture
def rivals(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import rivals

    return rivals


def row(key, **figures):
    line = SimpleNamespace(figures=figures)
    return SimpleNamespace(row=key, lines=(line,), figure=figures.get)


def test_bars_of_indexes_and_trees(rivals):
    removed = "removed/f@20"
    rows = {
        "two_tower": row("two_tower", **{removed: 0.2}),
        "hnsw": row("hnsw", **{removed: 0.199}),
        "scann": row("scann", **{removed: 0.15}),
        "dtr": row("dtr", **{removed: 0.19}),
        "dtr+cooccurrence": row("dtr+cooccurrence", **{removed: 0.21}),
    }
    bars = dict(rivals._of_log(rows, removed))
    assert bars["hnsw, share of exact F@20"].value == pytest.approx(0.995)
    assert bars["hnsw, share of exact F@20"].holds
    assert not bars["scann, share of exact F@20"].holds
    assert bars["the best tree over the best rival"].value == pytest.approx(1.05)
    assert "ivf, share of exact F@20" not in bars


def test_bars_of_published_figures(rivals):
    told = {"removed/recall@20": 0.1040, "published/recall@20": 0.1071}
    (bar,) = dict(rivals._of_published({"five": row("five", **told)})).values()
    assert bar.value == pytest.approx(0.0031 / 0.1071)
    assert not bar.holds


def test_the_paper_is_compared_by_shares(rivals, monkeypatch):
    from benchmarks import published

    def gathered(bench, topic, log):
        assert log == "mind_dtr"
        if topic == "trees":
            return {}
        figures = {"youtube_dnn": 0.2, "sasrec": 0.2, "lightgcn": 0.3}
        return {key: SimpleNamespace(title=key, figure={"kept/f@20": value}.get) for key, value in figures.items()}

    monkeypatch.setattr(published, "gather", gathered)
    assert published.shares(None)["lightgcn"][1:] == pytest.approx((1.5, 0.0806 / 0.2243))
    table = published.published_table(None)
    assert "| sasrec | .2000 | 1.00 | .2254 | 1.00 |" in table
    assert "- lightgcn is above YouTubeDNN here, and below it in the paper." in table
    assert "- sasrec" not in table


def test_the_short_form_fits_and_measures(rivals, tmp_path, monkeypatch, capsys):
    (tmp_path / "benchmarks").mkdir()
    for name in ("suite.toml", "short.toml"):
        (tmp_path / "benchmarks" / name).write_text(SUITE)
    monkeypatch.setattr("benchmarks.bench.Bench.in_process", lambda bench, run, given=None: bench.make(run) is None)
    monkeypatch.setattr("benchmarks.origin.commit", lambda root: "0123456")
    monkeypatch.setattr(sys, "argv", ["rivals", "--short", "--json", "--root", str(tmp_path)])
    assert rivals.main() == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["bars"]) == {"small: ivf, share of exact F@20"}
    assert document["missing"] == []
    rows = document["logs"]["small"]
    assert {"ms", "mb", "scored", "removed/f@20"} <= rows["ivf"].keys()
    assert rows["ivf"]["removed/f@20"] <= rows["two_tower"]["removed/f@20"] * 1.2
