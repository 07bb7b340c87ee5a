"""Counting methods keep a time limit with fewer settings, validation users or items, each reported in a line."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import sparse

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import TimeLimitError
from beamwood.evaluation.protocol import evaluate_both
from beamwood.fitting.counting import CountingConfig, GridSettings, best_of_grid, interactions
from beamwood.fitting.stages import put_behind
from beamwood.methods import load_method
from beamwood.methods.ease import _affordable
from beamwood.methods.sums import add_counting, first_budget, fit_sum
from beamwood.training.budget import Budget
from beamwood.types import SearchOptions


class Clock:
    """A clock that advances on demand, and slightly with each reading."""

    def __init__(self, each=0.0):
        self.now, self.each = 0.0, each

    def __call__(self):
        self.now += self.each
        return self.now


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=900, num_items=80, max_events=40), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


class Config(CountingConfig):
    model: GridSettings = GridSettings(decay=(0.9,), seen=("counted",))


def grid(split, budget, clock, seconds, values=(1.0, 2.0, 3.0)):
    taken, made = interactions(split.train.histories, split.train.num_items), []

    def matrix(power):
        clock.now += seconds
        made.append(power)
        return sparse.csr_matrix((taken.T @ taken).power(power))

    return *best_of_grid(split, Config(), matrix, 0, budget, power=values), made


def test_settings_without_time_are_not_tried(split):
    clock = Clock()
    budget = Budget(25.0, clock=clock)
    _, chosen, made = grid(split, budget, clock, seconds=10.0)
    assert made == [1.0, 2.0]
    assert clock.now <= 25
    assert chosen["left_out"] == ["2 of 3 settings tried"]
    _, chosen, made = grid(split, None, clock, seconds=10.0)
    assert made == [1.0, 2.0, 3.0]
    assert "left_out" not in chosen


def test_the_place_of_seen_items_needs_no_new_matrix(split):
    """The matrix of the best setting is kept, so that there is time for the places if there is for nothing else."""
    clock = Clock()
    config = Config(**{"model.decay": (0.9,), "model.seen": ("counted", "first", "last")})
    taken, made = interactions(split.train.histories, split.train.num_items), []

    def matrix(power):
        clock.now += 10.0
        made.append(power)
        counts = sparse.csr_matrix(taken.T @ taken)
        return counts if power == 1.0 else sparse.csr_matrix(counts.shape)

    _, chosen = best_of_grid(split, config, matrix, 0, Budget(25.0, clock=clock), power=(1.0, 2.0))
    assert made == [1.0, 2.0]
    assert chosen["power"] == 1.0
    assert "left_out" not in chosen


def test_the_first_settings_are_always_tried(split):
    clock = Clock()
    _, chosen, made = grid(split, Budget(1.0, clock=clock), clock, seconds=10.0)
    assert made == [1.0]
    assert chosen["power"] == 1.0


def test_fewer_validation_users_are_used_if_evaluation_is_slow(split, monkeypatch):
    clock = Clock()

    def slow(searcher, queries, *, ks):
        clock.now += len(queries)
        return evaluate_both(searcher, queries, ks=ks)

    monkeypatch.setattr("beamwood.fitting.counting.evaluate_both", slow)
    budget = Budget(100.0, clock=clock)
    _, chosen, _ = grid(split, budget, clock, seconds=0.0, values=(1.0,))
    assert len(split.valid) > 64
    assert f"validation uses 64 of {len(split.valid)} users" in chosen["left_out"]


def test_a_sample_of_users_excludes_a_poor_setting(split, monkeypatch):
    asked = []

    def spied(searcher, queries, *, ks):
        asked.append(len(queries))
        return evaluate_both(searcher, queries, ks=ks)

    monkeypatch.setattr("beamwood.fitting.counting.evaluate_both", spied)
    monkeypatch.setattr("beamwood.fitting.counting._PART", 60)
    taken, rest = interactions(split.train.histories, split.train.num_items), len(split.valid) - 60
    pairs = sparse.csr_matrix(taken.T @ taken)

    def of_least(power):
        return pairs if power == 1.0 else sparse.csr_matrix((1 / pairs.data, pairs.indices, pairs.indptr), pairs.shape)

    _, chosen = best_of_grid(split, Config(), of_least, 0, power=(1.0, -1.0, 1.0))
    assert chosen["power"] == 1.0
    assert rest > 0
    assert asked == [60, rest, 60, 60, rest]


@pytest.mark.parametrize(
    ("users", "left", "items", "solved"),
    [
        (100_000, 1e9, 80_000, 80_000),
        (100_000, 100.0, 80_000, 1_250),
        (2_000, 1e3, 80_000, 2_500),
        (500, 50.0, 49_303, 500),
    ],
)
def test_ease_solves_as_many_items_together_as_time_allows_for_all(users, left, items, solved):
    """One item a user leaves no pair of the others; many leave more than time may suffice for."""
    places = np.arange(80_000)
    taken = sparse.csr_matrix((np.ones(len(places)), (places % users, places)), shape=(users, 80_000))
    budget = Budget(left, clock=Clock(each=1.0))
    assert _affordable(taken, 80_000, 300.0, budget) == (items, solved)
    expected = [f"{solved} items are solved together"] if solved < 80_000 else []
    assert budget.left_out == expected + ([f"{items} of 80000 items get weights"] if items < 80_000 else [])


def test_every_counting_method_accepts_a_limit(split):
    for name in ("popularity", "cooccurrence", "transitions", "ease"):
        retriever = load_method(name).fitted(split, time_limit=60.0)
        assert len(retriever.recommend([split.dataset.items.decode(np.array([0]))]).item_ids[0]) == 20


def test_the_parts_of_a_sum_share_one_limit(split):
    clock, given = Clock(), {}

    def spied(name, takes):
        method = load_method(name)

        def build(split, config, seed, budget):
            given[name] = budget.limit
            clock.now += takes
            return method.build(split, config, seed, Budget())

        return replace(method, build=build)

    first, second, third = spied("popularity", 40.0), spied("cooccurrence", 10.0), spied("transitions", 5.0)
    both = fit_sum(first, [second, third], split, None, time_limit=Budget(100.0, clock=clock))
    # Three quarters for the first; half of the remaining 60 s for counting, in two equal parts; then of 50 s.
    assert given == pytest.approx({"popularity": 75.0, "cooccurrence": 15.0, "transitions": 25.0})
    assert "left_out" not in both.metadata["training"]
    fit_sum(first, [second], split, None)
    assert given["cooccurrence"] == float("inf")


@pytest.mark.parametrize("name", ["transitions", "cooccurrence"])
def test_a_first_method_that_took_all_time_is_told_the_limit_of_the_sum(split, name):
    """A resumed one is completed all the same."""
    clock = Clock(each=0.01)
    budget, fitted = Budget(100.0, clock=clock), load_method("popularity").fitted(split)
    first = first_budget(budget, load_method("dtr"), [load_method(name)])
    clock.now += 100.0
    with pytest.raises(TimeLimitError, match=rf"time_limit=100 s is below 10[1-9] s, what {name} needs here"):
        add_counting(fitted, [load_method(name)], split, seed=0, budget=budget)
    first.refuses = False
    add_counting(fitted, [load_method(name)], split, seed=0, budget=budget)


def test_the_weights_of_a_sum_use_as_many_users_as_time_allows(split):
    clock, asked = Clock(), []

    @dataclass
    class Slow:
        """Each searched row takes a tenth of a second."""

        inner: object

        def search(self, query, k, options=SearchOptions()):
            asked.append(len(query))
            clock.now += 0.1 * len(query)
            return self.inner.search(query, k, options)

        def __getattr__(self, name):
            return getattr(self.inner, name)

    first, second = (load_method(name).fitted(split) for name in ("popularity", "cooccurrence"))
    slow, valid = replace(first, searcher=Slow(first.searcher)), np.count_nonzero(split.valid.labels.lengths)
    put_behind(slow, second, split)
    assert asked == [valid] * len(asked)
    each, budget = 0.1 * len(asked), None
    for room in (1.1, 0.9, 0.0):
        # The cost is estimated first, on 4 and 32 rows, twice.
        limit, clock.now = 72 * each + room * valid * each / 0.8, 0.0
        budget = Budget(limit, clock=clock)
        asked.clear()
        both = put_behind(slow, second, split, budget=budget)
        judged = max(64, min(valid, int(room * valid + 1e-6)))
        assert asked[-1] == judged
        assert bool(budget.left_out) == (judged < valid)
        assert 0 <= both.metadata["training"]["valid/removed/ndcg@20"] <= 1
        if room:
            assert clock.now <= limit
    assert budget.left_out == [f"the weights of a sum are chosen on 64 of {valid} validation users"]


@pytest.mark.parametrize("limit", [None, 60.0])
@pytest.mark.parametrize("others", [[], [load_method("ease")]])
def test_the_seconds_of_a_resumed_fit_count_its_earlier_part(limit, others):
    whole = Budget(limit, clock=Clock())
    first_budget(whole, load_method("dtr"), others).count(7.0)
    assert whole.seconds == 7.0
