"""The tail gap of a model, against its definition."""

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.evaluation import probabilities as module
from beamwood.evaluation.gap import TailGap, tail_gap
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.queries import UserVectors
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.types import ItemLists, Query


class Table:
    """A searcher with fixed scores for each history of one item."""

    def __init__(self, table, kind="sequence"):
        self.table, self.kind, (self.num_users, self.num_items) = table.astype(np.float32), kind, table.shape

    def score(self, query, items):
        return np.take_along_axis(self.table[query.histories.items], items, axis=1)


class UserTable(Table):
    """A ranker's scorer with fixed scores for each user."""

    needs_users, width, config = True, 3, {}

    def score(self, users, histories, items, context=None):
        return np.take_along_axis(self.table[users], items, axis=1)


def asking(num_rows):
    """Users in another order than their histories, to detect mixed-up rows."""
    return Query(np.arange(num_rows)[::-1], ItemLists.from_lists([[row] for row in range(num_rows)]))


def plain_gaps(weights, tail):
    p = weights / weights.sum(axis=1, keepdims=True)
    return weights.shape[1] * (p[:, tail].mean(axis=1) - p.mean(axis=1))


@pytest.mark.parametrize("cells", [1, 20, 2**22])
@pytest.mark.parametrize("kind", ["sequence", "neighbours"])
def test_the_gap_is_a_difference_of_means(monkeypatch, cells, kind):
    monkeypatch.setattr(module, "_BLOCK_CELLS", cells)
    table = np.random.default_rng(0).normal(size=(7, 11)) * 3
    tail = np.arange(11) % 3 == 0
    got = tail_gap(Table(table, kind), asking(7), tail)
    weights = np.exp(table) if kind == "sequence" else np.maximum(table, 0)
    assert np.allclose(got.gaps, plain_gaps(weights, tail), atol=1e-5)
    document = got.as_dict()
    assert sum(document["histogram"]["counts"]) == 7
    assert document["quantiles"]["5%"] <= document["quantiles"]["50%"] <= document["quantiles"]["95%"]


@pytest.mark.parametrize("cells", [1, 2**22])
def test_users_and_rankers_have_a_gap_by_softmax(monkeypatch, cells):
    monkeypatch.setattr(module, "_BLOCK_CELLS", cells)
    rng = np.random.default_rng(1)
    users, vectors, tail = rng.normal(size=(7, 4)), rng.normal(size=(11, 4)), np.arange(11) < 3
    table = (users @ vectors.T).astype(np.float32)
    scorer = UserTable(table)
    mf = VectorSearcher(UserVectors(users), vectors)
    both = Blend([Part(PopularitySearcher(np.ones(11)), 0.0), Part(RankingSearcher(scorer))], num_candidates=100)
    for searcher in (mf, RankingSearcher(scorer), both):
        got = tail_gap(searcher, asking(7), tail)
        assert np.allclose(got.gaps, plain_gaps(np.exp(table[::-1]), tail), atol=1e-5), searcher.kind
        assert got.made_by == "softmax of the scores"


def test_a_uniform_model_has_gap_zero_and_no_tail_minus_one():
    tail = np.array([True, False, False, False])
    assert np.allclose(tail_gap(Table(np.ones((2, 4))), asking(2), tail).gaps, 0)
    none = Table(np.tile(np.where(tail, -50.0, 1.0), (2, 1)), "neighbours")
    assert np.allclose(tail_gap(none, asking(2), tail).gaps, -1)
    # Without scores there is nothing to evaluate.
    assert np.allclose(tail_gap(Table(-np.ones((2, 4)), "neighbours"), asking(2), tail).gaps, 0)
    for wrong, message in ((np.zeros(4, bool), "0 of 4 .* raise --tail"), (np.ones(4, bool), "4 of 4 .* lower --tail")):
        with pytest.raises(InputError, match=message):
            tail_gap(Table(np.ones((2, 4))), asking(2), wrong)


def test_a_tail_of_another_catalogue_and_no_query_are_refused():
    table = Table(np.ones((2, 4)))
    for query, tail in ((asking(2), np.arange(3) < 1), (asking(2), np.arange(5) < 1), (asking(0), np.arange(4) < 1)):
        with pytest.raises(InputError, match=r"queries, and a tail among . of 4 items"):
            tail_gap(table, query, tail)


@pytest.mark.parametrize("gaps", [[0.25, 0.25], [0.25, np.nextafter(0.25, 1)], [-1.0, -1.0 + 1e-15], [0.0, 5e-324]])
def test_gaps_that_are_nearly_equal_have_bins(gaps):
    drawn = TailGap(np.array(gaps), "softmax of the scores")
    counts = drawn.as_dict()["histogram"]
    assert sum(counts["counts"]) == 2
    assert np.all(np.diff(counts["edges"]) > 0)
