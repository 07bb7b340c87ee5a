"""The sampled protocol against loops; its lists are fixed, uniform and without seen items."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, read_log
from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.evaluation.sampled import Sampled, evaluate_sampled
from beamwood.fitting.ranking.sampled_measure import SampledMeasure
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.types import ItemLists, Query, QueryNeeds
from real_data import real_data

NUM_ITEMS = 30
QUERIES = Queries(
    users=np.array([4, 9, 7]),
    histories=ItemLists.from_lists([[1, 2], [3], [5, 6, 7]]),
    labels=ItemLists.from_lists([[0, 8], [4], [9]]),
    seen=ItemLists.from_lists([[1, 2, 29], [3], [5, 6, 7]]),
)


class Table:
    """Scores by user and item, or by history without users."""

    kind = "table"
    num_items = NUM_ITEMS

    def __init__(self, needs_users=True, constant=False):
        self.needs, self.constant = QueryNeeds(users=needs_users), constant

    def score(self, query, items):
        assert isinstance(query, Query)
        if not self.needs.users:
            return np.cos(query.histories.lengths[:, None] * 3.0 + items).astype(np.float32)
        values = np.sin(query.users[:, None] * 31.0 + items * 7.0)
        return np.zeros(items.shape, np.float32) if self.constant else values.astype(np.float32)

    def search(self): ...
    def export(self): ...
    @classmethod
    def restore(cls): ...


def test_lists_have_no_seen_items():
    lists = Sampled(QUERIES, NUM_ITEMS, num_negatives=20, seed=3)
    assert lists.rule.startswith("each label among 20 items that the user has not seen, drawn with seed 3;")
    assert lists.rows_P.tolist() == [0, 0, 1, 2]
    for row, items in zip(lists.rows_P, lists.items_PM, strict=True):
        known = set(QUERIES.seen[row].tolist()) | set(QUERIES.labels[row].tolist())
        assert len(set(items[1:])) == 20
        assert not set(items[1:]) & known
        assert items[0] in QUERIES.labels[row]
    again = Sampled(QUERIES, NUM_ITEMS, num_negatives=20, seed=3)
    assert np.array_equal(again.items_PM, lists.items_PM)
    assert not np.array_equal(Sampled(QUERIES, NUM_ITEMS, num_negatives=20, seed=4).items_PM, lists.items_PM)


@pytest.mark.parametrize("needs_users", [True, False])
def test_values_equal_a_loop(needs_users):
    searcher, lists = Table(needs_users), Sampled(QUERIES, NUM_ITEMS, num_negatives=19)
    values = evaluate_sampled(searcher, lists, ks=(1, 5, 20))
    for query in range(3):
        for k in (1, 5, 20):
            gains = {"hit_rate": [], "ndcg": [], "mrr": []}
            for row in np.flatnonzero(lists.rows_P == query):
                items = lists.items_PM[row][None, :]
                asked = Query(QUERIES.users[[query]], QUERIES.histories.take([query]))
                scores = searcher.score(asked, items)[0]
                rank = 1 + sum(s >= scores[0] for s in scores[1:])
                gains["hit_rate"].append(rank <= k)
                gains["ndcg"].append((rank <= k) / np.log2(1 + rank))
                gains["mrr"].append((rank <= k) / rank)
            for name, parts in gains.items():
                assert np.isclose(values[f"{name}@{k}"][query], np.mean(parts))


def test_a_constant_score_gets_no_credit():
    values = evaluate_sampled(Table(constant=True), Sampled(QUERIES, NUM_ITEMS, num_negatives=9), ks=(5,))
    assert all((column == 0).all() for column in values.values())


def test_validation_names_its_metrics():
    measure = SampledMeasure(QUERIES, NUM_ITEMS, num_users=2, seed=0, monitor="sampled/ndcg@5")
    assert "sampled/ndcg@10" in measure(Table())  # Fewer than 99 items are unseen, so lists are shorter.
    assert len(measure) == 2
    assert measure(Table(), 2) == measure(Table())
    with pytest.raises(InputError, match=r"num_negatives=28 is outside 1..25: .* at most 25 \(--sampled 25\)"):
        Sampled(QUERIES, NUM_ITEMS, num_negatives=28)


@pytest.mark.parametrize(
    ("ks", "message"),
    [((2.5,), "not a list of whole numbers"), ((), "ks is empty"), ((11,), "k=11 is above 10, the items")],
)
def test_wrong_cuts_are_refused(ks, message):
    with pytest.raises(InputError, match=message):
        evaluate_sampled(Table(), Sampled(QUERIES, NUM_ITEMS, num_negatives=9), ks=ks)


def test_an_unknown_monitor_is_refused():
    with pytest.raises(
        InputError, match=r"choose.monitor='sampled/ndgc@10' is not measured; did you mean 'sampled/ndcg@10'"
    ):
        SampledMeasure(QUERIES, NUM_ITEMS, num_users=2, seed=0, monitor="sampled/ndgc@10")


def test_some_validation_users_are_a_random_sample():
    """Ids are in the order of the queries."""
    rows = ItemLists.from_lists([[user % 5] for user in range(200)])
    labels = ItemLists.from_lists([[5 + user % 7] for user in range(200)])
    queries, asked = Queries(np.arange(200), rows, labels, rows), []

    class Watched(Table):
        def score(self, query, items):
            asked.extend(query.users.tolist())
            return super().score(query, items)

    for seed in (0, 1):
        measure = SampledMeasure(queries, NUM_ITEMS, num_users=200, seed=seed, monitor="sampled/ndcg@5")
        asked.clear()
        measure(Watched(), 20)
        assert len(set(asked)) == 20
        assert abs(np.mean(asked) - 100) < 40


def test_validation_of_a_user_with_almost_all_items():
    """The fix names settings, because a training has no --sampled option; a seen label counts as one item, not two."""
    almost = replace(QUERIES, seen=ItemLists.from_lists([np.arange(NUM_ITEMS - 9)] * len(QUERIES)))
    measure = SampledMeasure(almost, NUM_ITEMS, num_users=3, seed=0, monitor="sampled/ndcg@5")
    assert "sampled/ndcg@5" in measure(Table())
    every = replace(QUERIES, seen=ItemLists.from_lists([np.arange(NUM_ITEMS)] * len(QUERIES)))
    with pytest.raises(InputError, match=r"leaves 0 of .* set choose.protocol=full and choose.monitor=removed/ndcg@20"):
        SampledMeasure(every, NUM_ITEMS, num_users=2, seed=0, monitor="sampled/ndcg@5")
    with pytest.raises(InputError, match=r"leaves 2 of 7 items to draw"):
        SampledMeasure(QUERIES, 7, num_users=3, seed=0, monitor="sampled/ndcg@5")


def test_wrong_input():
    with pytest.raises(InputError, match=r"num_negatives=0 is outside 1..25"):
        Sampled(QUERIES, NUM_ITEMS, num_negatives=0)


@pytest.mark.real_data
def test_popularity_has_the_figures_of_guidedrec():
    """Its 943 test events among 99 items: HR@10 .406 and NDCG@10 .219 published, .401 and .223 measured elsewhere."""
    folder = real_data("ml100k")
    dataset = Dataset.from_log(read_log(folder / "interactions.parquet"))
    test = pl.read_parquet(folder / "guidedrec_loo_test.parquet").sort("user_id")
    users = np.asarray(dataset.users.encode(test["user_id"].to_list()))
    items = np.asarray(dataset.items.encode(test["item_id"].to_list()))
    seen = [np.setdiff1d(dataset.histories[user], item) for user, item in zip(users, items, strict=True)]
    rows = ItemLists.from_lists(seen)
    queries = Queries(users, rows, ItemLists.from_lists(items[:, None]), rows)
    popular = PopularitySearcher(dataset.item_counts - np.bincount(items, minlength=dataset.num_items))
    measured = [evaluate_sampled(popular, Sampled(queries, dataset.num_items, seed=seed), ks=[10]) for seed in range(5)]
    means = {name: np.mean([values[name].mean() for values in measured]) for name in ("hit_rate@10", "ndcg@10")}
    assert means["hit_rate@10"] == pytest.approx(0.404, abs=0.012)
    assert means["ndcg@10"] == pytest.approx(0.221, abs=0.006)
