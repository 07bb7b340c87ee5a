"""Extremely long histories: only their latest part forms pairs, and this is reported."""

import json
import random
import resource
import subprocess
import sys

import numpy as np
import pytest

from beamwood.fitting.counting import interactions
from beamwood.types import ItemLists
from cli_cases import ENVIRONMENT

RUN = "import sys, resource; from beamwood.cli.main import main; code = main(sys.argv[1:]); "
RUN += "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
SECONDS, KILOBYTES = 60, 1_200_000


@pytest.fixture
def with_programs(write):
    """300 users with 8 items each, and two bots with 15,000 of 30,000 items."""
    chance = random.Random(4)
    rows = [(user, chance.randrange(30_000), 5, 1000 + place) for user in range(300) for place in range(8)]
    for program in (900, 901):
        rows += [(program, item, 5, place) for place, item in enumerate(chance.sample(range(30_000), 15_000))]
    return write(rows, "programs.csv")


def test_counting_pairs_stays_within_time_and_memory(with_programs, tmp_path):
    # All pairs would be 4.5e8, at about 12 bytes each.
    few = [word for name in ("decay=1", "shrinkage=10", "seen=counted") for word in ("--set", f"model.{name}")]
    fit = ["fit", with_programs, "--out", tmp_path / "out", "--method", "cooccurrence", *few, "--json"]
    done = subprocess.run(
        [sys.executable, "-c", RUN, *fit],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=540,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)["training"]["long_histories"]
    assert said.endswith("of more than 2,500 interactions the latest form pairs (model.count_last)")
    assert int(done.stderr.split()[-1]) < KILOBYTES


@pytest.mark.parametrize("method", ["cooccurrence", "ease"])
def test_the_cap_is_a_setting_and_is_reported(write, planted, say, method):
    planted += [(777, item, 5, item) for item in range(30)] * 2
    path = write(planted)
    fit = ("fit", path, "--method", method, "--set")
    # 80 % of the users are for training, which may exclude the bots; leave-one-out trains on all.
    whole = say(*fit, "model.count_last=60", "--split", "leave-one-out")
    capped = say(*fit, "model.count_last=20", "--split", "leave-one-out")
    assert "long_histories" not in whole
    assert "long_histories: of 1 history of more than 20 interactions the latest form pairs" in capped
    assert "model.count_last=1" in say(*fit, "model.count_last=1", code=2)


def test_a_comparison_reports_it_too(write, planted, say):
    planted += [(777, place % 30, 5, place) for place in range(2600)]
    said = say("compare", write(planted), "--methods", "popularity,cooccurrence", "--split", "leave-one-out")
    assert "cooccurrence: of 1 history of more than 2,500 interactions the latest form pairs" in said


def test_only_the_latest_interactions_count():
    lists, facts = ItemLists.from_lists([[0, 1, 2, 3], [4, 0]]), {}
    taken = interactions(lists, 5, 2, facts).toarray()
    np.testing.assert_array_equal(taken, [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1]])
    assert "of 1 history" in facts["long_histories"]
    np.testing.assert_array_equal(interactions(lists, 5).toarray()[0], [1, 1, 1, 1, 0])
