"""The split of a fit that is served: what it trains on, and who validates."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import ColumnNames
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.data.splits import SPLITS
from beamwood.data.whole import whole


@pytest.fixture(scope="module")
def log():
    """Users who begin one after the other, with rows of both parts."""
    market = make_market(MarketConfig(num_users=900, num_items=60, min_events=6, max_events=12), seed=2)
    place = pl.int_range(pl.len()).over("user_id")
    return market.log.with_columns(
        timestamp=pl.col("user_id") * 5 + place, part=pl.when(place < 4).then(pl.lit("train")).otherwise(pl.lit("test"))
    )


@pytest.fixture(scope="module", params=SPLITS)
def split(request, log):
    columns = ColumnNames(boundary="part" if request.param == "boundary" else None)
    return SPLITS[request.param](beamwood.Dataset.from_log(beamwood.read_log(log, columns=columns)))


def test_all_trains_except_the_labels_of_validation_users(split):
    data = whole(split)
    assert len(data.test) == 0
    assert 0 < len(data.valid) <= len(split.test)
    held = split.dataset.histories.lengths - data.train.histories.lengths
    others = np.setdiff1d(np.arange(len(held)), data.valid.users)
    assert not held[others].any()
    assert (held[data.valid.users] > 0).all()
    for user, labels in zip(data.valid.users, data.valid.labels, strict=True):
        assert not np.isin(data.train.histories[user], labels).any()
    assert np.isin(data.valid.users, split.test.users).all()


def test_a_user_unknown_in_the_split_stays_unknown(split):
    data = whole(split)
    assert data.train.histories.lengths[data.valid.users].any() != split.tests_unknown_users


def test_one_in_a_hundred_users_validates_within_bounds(log):
    split = SPLITS["leave-one-out"](beamwood.Dataset.from_log(beamwood.read_log(log)))
    data = whole(split)
    assert len(data.valid) == 500
    assert np.array_equal(data.valid.users, whole(split).valid.users)
    assert not np.array_equal(data.valid.users, whole(split, seed=1).valid.users)
