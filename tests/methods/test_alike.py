"""A fit warns where its model recommends nearly the same to everyone."""

import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.fitting import alike
from beamwood.fitting.alike import alike_in_words


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=400, num_items=200, min_events=10, max_events=20), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


def test_popularity_is_the_same_for_all_and_neighbours_are_not(split):
    """Seen items are left out of each list, and differ."""
    said = {
        method: alike_in_words(beamwood.fit(split, method).searcher, split.valid, 200, seed=0)
        for method in ("popularity", "cooccurrence")
    }
    assert "two lists of validation users share 100%" in said["popularity"]
    assert said["cooccurrence"] is None
    # Ten users say nothing.
    few = split.valid.take(range(10))
    assert alike_in_words(beamwood.fit(split, "popularity").searcher, few, 200, seed=0) is None


@pytest.mark.parametrize("limit", [0.0, 1.1])
def test_a_fit_tells_and_records_it(split, monkeypatch, capsys, limit):
    monkeypatch.setattr(alike, "_ALIKE", limit)
    settings = {"model.width": 8, "loop.max_steps": 2, "loop.evaluate_every": 2, "loop.batch_size": 16}
    fitted = beamwood.fit(split, "sasrec", settings, progress=False)
    assert ("warning" in fitted.metadata["training"]) == (limit == 0)
    assert ("sasrec: nearly all users get the same items" in capsys.readouterr().err) == (limit == 0)
