"""Two stages: what the ranker orders, what follows it, and that the best places do not depend on k."""

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.retrieval.ranked import RankingSearcher, TwoStageSearcher
from beamwood.retrieval.scorers import restore_scorer
from beamwood.types import ItemLists, Query, SearchOptions

USERS, ITEMS, CANDIDATES = 12, 60, 10


def scorer(seed):
    rng = np.random.default_rng(seed)
    arrays = {"users": rng.normal(size=(USERS + 1, 4)), "items": rng.normal(size=(ITEMS, 4))}
    return restore_scorer({"kind": "graphrec"}, {name: array.astype(np.float32) for name, array in arrays.items()})


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    query = Query(np.arange(USERS), ItemLists.empty(USERS))
    excluded = ItemLists.from_lists([rng.permutation(ITEMS)[:5] for _ in range(USERS)])
    allowed = rng.random(ITEMS) < 0.7
    return TwoStageSearcher(RankingSearcher(scorer(1)), scorer(2), num_candidates=CANDIDATES), query, excluded, allowed


@pytest.mark.parametrize("k", [3, CANDIDATES, CANDIDATES + 1, 30, ITEMS])
def test_the_ranker_orders_the_candidates_whatever_k_is(case, k):
    searcher, query, excluded, allowed = case
    best = searcher.search(query, CANDIDATES, SearchOptions(excluded, allowed))
    found = searcher.search(query, k, SearchOptions(excluded, allowed))
    both = min(k, CANDIDATES)
    assert np.array_equal(found.items[:, :both], best.items[:, :both])
    assert np.array_equal(found.scores[:, :both], searcher.score(query, best.items[:, :both]))
    own = searcher.retriever.search(query, max(k, CANDIDATES), SearchOptions(excluded, allowed))
    assert np.array_equal(found.items[:, both:], own.items[:, CANDIDATES : max(k, CANDIDATES)])
    assert np.array_equal(found.scored, own.scored + CANDIDATES)
    real = found.items >= 0
    assert np.array_equal(real.sum(axis=1), np.minimum(k, (own.items >= 0).sum(axis=1)))
    assert np.array_equal(np.isfinite(found.scores), real)
    assert (found.scores[:, 1:] <= found.scores[:, :-1]).all()
    # What follows is never tied, so that no order of ties is broken.
    assert (found.scores[:, both:] < found.scores[:, both - 1 : -1])[real[:, both:]].all()


def test_fewer_allowed_than_candidates(case):
    searcher, query, _, _ = case
    allowed = np.arange(ITEMS) < 4
    found = searcher.search(query, 25, SearchOptions(allowed=allowed))
    assert (np.sort(found.items[:, :4], axis=1) == np.arange(4)).all()
    assert (found.items[:, 4:] == -1).all()
    assert np.isneginf(found.scores[:, 4:]).all()


@pytest.mark.parametrize("weight", [0.5, 3.0, 1e6])
def test_the_retrievers_score_counts_beside_the_rankers(case, weight):
    plain, query, excluded, _ = case
    searcher = TwoStageSearcher(plain.retriever, plain.scorer, num_candidates=CANDIDATES, retriever_weight=weight)
    brought = plain.retriever.search(query, 2 * CANDIDATES, SearchOptions(excluded))
    found = searcher.search(query, 2 * CANDIDATES, SearchOptions(excluded))
    first = brought.items[:, :CANDIDATES]
    scores = plain.score(query, first).astype(float) + weight * brought.scores[:, :CANDIDATES]
    for row in range(USERS):
        expected = first[row][np.argsort(-scores[row], kind="stable")]
        assert found.items[row, :CANDIDATES].tolist() == expected.tolist()
    assert np.allclose(found.scores[:, :CANDIDATES], -np.sort(-scores, axis=1), rtol=1e-5)
    assert np.array_equal(found.items[:, CANDIDATES:], brought.items[:, CANDIDATES:])
    if weight == 1e6:
        assert np.array_equal(found.items, brought.items)
    again = TwoStageSearcher.restore(*searcher.export())
    assert np.array_equal(again.search(query, 7, SearchOptions(excluded)).items, found.items[:, :7])


@pytest.mark.parametrize("weight", [-50.0, -0.3, 50.0])
def test_a_weight_for_what_the_history_holds(case, weight):
    plain, query, excluded, _ = case
    histories = plain.retriever.search(query, CANDIDATES).items[:, ::3]
    query = Query(query.users, ItemLists.from_lists(list(histories)))
    searcher = TwoStageSearcher(plain.retriever, plain.scorer, num_candidates=CANDIDATES, repeat_weight=weight)
    found = searcher.search(query, CANDIDATES, SearchOptions(excluded))
    had = np.array([np.isin(items, history) for items, history in zip(found.items, histories, strict=True)])
    expected = plain.score(query, found.items) + np.float32(weight) * had
    assert np.allclose(found.scores, expected, rtol=1e-5)
    assert (found.scores[:, 1:] <= found.scores[:, :-1]).all()
    brought = plain.retriever.search(query, CANDIDATES, SearchOptions(excluded)).items
    assert np.array_equal(np.sort(found.items, axis=1), np.sort(brought, axis=1))
    assert TwoStageSearcher.restore(*searcher.export()).repeat_weight == weight


def test_a_folder_of_before_has_the_rankers_score_alone(case):
    searcher = case[0]
    config, arrays = searcher.export()
    del config["retriever_weight"], config["repeat_weight"]
    restored = TwoStageSearcher.restore(config, arrays)
    assert restored.retriever_weight == restored.repeat_weight == 0


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_wrong_weight_is_refused(case, weight):
    with pytest.raises(InputError, match="retriever_weight"):
        TwoStageSearcher(case[0].retriever, case[0].scorer, retriever_weight=weight)
