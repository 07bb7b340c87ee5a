"""The market's probabilities match its samples, and the Bayes searcher ranks by them."""

import numpy as np
import pytest

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import BayesSearcher, MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.types import ItemLists, Query, SearchOptions

TINY = MarketConfig(
    num_users=40_000,
    num_items=4,
    num_groups=1,
    categories_per_group=2,
    num_tastes=3,
    min_events=4,
    max_events=4,
    stay=0.7,
)


def test_probabilities_match_the_draws():
    market = make_market(TINY, seed=1)
    events = market.log["item_id"].to_numpy().reshape(-1, 4)
    first, counts = np.unique(events[:, :2], axis=0, return_counts=True)
    for history in first[np.argsort(-counts)[:4]]:
        after = events[(events[:, :2] == history).all(1), 2:]
        lists = ItemLists.from_lists([history])
        p = market.next_probabilities(lists)[0]
        assert np.isclose(p.sum(), 1)
        observed = np.bincount(after[:, 0], minlength=4)
        assert ((observed - len(after) * p) ** 2 / (len(after) * p)).sum() < 16.3
        appears = market.appearance_probabilities(lists, np.array([2]))[0]
        share = np.array([(after == item).any(1).mean() for item in range(4)])
        assert np.all(np.abs(share - appears) < 4 * np.sqrt(appears * (1 - appears) / len(after)) + 1e-9)


def test_appearance_equals_brute_force():
    market = make_market(TINY.model_copy(update={"num_users": 5}), seed=2)
    lists = ItemLists.from_lists([[0, 1, 1], [], [3]])
    got = market.appearance_probabilities(lists, np.array([3, 2, 1]))
    for row, horizon in enumerate([3, 2, 1]):
        for item in range(4):
            belief, away = market.beliefs(lists)[row], 1.0
            for _ in range(horizon):
                belief = belief * (1 - market.emission[:, item])
                away = belief.sum()
                belief = belief @ market.drift
            assert np.isclose(got[row, item], 1 - away)


def test_same_seed_same_market():
    small = MarketConfig(num_users=50, num_items=60)
    assert make_market(small, seed=3).log.equals(make_market(small, seed=3).log)
    assert not make_market(small, seed=3).log.equals(make_market(small, seed=4).log)


def test_bayes_beats_popularity_by_far():
    market = make_market(MarketConfig(num_users=600, num_items=300), seed=0)
    data = Dataset.from_log(read_log(market.log), market.item_frame)
    split = disjoint_users(data)
    popular = np.argsort(-split.train.item_counts)[:20]
    hits = BayesSearcher(market).search(Query.of(split.test.histories), 20)
    bayes = np.mean([np.isin(row, labels).mean() for row, labels in zip(hits.items, split.test.labels, strict=True)])
    base = np.mean([np.isin(popular, labels).mean() for labels in split.test.labels])
    assert bayes > 1.5 * base


def test_bayes_beats_cooccurrence_clearly():
    market = make_market(MarketConfig(num_users=1500, num_items=300), seed=5)
    split = disjoint_users(Dataset.from_log(read_log(market.log), market.item_frame))
    taken = np.zeros((len(split.dataset.users), 300))
    taken[split.train.histories.rows, split.train.histories.items] = 1
    together = taken.T @ taken
    norm = np.sqrt(np.maximum(np.diag(together), 1))
    cosine = together / norm / norm[:, None]
    asked = np.zeros((len(split.test), 300))
    recent = split.test.histories.last(10)
    np.add.at(asked, (recent.rows, recent.items), 1)
    rival = np.argsort(-(asked @ cosine), axis=1)[:, :20]
    bayes = BayesSearcher(market).search(Query.of(split.test.histories), 20).items

    def precision(items_BK):
        return np.mean([np.isin(row, labels).mean() for row, labels in zip(items_BK, split.test.labels, strict=True)])

    assert precision(bayes) > 1.08 * precision(rival)


def test_beliefs_equal_enumeration_of_all_paths():
    market = make_market(TINY.model_copy(update={"num_users": 5}), seed=7)
    history = [2, 0, 1]
    joint = np.zeros(3)
    for path in np.ndindex(3, 3, 3, 3):
        p = market.start[path[0]]
        for step, item in enumerate(history):
            p *= market.emission[path[step], item] * market.drift[path[step], path[step + 1]]
        joint[path[-1]] += p
    assert np.allclose(market.beliefs(ItemLists.from_lists([history]))[0], joint / joint.sum(), rtol=1e-12)


def test_distributions_sum_to_one():
    market = make_market(MarketConfig(num_users=50), seed=0)
    for distribution in (market.start[None], market.drift, market.emission):
        assert (distribution >= 0).all()
        assert np.allclose(distribution.sum(axis=1), 1, rtol=1e-12)
    histories = Dataset.from_log(read_log(market.log)).histories
    assert np.allclose(market.next_probabilities(histories).sum(axis=1), 1, rtol=1e-12)


def test_searcher_masks_and_pads():
    market = make_market(MarketConfig(num_users=5, num_items=30), seed=0)
    searcher = BayesSearcher(market)
    allowed = np.zeros(30, bool)
    allowed[[3, 4]] = True
    hits = searcher.search(
        Query.of(ItemLists.from_lists([[1, 2]])), 3, SearchOptions(ItemLists.from_lists([[3]]), allowed)
    )
    assert hits.items.tolist() == [[4, -1, -1]]
    assert searcher.score(Query.of(ItemLists.from_lists([[1]])), np.array([[4, -1]]))[0, 1] == -np.inf


def test_wrong_configuration():
    with pytest.raises(InputError, match="max_events=20"):
        make_market(MarketConfig(max_events=20))
    with pytest.raises(InputError, match="num_items=5 is below"):
        make_market(MarketConfig(num_items=5))
