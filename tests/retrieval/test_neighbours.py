"""The search of counting methods returns the k best of all scores."""

import numpy as np
import pytest
from scipy import sparse

from beamwood.errors import InputError
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.top_k import top_k
from beamwood.types import ItemLists, Query, SearchOptions


def lists(rng, num_rows, num_items, longest):
    return ItemLists.from_lists([rng.integers(0, num_items, rng.integers(0, longest + 1)) for _ in range(num_rows)])


def searcher(rng, num_items, share, least=0):
    dense = rng.integers(least, 4, (num_items, num_items)) * (rng.random((num_items, num_items)) < share)
    # Few distinct values and frequencies, so that there are many ties.
    return NeighbourSearcher(
        sparse.csr_matrix(dense / 2), rng.integers(0, 3, num_items), decay=0.5, length=4
    ), dense.astype(np.float32) / 2


@pytest.mark.parametrize("num_items", [1, 7, 40])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.8])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("least", [0, -4])
def test_equals_the_best_of_all_scores(num_items, share, filtered, least):
    rng = np.random.default_rng(num_items)
    ours, dense = searcher(rng, num_items, share, least)
    histories, excluded, allowed = lists(rng, 300, num_items, 8), None, None
    if filtered:
        excluded, allowed = lists(rng, 300, num_items, 12), rng.random(num_items) < 0.6
    scores = np.zeros((len(histories), num_items))
    for row in range(len(histories)):
        for age, item in enumerate(histories[row][::-1][:4]):
            scores[row] += 0.5**age * dense[item]
    scores = np.where(scores != 0, scores, -1 / (1 + ours.popularity)).astype(np.float32)
    for k in (1, 5, num_items, num_items + 3):
        expected = top_k(scores, k, excluded=excluded, allowed=allowed)
        hits = ours.search(Query.of(histories), k, SearchOptions(excluded, allowed))
        np.testing.assert_array_equal(hits.items, expected.items)
        np.testing.assert_allclose(hits.scores, expected.scores, rtol=1e-6)
        np.testing.assert_array_equal(hits.scored, expected.scored)
    asked = np.tile(np.arange(-1, num_items), (300, 1))
    given = ours.score(Query.of(histories), asked)
    assert (given[:, 0] == -np.inf).all()
    np.testing.assert_allclose(given[:, 1:], scores, rtol=1e-6)


def test_no_histories_give_no_answers():
    ours, _ = searcher(np.random.default_rng(0), 5, 0.5)
    assert ours.search(Query.of(ItemLists.empty(0)), 3).items.shape == (0, 3)
    assert ours.score(Query.of(ItemLists.empty(0)), np.empty((0, 3), np.int64)).shape == (0, 3)


def test_numbers_that_are_not_finite_are_refused():
    for similarity, popularity, message in (
        (np.full((2, 2), np.nan), [1, 1], "similarity must hold finite numbers"),
        (np.ones((2, 2)), [1, -1], "popularity must hold finite numbers of 0 or more"),
    ):
        with pytest.raises(InputError, match=message):
            NeighbourSearcher(sparse.csr_matrix(similarity), np.array(popularity))


def test_rows_that_end_before_they_start_are_refused():
    stored = {"data": np.ones(3, np.float32), "popularity": np.ones(2, np.float32)}
    stored |= {"indices": np.array([0, 1, 0], np.int32), "indptr": np.array([0, 3, 0], np.int32)}
    with pytest.raises(InputError, match="a row ends before it begins"):
        NeighbourSearcher.restore({"decay": 1.0, "length": 3, "seen": "counted"}, stored)


@pytest.mark.parametrize("seen", ["counted", "first", "last"])
@pytest.mark.parametrize("least", [0, -4])
def test_scores_of_few_rows_equal_those_of_many(monkeypatch, seen, least):
    """The paths by numpy and scipy are bitwise equal, with repeats, empty histories and items without neighbours."""
    rng = np.random.default_rng(5)
    for num_items, share in ((1, 0.0), (40, 0.1), (40, 0.9)):
        inner, _ = searcher(rng, num_items, share, least)
        own = NeighbourSearcher(inner.similarity * 0.37, inner.popularity, decay=0.8, length=6, seen=seen)
        query = Query.of(lists(rng, 30, num_items, 9))
        items = rng.integers(-1, num_items, (30, 12))
        many = own.score(query, items)
        few = [own.score(query.take(np.array([row])), items[row : row + 1])[0] for row in range(30)]
        assert np.array_equal(np.array(few), many)


@pytest.mark.parametrize("items", [[[2**32], [0]], [[5], [0]], [[-2], [0]], [[0]], [[0], [0], [0]], [0, 0]], ids=str)
def test_items_to_score_that_do_not_fit_are_refused(items):
    query = Query.of(ItemLists.from_lists([[1], [2]]))
    for tested in (searcher(np.random.default_rng(0), 5, 0.5)[0], PopularitySearcher(np.arange(5))):
        with pytest.raises(InputError, match=r"items (holds an index outside|has shape)"):
            tested.score(query, np.array(items))
