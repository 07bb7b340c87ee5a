"""A tiny suite of benchmarks on a planted log."""

import json
import sys

import pytest

from beamwood.data.markets.synthetic import MarketConfig, make_market

SUITE = """
[logs.planted]
folder = "planted"
title = "Planted"

[topics.main]
title = "Main"
logs = ["planted"]
seeds = [0, 1]
judged = ["removed/f@20"]

[topics.main.rows.popularity]
title = "`popularity`"
method = "popularity"
once = true

[topics.main.rows.cooccurrence]
title = "`cooccurrence`"
method = "cooccurrence"
once = true

[topics.main.rows.sasrec]
title = "`sasrec`"
method = "sasrec"
settings = { "model.width" = 8, "model.length" = 8, "loop.max_steps" = 20, "loop.evaluate_every" = 10 }

[topics.main.rows."sasrec+cooccurrence"]
title = "`sasrec+cooccurrence`"
method = "two_stage"
start = { "start.retriever" = "sasrec" }
settings = { "start.ranker" = "cooccurrence" }

[topics.rest]
title = "The rest"
logs = ["planted"]
ks = [5, 20]
keep = ["kept/hit_rate@5", "tail kept/hit_rate@5", "sampled/ndcg@5"]
against = "tail"
judged = ["kept/hit_rate@5"]
columns = [
  { figure = "kept/hit_rate@5", heading = "HR@5", interval = true, test = true },
]

[topics.rest.published.planted]
"Theirs" = { "kept/hit_rate@5" = 0.25 }

[topics.rest.rows.tail]
title = "by tail labels too"
recipe = "tail"
method = "popularity"

[topics.rest.rows.sampled]
title = "among drawn items too"
recipe = "sampled"
method = "cooccurrence"

[topics.rest.rows.again]
title = "the main table's"
same = "main/popularity"
"""
PAGE = "# Page\n\nSome 20 items, `loop.max_steps=0.5`, section 4.2.\n\n<!-- table main -->\n<!-- end main -->\n"


def written(root):
    """A checkout with the suite, a README and a planted log."""
    (root / "benchmarks").mkdir(parents=True)
    (root / "benchmarks" / "suite.toml").write_text(SUITE)
    (root / "README.md").write_text(PAGE)
    (root / "docs").mkdir()
    names = ("readme", "rest", "method-sasrec", "method-dtr")
    tables = [f"<!-- table {name} -->\n<!-- end {name} -->\n" for name in names]
    (root / "docs" / "page.md").write_text("\n".join(tables))
    (root / "data" / "planted").mkdir(parents=True)
    market = make_market(MarketConfig(num_users=300, num_items=150, min_events=6, max_events=12), seed=0)
    market.log.write_parquet(root / "data" / "planted" / "interactions.parquet")


def called(root, *arguments):
    """The exit code of a command; runs are in this process, because their peak memory does not matter."""
    from benchmarks import __main__

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BEAMWOOD_DATA", str(root / "data"))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr(sys, "argv", ["benchmarks", arguments[0], "--root", str(root), *arguments[1:]])
        patch.setattr("benchmarks.bench.Bench.in_process", lambda bench, run: bench.make(run) is None)
        patch.setattr("benchmarks.origin.commit", lambda root: "0123456")
        return __main__.main()


def lines_of(root, topic="main"):
    return [json.loads(text) for text in (root / "benchmarks" / "runs" / f"{topic}.jsonl").read_text().splitlines()]
