"""A market with tables of items and users, and retrievers fitted on it."""

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.methods import load_method


@pytest.fixture(scope="session")
def market(tmp_path_factory):
    folder = tmp_path_factory.mktemp("market")
    planted = make_market(MarketConfig(num_users=300, num_items=150, min_events=10, max_events=30), seed=1)
    planted.log.write_parquet(folder / "log.parquet")
    planted.item_frame.write_parquet(folder / "items.parquet")
    users = planted.log["user_id"].unique().sort()
    ages, cities = np.arange(len(users)) % 60, [("a", "b", None)[n % 3] for n in range(len(users))]
    table = pl.DataFrame({"user_id": users, "age": ages, "city": cities})
    table[1:].write_parquet(folder / "users.parquet")
    return folder


@pytest.fixture(scope="session")
def dataset(market):
    return Dataset.from_log(
        read_log(market / "log.parquet"), market / "items.parquet", user_table=market / "users.parquet"
    )


@pytest.fixture(scope="session")
def first(market, dataset):
    """Fitted retrievers for two splits."""
    for split in (leave_one_out(dataset), disjoint_users(dataset)):
        load_method("cooccurrence").fitted(split).save(market / f"first-{split.name}")
    return {name: str(market / f"first-{name}") for name in ("leave-one-out", "users")}
