"""Shares of the optimum on a planted market: measured, kept, and 1 for the optimum itself."""

import json
import sys
from pathlib import Path

import pytest

from beamwood.data.taste_optimum import TasteOptimum
from beamwood.data.tastes import TasteConfig, make_taste_market

ROOT = Path(__file__).parents[2]
SMALL = TasteConfig(
    num_items=240, num_users=300, items_per_taste=10, num_contexts=3, min_events=5, max_events=20, stay=0.9
)


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import planted

    monkeypatch.setattr(planted, "SIZES", {"small": SMALL})
    return planted


def called(planted, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["planted", *map(str, arguments)])
    return planted.main()


def test_shares_are_of_the_optimum(planted, monkeypatch, capsys, tmp_path):
    out = tmp_path / "kept" / "small.json"
    asked = ("--methods", "popularity,transitions", "--json", "--out", out)
    assert called(planted, monkeypatch, *asked) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["found"]
    assert list(found) == ["optimum", "optimum, the context known", "popularity", "transitions"]
    assert found["optimum, the context known"]["hit_rate@20"]["of the optimum"] > 1
    for name in ("popularity", "transitions"):
        line = found[name]["ndcg@20"]
        assert line["of the optimum"] == pytest.approx(line["value"] / found["optimum"]["ndcg@20"]["value"])
        assert found[name]["ms"] > 0
    assert found["popularity"]["ndcg@20"]["of the optimum"] < found["transitions"]["ndcg@20"]["of the optimum"] < 1
    # What is kept is not fitted again.
    monkeypatch.setattr(planted.beamwood, "fit", None)
    assert called(planted, monkeypatch, *asked) == 0
    assert json.loads(capsys.readouterr().out)["found"] == found
    assert called(planted, monkeypatch, *asked[:2], "--out", out, "--queries", 100) == 2
    assert "was measured with queries=2000, not 100" in capsys.readouterr().err


def test_the_optimum_has_all_of_itself(planted):
    market = make_taste_market(SMALL, seed=0)
    split = planted.split_of_market(market)
    best = planted.measure(TasteOptimum(market), split, 200, None)
    again = planted.measure(TasteOptimum(market), split, 200, best)
    assert again["ndcg@20"]["of the optimum"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "drt"], "'drt' is unknown; did you mean 'dtr'"),
        (["--minutes", "0"], "--minutes must be above 0"),
    ],
)
def test_what_is_wrong_is_said(planted, monkeypatch, capsys, arguments, message):
    assert called(planted, monkeypatch, *arguments) == 2
    assert message in capsys.readouterr().err
