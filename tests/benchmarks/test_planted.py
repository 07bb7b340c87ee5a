"""Shares of the optimum on a planted market, run and rendered as a topic of the suite."""

import sys
from pathlib import Path

import numpy as np
import pytest

from beamwood.data.markets.taste_optimum import next_probabilities
from beamwood.errors import InputError

ROOT = Path(__file__).parents[2]
SUITE = """
[logs.tastes]
tastes = { num_items = 240, num_users = 300, items_per_taste = 10, num_contexts = 3, min_events = 5, max_events = 20 }
title = "Tastes"
split = "leave-one-out"
test_users = 200

[logs.other]
market = { num_users = 60, num_items = 60, min_events = 8, max_events = 16 }
title = "No tastes"

[topics.planted]
title = "Planted"
logs = ["tastes"]
keep = ["kept/hit_rate@20"]
against = "transitions"
judged = ["kept/hit_rate@20"]
columns = [
  { figure = "kept/hit_rate@20", heading = "hit rate@20", interval = true },
  { figure = "kept/hit_rate@20", heading = "share of the optimum", of = "optimum", digits = 3 },
]

[topics.planted.rows.optimum]
title = "the optimum"
recipe = "optimum"

[topics.planted.rows.knowing]
title = "the optimum, told the context"
recipe = "optimum"
settings = { knows_context = true }

[topics.planted.rows.popularity]
title = "`popularity`"
method = "popularity"

[topics.planted.rows.transitions]
title = "`transitions`"
method = "transitions"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkout with all runs made."""
    root = tmp_path_factory.mktemp("planted")
    (root / "benchmarks").mkdir()
    (root / "benchmarks" / "suite.toml").write_text(SUITE)
    (root / "README.md").write_text("# Page\n\n<!-- table planted -->\n<!-- end planted -->\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        from benchmarks import __main__

        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setattr("benchmarks.bench.Bench.in_process", lambda bench, run: bench.make(run) is None)
        patch.setattr("benchmarks.origin.commit", lambda root: "0123456")
        for arguments in (["run", "--all"], ["report"]):
            patch.setattr(sys, "argv", ["benchmarks", arguments[0], "--root", str(root), *arguments[1:]])
            assert __main__.main() == 0
    return root


def evidence(root):
    from benchmarks.bench import Bench, Place
    from benchmarks.evidence import gather

    return gather(Bench(Place(root)), "planted", "tastes")


def test_no_method_has_more_than_the_optimum_and_the_context_helps(made):
    hits = {key: row.figure("kept/hit_rate@20") for key, row in evidence(made).items()}
    assert hits["popularity"] < hits["transitions"] < hits["optimum"] < hits["knowing"]
    assert {row.lines[0].queries for row in evidence(made).values()} == {200}


def test_the_optimum_belongs_to_the_market_of_the_split(made):
    """The market's likeliest next items are among the labels of the split."""
    from benchmarks.bench import Bench, Place
    from benchmarks.logs import split_of, taste_market

    entry = Bench(Place(made)).suite.logs["tastes"]
    market, test = taste_market(entry), split_of(entry, made).test
    likeliest = next_probabilities(market, test.histories).argmax(axis=1)
    found = np.mean([likeliest[row] in test.labels[row] for row in range(len(test))])
    assert evidence(made)["optimum"].figure("kept/hit_rate@20") >= found > 0.05


def test_shares_are_relative_to_the_optimum(made):
    rows = evidence(made)
    page = (made / "README.md").read_text()
    hits = {key: row.figure("kept/hit_rate@20") for key, row in rows.items()}
    for key in ("popularity", "transitions"):
        share = f"{hits[key] / hits['optimum']:.3f}".lstrip("0")
        assert f"| {share} |" in next(line for line in page.splitlines() if f"`{key}`" in line)
    assert "Below it: `popularity`" in page


def test_a_log_without_a_known_optimum_is_refused(made):
    from benchmarks.bench import Bench, Place
    from benchmarks.logs import taste_market

    with pytest.raises(InputError, match="optimum of 'No tastes' is not known"):
        taste_market(Bench(Place(made)).suite.logs["other"])
