"""Groups of users and labels: nearly equal sizes, no value in two groups, and group results that add up."""

from types import SimpleNamespace

import numpy as np
import pytest

from beamwood.data import Dataset, disjoint_users, leave_one_out, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.evaluation import cost as cost_module
from beamwood.evaluation.cost import measure_cost
from beamwood.evaluation.groups import by_history, by_popularity, grouped
from beamwood.evaluation.protocol import evaluate_split
from beamwood.evaluation.summary import for_whom
from beamwood.methods import load_method


@pytest.fixture(scope="module")
def split():
    market = make_market(MarketConfig(num_users=200, num_items=50, min_events=6, max_events=40), seed=1)
    return disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))


@pytest.fixture(scope="module")
def counts(split):
    return load_method("cooccurrence").fitted(split).searcher


def test_groups_are_even_and_ascending():
    values = np.random.default_rng(0).permutation(1000)
    groups = grouped(values)
    assert np.bincount(groups.group_of).tolist() == [200] * 5
    assert groups.bounds == ((0, 199), (200, 399), (400, 599), (600, 799), (800, 999))


@pytest.mark.parametrize("values", [[3], [2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 9], [0, 1]])
def test_a_value_is_in_one_group(values):
    groups = grouped(np.array(values))
    for value in set(values):
        assert len({int(group) for group, own in zip(groups.group_of, values, strict=True) if own == value}) == 1
    for (_, high), (low, _) in zip(groups.bounds, groups.bounds[1:], strict=False):
        assert high < low


def test_hits_of_groups_sum_to_all_hits(split, counts):
    views = evaluate_split(counts, split, ks=(10, 20))
    groups = by_popularity(split)
    measured = views["removed"]
    assert measured.groups.labels.shape == (len(split.test), len(groups))
    assert (measured.groups.labels.sum(axis=1) == split.test.labels.lengths).all()
    recall = measured.groups.found.sum(axis=1) / measured.groups.labels.sum(axis=1)
    assert np.allclose(recall, measured.values["recall@10"])
    # The group of each item, counted by hand.
    labels = split.test.labels
    for group, (low, high) in enumerate(groups.bounds):
        inside = (split.train.item_counts[labels.items] >= low) & (split.train.item_counts[labels.items] <= high)
        assert inside.sum() == measured.groups.labels[:, group].sum()


def test_group_means_are_means_over_their_users(split, counts):
    views = evaluate_split(counts, split, ks=(10,))
    document = for_whom({"counts": views}, split, "f@10")["kept"]
    history = by_history(split, views["kept"].users)
    sizes = [group["queries"] for group in document["history"]["groups"]]
    assert sum(sizes) == len(split.test)
    cells = document["history"]["methods"]["counts"]
    mean = sum(size * cell["mean"] for size, cell in zip(sizes, cells, strict=True)) / sum(sizes)
    assert mean == pytest.approx(views["kept"].means()["f@10"])
    assert len(history) == len(cells)
    for cell in (*cells, *document["popularity"]["methods"]["counts"]):
        assert cell["low"] <= cell["mean"] <= cell["high"]


def test_a_test_with_one_label_per_user(split):
    alone = leave_one_out(split.dataset)
    views = evaluate_split(load_method("popularity").fitted(alone).searcher, alone, ks=(5,))
    document = for_whom({"popularity": views}, alone, "f@5")["removed"]
    assert sum(group["labels"] for group in document["popularity"]["groups"]) == len(alone.test)


class Steps:
    """A clock that advances by a fixed amount with each reading."""

    def __init__(self, step):
        self.step, self.now = step, 0.0

    def __call__(self):
        self.now += self.step
        return self.now


@pytest.mark.parametrize(("wall", "worked"), [(0.05, 0.001), (0.001, 0.05)])
def test_cost_excludes_other_load_on_the_machine(split, counts, monkeypatch, wall, worked):
    """A busy machine delays answers, and several threads use more processor time than wall time."""
    clocks = SimpleNamespace(perf_counter=Steps(wall), process_time=Steps(worked))
    monkeypatch.setattr(cost_module, "time", clocks)
    cost = measure_cost(counts, split.test, 10, seconds=1e9)
    assert cost.milliseconds == pytest.approx(1.0)
    few = measure_cost(counts, split.test, 10, seconds=0.12)
    # The limit is in wall time.
    assert few.queries == min(cost.queries, 2 if wall > worked else 100)


def test_cost_counts_the_memory_of_arrays(split, counts):
    cost = measure_cost(counts, split.test, 10)
    assert cost.megabytes == sum(array.nbytes for array in counts.export()[1].values()) / 1e6
    assert cost.queries == min(100, len(split.test))
    assert 0 < cost.milliseconds <= cost.p99
    assert 0 < cost.scored <= counts.num_items
