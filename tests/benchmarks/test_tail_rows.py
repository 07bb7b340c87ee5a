"""The rows of `benchmarks.tail` say by which rule their tail is, and rows of two rules make no table."""

import json
import sys
from pathlib import Path

import pytest

from beamwood.data.synthetic import MarketConfig, make_market


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    from benchmarks import tail

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["tail", *map(str, arguments)])
        tail.main()

    return run


def test_each_row_says_its_tail_rule(tmp_path, bench, capsys):
    market = make_market(MarketConfig(num_users=300, num_items=61, min_events=5, max_events=12), seed=0)
    market.log.write_parquet(tmp_path / "log.parquet")
    extra = market.log.select("user_id", "item_id").unique("user_id", keep="last", maintain_order=True)
    extra.write_parquet(tmp_path / "extra.parquet")
    log, prepended = ("--log", tmp_path / "log.parquet"), ("--prepend", tmp_path / "extra.parquet")
    counted = ("--variants", "popularity;co-occurrence", "--seeds", 0)
    for out, options in (("clean", ()), ("restored", prepended), ("chosen", (*prepended, "--tail-of", "items"))):
        bench("run", *log, *options, *counted, "--out", tmp_path / out)
    rows = {
        out: json.loads((tmp_path / out / "popularity-0.json").read_text()) for out in ("clean", "restored", "chosen")
    }
    assert rows["clean"]["tail_rule"] == rows["chosen"]["tail_rule"]
    assert "fewest training interactions" in rows["clean"]["tail_rule"]
    assert "prefixes of two items or more" in rows["restored"]["tail_rule"]
    assert rows["restored"]["tail_items"] == rows["clean"]["tail_items"] + 1
    capsys.readouterr()
    bench("table", "--out", tmp_path / "restored", "--against", "popularity", "--json")
    table = json.loads(capsys.readouterr().out)
    assert {row["tail_rule"] for row in table["rows"]} == {rows["restored"]["tail_rule"]}
    for end in ("json", "npz"):
        (tmp_path / "restored" / f"popularity-0.{end}").rename(tmp_path / "clean" / f"popularity-1.{end}")
    with pytest.raises(SystemExit, match="rows of 2 tail rules; give each a folder"):
        bench("table", "--out", tmp_path / "clean")


def test_every_configuration_is_one(bench):
    """All rows, and those whose cost is measured, are configurations of their methods."""
    from beamwood.methods import load_method
    from benchmarks import tail

    assert set(tail.COSTED) <= set(tail.FROM)
    for method, settings in (tail.SCRATCH | tail.FROM).values():
        config = load_method(method).Config
        own = {"start.folder": "a folder"} if "start.folder" in config.names() else {}
        config(**settings | own)
