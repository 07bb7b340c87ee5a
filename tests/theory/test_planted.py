"""A market with known probabilities: items that only rectified labels find, in theory and after training."""

import numpy as np
import polars as pl
import pytest

from beamwood.data import Dataset, disjoint_users, read_log
from beamwood.data.markets.synthetic import MarketConfig, make_market
from beamwood.errors import InputError
from beamwood.methods.dtr import METHOD, Config
from beamwood.theory.heap import bayes_regret
from beamwood.theory.planted import missed, missed_in_theory
from beamwood.tree import Shape, Tree, random_tree
from beamwood.types import Query, SearchOptions

NUM_ITEMS, K = 32, 4


class NextItem:
    """The market as an estimator: the exact probability of the next item."""

    def __init__(self, market):
        self.market, self.num_items = market, market.emission.shape[1]

    def score(self, query, items_BM):
        return np.take_along_axis(self.market.next_probabilities(query.histories), np.asarray(items_BM), axis=1)


@pytest.fixture(scope="module")
def market():
    """A market of few tastes, and a tree by category with strong items among weak ones and medium ones together."""
    config = MarketConfig(
        num_users=2000,
        num_items=NUM_ITEMS,
        num_groups=1,
        categories_per_group=1,
        num_tastes=2,
        min_events=8,
        max_events=20,
        stay=0.98,
        popularity_exponent=0.5,
        category_focus=0.0,
        item_focus=0.2,
    )
    return make_market(config, seed=0)


def hard_split(market):
    rank = np.argsort(np.argsort(-market.emission.mean(axis=0)))
    group = np.where(rank < 4, rank, np.where(rank < 20, 4 + (rank - 4) % 4, (rank - 20) % 4))
    frame = market.item_frame.with_columns(pl.Series("category", [f"group {number}" for number in group]))
    return disjoint_users(Dataset.from_log(read_log(market.log), frame), seed=0)


@pytest.mark.slow
def test_training_with_summed_labels_misses_what_rectified_labels_find(market):
    split = hard_split(market)
    histories = split.test.histories.last(6)
    eta = market.next_probabilities(histories)
    misses = {}
    for labels in ("summed", "rectified"):
        config = Config(
            **{
                "tree.start": "category",
                "tree.branching": 2,
                "start.scores": "random",
                "model.width": 8,
                "model.attention_hidden": 8,
                "model.windows": (3, 2, 1),
                "model.mlp": (32, 16),
                "examples.num_targets": 1,
                "examples.horizon": 1,
                "loss.num_negatives": NUM_ITEMS,
                "examples.min_history": 2,
                "loop.batch_size": 128,
                "optimiser.bf16": False,
                "loop.max_steps": 700,
                "loop.evaluate_every": 350,
                "choose.monitor": "kept/ndcg@20",
                "choose.validation_users": 50,
                "loss.labels": labels,
            },
        )
        estimator = NextItem(market) if labels == "rectified" else None
        searcher = METHOD.fitted(split, config, seed=0, progress=False, estimator=estimator).searcher
        misses[labels] = missed(eta, searcher.search(Query.of(histories), K, SearchOptions(beam_width=K)).items)
        misses[f"{labels}, exact"] = missed(eta, searcher.exact(Query.of(histories), K).items)
        theory = missed_in_theory(searcher.tree, eta, K)
    assert theory["rectified"].items == 0
    assert theory["summed"].items > 0.3
    # The model has small errors, so both are compared with its own exact search.
    assert misses["summed"].items > misses["summed, exact"].items + 0.15
    assert misses["rectified"].items < misses["rectified, exact"].items + 0.03
    assert misses["rectified"].probability < misses["summed"].probability / 2


def test_theory_on_random_trees():
    rng = np.random.default_rng(0)
    tree = random_tree(40, rng, branching=3)
    eta = rng.dirichlet(np.full(40, 0.3), size=20)
    theory = missed_in_theory(tree, eta, 5)
    assert theory["rectified"].items == 0
    assert abs(theory["rectified"].probability) < 1e-12
    assert theory["summed"].probability > 0


def test_an_empty_answer_slot_does_not_count():
    tree = Tree.of_order(np.arange(5), Shape(2, 2, 3))  # Three of its leaves are empty.
    assert missed_in_theory(tree, np.array([[0.5, 0.5, 0, 0, 0]]), 3)["rectified"].probability == 0
    whole = missed_in_theory(tree, np.array([[0.3, 0.2, 0.2, 0.2, 0.1]]), 8)
    assert whole["summed"].probability == pytest.approx(0)
    assert whole["summed"].items == 0
    assert bayes_regret(np.array([0.1, 0.2, 0.7]), np.array([2, -1]), 2) == pytest.approx(0.2)


def test_missed_counts_items_and_probability():
    eta = np.array([[0.5, 0.3, 0.2, 0.0]])
    assert missed(eta, np.array([[0, 1]])).items == 0
    half = missed(eta, np.array([[0, 3]]))
    assert half.items == 0.5
    assert np.isclose(half.probability, 0.3)
    with pytest.raises(InputError, match="give one each"):
        missed(eta, np.zeros((2, 2), int))
    with pytest.raises(InputError, match=r"shape \(1, 0\); give \[rows, k\]"):
        missed(eta, np.zeros((1, 0), int))
    with pytest.raises(InputError, match="index 4 of 4 items"):
        missed(eta, np.array([[0, 4]]))
    with pytest.raises(InputError, match="k=0 is below 1"):
        bayes_regret(eta[0], np.array([0]), 0)


def test_of_equally_probable_items_none_is_missed():
    eta = np.array([[0.2, 0.3, 0.2, 0.2, 0.1]])
    assert missed(eta, np.array([[1, 3]])).items == missed(eta, np.array([[1, 0]])).items == 0
    assert missed(eta, np.array([[2, 3]])).items == missed(eta, np.array([[1, 4]])).items == 0.5
    # Places without an item of their own.
    assert missed(eta, np.array([[1, -1]])).items == missed(eta, np.array([[1, 1]])).items == 0.5
    rng = np.random.default_rng(0)
    flat = rng.integers(1, 4, (20, 40)).astype(float)
    assert missed_in_theory(random_tree(40, rng, branching=3), flat, 5)["rectified"].items == 0


def test_a_repeated_item_counts_once():
    assert bayes_regret(np.array([0.6, 0.3, 0.1]), np.array([0, 0]), 2) == pytest.approx(0.3)
