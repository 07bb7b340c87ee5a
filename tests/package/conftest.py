"""A market, folders that were fitted on it with torch, and installations without torch."""

import json

import pytest

from bare_environment import SOURCE, bare_environment
from beamwood.data.synthetic import MarketConfig, make_market
from cli_cases import TINY, beamwood

TRAINED = {
    "dtr": TINY,
    "two_tower": ["model.width=8", "loop.max_steps=6", "loop.evaluate_every=3"],
    "sasrec": ["model.width=8", "loop.max_steps=6", "loop.evaluate_every=3"],
}


@pytest.fixture(scope="session")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=120, num_items=60, max_events=40), seed=0)
    planted.log.write_parquet(folder / "log.parquet")
    planted.item_frame.write_parquet(folder / "items.parquet")
    return folder


@pytest.fixture(scope="session")
def trained(market):
    """By method a folder that was fitted here."""
    log = [market / "log.parquet", "--items", market / "items.parquet"]
    for name, settings in TRAINED.items():
        asked = [part for setting in settings for part in ("--set", setting)]
        assert beamwood("fit", *log, "--method", name, *asked, "--out", market / name) == 0
    return {name: market / name for name in TRAINED}


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """This source, with the core dependencies and pytest."""
    return bare_environment(tmp_path_factory.mktemp("bare"), source=SOURCE, more=["pytest"])


@pytest.fixture
def answers(capsys):
    """What a folder recommends here, as JSON."""

    def of(*asked):
        capsys.readouterr()
        assert beamwood(*asked) == 0
        return json.loads(capsys.readouterr().out)

    return of
