"""Counting methods against plain loops, and their choice of parameters on validation users."""

import itertools

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError, TimeLimitError
from beamwood.fitting.counting import counts_within, interactions
from beamwood.kernels.lists import strongest
from beamwood.methods import load_method
from beamwood.methods.cooccurrence import similarity
from beamwood.training.budget import Budget
from beamwood.types import ItemLists


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=200, num_items=80, max_events=60), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


def test_cosine_equals_the_loop():
    rows = [[0, 1, 2, 2], [1, 2], [0, 3], [3]]
    got = similarity(interactions(ItemLists.from_lists(rows), 5), shrinkage=2.0, power=0.5, num_neighbours=5).toarray()
    for i in range(5):
        for j in range(5):
            both = sum(i in row and j in row for row in rows)
            n_i, n_j = (sum(x in row for row in rows) for x in (i, j))
            expected = both / (np.sqrt(n_i * n_j) + 2) if i != j and both else 0
            assert np.isclose(got[i, j], expected)


def test_cosine_is_the_same_in_blocks_of_pairs(monkeypatch):
    rng = np.random.default_rng(0)
    taken = interactions(ItemLists.from_lists([rng.integers(0, 30, size) for size in rng.integers(0, 9, 60)]), 40)
    given = {"shrinkage": 2.0, "power": 0.5, "num_neighbours": 4}
    whole = similarity(taken, **given)
    monkeypatch.setattr("beamwood.methods.cooccurrence._PAIRS", 1)
    blocks = similarity(taken, **given)
    assert whole.nnz
    assert all(np.array_equal(getattr(whole, name), getattr(blocks, name)) for name in ("data", "indices", "indptr"))


def test_cosine_stops_early_if_it_will_exceed_its_limit(monkeypatch):
    monkeypatch.setattr("beamwood.methods.cooccurrence._PAIRS", 1)
    taken = interactions(ItemLists.from_lists([np.arange(at % 50, at % 50 + 9) for at in range(300)]), 60)
    clock = itertools.count().__next__
    budget = Budget(5, clock=clock, name="counting")
    with pytest.raises(TimeLimitError, match="what counting needs here"):
        similarity(taken, shrinkage=1.0, power=0.5, num_neighbours=9, budget=budget)
    assert clock() < 20


def test_transitions_equal_the_loop():
    rows = [[0, 1, 2, 1], [2, 2, 3], []]
    got = counts_within(ItemLists.from_lists(rows), 4, 2).toarray()
    expected = np.zeros((4, 4))
    for row in rows:
        for i in range(len(row)):
            for gap in (1, 2):
                if i + gap < len(row) and row[i] != row[i + gap]:
                    expected[row[i], row[i + gap]] += 1 / gap
    assert np.allclose(got, expected)


def test_steps_beyond_the_length_of_a_history_cost_nothing():
    rows = ItemLists.from_lists([[0, 1, 2, 1], [2, 2, 3], []])
    assert np.array_equal(counts_within(rows, 4, 10**12).toarray(), counts_within(rows, 4, 3).toarray())


def test_strongest_keeps_the_largest():
    matrix = np.array([[0, 3.0, 1, 3], [5, 0, 0, 0], [0, 0, 0, 0]])
    kept = strongest(matrix, 2).toarray()
    assert kept.tolist() == [[0, 3, 0, 3], [5, 0, 0, 0], [0, 0, 0, 0]]
    assert strongest(matrix, 1).toarray()[0].tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize("name", ["popularity", "cooccurrence", "transitions", "ease"])
def test_fits_and_answers(split, name):
    retriever = load_method(name).fitted(split)
    assert retriever.metadata["method"] == name
    assert len(retriever.recommend(users=[0, 5], k=9).item_ids[1]) == 9
    assert len(retriever.recommend([[]], k=9).item_ids[0]) == 9


def test_the_chosen_parameters_are_best_on_validation(split):
    module = load_method("cooccurrence")
    chosen = module.fitted(split).metadata["training"]
    for decay in module.Config().model.decay:
        fixed = module.Config(**{"model.shrinkage": (chosen["shrinkage"],), "model.decay": (decay,)})
        assert module.fitted(split, fixed).metadata["training"]["valid/f@20"] <= chosen["valid/f@20"] + 1e-12


def test_popularity_counts_users_once():
    frame = pl.DataFrame({"user": np.repeat(np.arange(20), 4), "item": [1, 1, 1, 2, 3, 3, 2, 2] * 10})
    split = disjoint_users(Dataset.from_log(read_log(frame)))
    counts = load_method("popularity").fitted(split).searcher.counts
    taken = [len({u for u in range(20) if i in set(split.train.histories[u].tolist())}) for i in range(3)]
    assert counts.tolist() == taken


def test_a_single_value_is_accepted_as_a_grid(split):
    fitted = beamwood.fit(split, "cooccurrence", {"model.shrinkage": 5, "model.decay": 0.9, "model.seen": "last"})
    chosen = fitted.metadata["training"]
    assert (chosen["shrinkage"], chosen["decay"], chosen["seen"]) == (5.0, 0.9, "last")


def test_all_seen_items_are_left_out(tmp_path):
    """Also for a long history, and in a saved folder."""
    rng = np.random.default_rng(0)
    taken = [rng.permutation(400)[:300] for _ in range(30)]
    log = pl.DataFrame({"user": np.repeat(np.arange(30), 300), "item": np.concatenate(taken)})
    beamwood.fit(disjoint_users(Dataset.from_log(read_log(log))), "popularity").save(tmp_path / "fitted")
    found = beamwood.load(tmp_path / "fitted").recommend(users=np.arange(30), k=100)
    for had, items in zip(taken, found.item_ids, strict=True):
        assert sorted([*had, *items]) == list(range(400))


def test_unknown_method():
    with pytest.raises(InputError, match="method 'drt' is unknown; did you mean 'dtr'"):
        load_method("drt")


def test_unknown_option(split):
    with pytest.raises(InputError, match="option 'time_limt' is unknown; did you mean 'time_limit'"):
        beamwood.fit(split, "popularity", time_limt=3)
    with pytest.raises(InputError, match="option 'estimator' is unknown"):
        beamwood.fit(split, "jtm", estimator=None)


@pytest.mark.parametrize(
    ("method", "config", "message"),
    [
        ("transitions", {"model.decay": []}, "model.decay=.*one value or more"),
        (
            "transitions",
            {"model.decay": [0.9, 0]},
            "decay has 0: give a list of one value or more, each a number above 0 and at most 1",
        ),
        ("transitions", {"model.source_power": [-50]}, "source_power has -50: give a list of"),
        ("cooccurrence", {"model.shrinkage": []}, "model.shrinkage=.*one value or more"),
        ("cooccurrence", {"model.shrinkage": [-1]}, "shrinkage has -1: give a list of"),
        ("cooccurrence", {"model.power": [1000]}, "power has 1000: give a list of"),
        ("cooccurrence", {"model.length": 2**31}, "model.length=2147483648: give a whole number from"),
    ],
)
def test_wrong_grids_are_refused(split, method, config, message):
    with pytest.raises(InputError, match=message):
        beamwood.fit(split, method, config)


@pytest.mark.parametrize("method", ["popularity", "cooccurrence", "transitions"])
def test_counting_accepts_the_options_of_all_methods(split, method):
    fitted = beamwood.fit(split, method, seed=3, time_limit=60, progress=False)
    assert fitted.metadata["seed"] == 3
