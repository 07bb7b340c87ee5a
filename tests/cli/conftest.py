"""A small market, and a counting method fitted on it."""

import pytest

from beamwood.data.markets.synthetic import MarketConfig, make_market
from cli_cases import beamwood


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=120, num_items=60, max_events=40), seed=0)
    planted.log.write_parquet(folder / "log.parquet")
    planted.item_frame.write_parquet(folder / "items.parquet")
    return folder


@pytest.fixture(scope="module")
def fitted(market):
    out = market / "fitted"
    assert (
        beamwood(
            "fit", market / "log.parquet", "--items", market / "items.parquet", "--method", "cooccurrence", "--out", out
        )
        == 0
    )
    return out
