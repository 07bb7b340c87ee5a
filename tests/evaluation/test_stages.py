"""The decomposition: proposition 4.1 as an identity, corollary 4.2 against the errors themselves, and loops."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.cli.stages import cut_in_words
from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.evaluation import stages
from beamwood.evaluation.stages import decompose
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.retrieval.top_k import top_k
from beamwood.types import ItemLists, Query, QueryNeeds, SearchOptions

NUM_ITEMS = 20


class Random:
    """A retriever and a ranker's scorer of fixed noise by user."""

    kind = "random"
    needs_users, needs, config = True, QueryNeeds(users=True, num_users=50), {}
    num_items, num_users, width = NUM_ITEMS, 50, 1

    def __init__(self, seed):
        self.table = np.random.default_rng(seed).random((50, NUM_ITEMS)).astype(np.float32)

    def search(self, query, k, options):
        return top_k(self.table[query.users], k, excluded=options.excluded, allowed=options.allowed)

    def export(self): ...
    @classmethod
    def restore(cls): ...

    def score(self, users, histories, items, context=None):
        return np.take_along_axis(self.table[users], items, axis=1)


def staged(retriever, ranker, *, num_candidates):
    """The study's two stages: the ranker's score alone orders what the retriever brings."""
    return Blend([Part(retriever, 0.0), Part(RankingSearcher(ranker))], num_candidates=num_candidates)


def case(seed):
    rng = np.random.default_rng(seed)
    users = np.sort(rng.permutation(50)[:12])
    rows = [rng.permutation(NUM_ITEMS) for _ in users]
    queries = Queries(
        users,
        ItemLists.from_lists([row[:3] for row in rows]),
        ItemLists.from_lists([np.sort(row[3 : 3 + rng.integers(0, 4)]) for row in rows]),
        ItemLists.from_lists([row[:3] for row in rows]),
    )
    return queries, Random(seed + 1), Random(seed + 2)


@given(seed=st.integers(0, 10_000), num_candidates=st.integers(2, 20), k=st.integers(1, 5))
def test_the_parts_make_the_whole(seed, num_candidates, k):
    queries, retriever, ranker = case(seed)
    if not queries.labels.lengths.any():
        return
    searcher = staged(retriever, ranker, num_candidates=num_candidates)
    report = decompose(searcher, queries, ks=[min(k, num_candidates)], seed=seed, one_stage_queries=6)
    cut = report.cuts[0]
    json.dumps(report.as_dict(), allow_nan=False)
    assert np.isclose(cut.total_error, report.miss + (cut.rank_error or 0) * (1 - report.miss))
    assert (cut.rank_error is None) == (report.miss == 1)
    assert np.isclose(report.ceiling, 1 - report.miss)
    if report.one_stage_queries and cut.one_stage_rank_error is not None:
        total = cut.one_stage_miss + cut.one_stage_rank_error * (1 - cut.one_stage_miss)
        assert cut.two_stages_better == (total <= cut.one_stage_error + 1e-12)
        assert (cut.bound is None) == (cut.one_stage_rank_error == 1)
        if cut.bound is not None and abs(total - cut.one_stage_error) > 1e-9:
            assert cut.two_stages_better == (cut.one_stage_miss <= cut.bound)


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_errors_in_loops(monkeypatch, rows):
    """In blocks of any number of rows, with equal scores, the lower item first, and seen items that score best."""
    monkeypatch.setattr(stages, "_BLOCK_CELLS", rows * NUM_ITEMS)
    queries, retriever, ranker = case(3)
    ranker.table = ranker.table.round()
    ranker.table[queries.users[queries.seen.rows], queries.seen.items] = 2
    searcher = staged(retriever, ranker, num_candidates=6)
    report = decompose(searcher, queries, ks=(1, 3), one_stage_queries=100)
    missed, wrong, own, alone, pairs = 0, 0, 0, 0, 0
    for query, user in enumerate(queries.users):
        free = [i for i in range(NUM_ITEMS) if i not in queries.seen[query]]
        retrieved = sorted(free, key=lambda i, u=user: -retriever.table[u, i])[:6]
        ranked = sorted(retrieved, key=lambda i, u=user: (-ranker.table[u, i], i))
        whole = sorted(free, key=lambda i, u=user: (-ranker.table[u, i], i))
        for label in queries.labels[query]:
            pairs += 1
            missed += label not in retrieved
            wrong += label not in ranked[:3]
            own += label not in retrieved[:3]
            alone += label not in whole[:3]
    cut = report.cuts[1]
    assert report.pairs == pairs
    assert np.allclose(
        [report.miss, cut.total_error, cut.retriever_error, cut.one_stage_error],
        np.array([missed, wrong, own, alone]) / pairs,
    )
    assert report.ranking_scored == 6
    assert report.retrieval_seconds > 0


def test_without_a_hit_the_ranker_has_no_error():
    """Shares of no labels are none; 0 would praise the ranker."""
    queries, retriever, ranker = case(3)
    retriever.table[queries.users[queries.labels.rows], queries.labels.items] = -9.0
    report = decompose(staged(retriever, ranker, num_candidates=2), queries, ks=(1,), one_stage_queries=6)
    (cut,) = report.cuts
    assert (report.miss, cut.rank_error, cut.one_stage_rank_error, cut.bound) == (1.0, None, None, None)
    assert (cut.total_error, cut.one_stage_miss) == (1.0, 1.0)
    assert cut_in_words(cut)[0].startswith("  at 1: no label is a hit, total error 1.0000")


def test_a_searcher_of_one_stage_is_refused():
    queries, retriever, _ = case(3)
    with pytest.raises(InputError, match="Random has one stage"):
        decompose(retriever, queries)
    with pytest.raises(InputError, match="Blend has one stage"):
        decompose(Blend([Part(retriever)]), queries)


def test_one_stage_is_bounded_in_queries_and_in_memory(monkeypatch):
    queries, retriever, ranker = case(3)
    searcher = staged(retriever, ranker, num_candidates=6)
    judged, asked = int((queries.labels.lengths > 0).sum()), []

    def score(users, histories, items, context=None):
        if items.shape[1] == NUM_ITEMS:
            asked.append(len(items))
        return np.take_along_axis(ranker.table[users], items, axis=1)

    monkeypatch.setattr(ranker, "score", score)
    monkeypatch.setattr(stages, "_BLOCK_CELLS", 2 * NUM_ITEMS)
    for most_pairs, chosen, taken in (
        (3 * NUM_ITEMS + 1, None, 3),
        (9, None, 0),
        (9, 5, 5),
        (9, 0, 0),
        (9, 99, judged),
    ):
        monkeypatch.setattr(stages, "_ONE_STAGE_PAIRS", most_pairs)
        asked.clear()
        report = decompose(searcher, queries, ks=[1], one_stage_queries=chosen)
        assert report.one_stage_queries == sum(asked) == taken
        assert max(asked, default=0) <= 2
        assert (report.cuts[0].one_stage_error is None) == (taken == 0)
    with pytest.raises(InputError, match="one_stage_queries=-1 is below 0"):
        decompose(searcher, queries, ks=[1], one_stage_queries=-1)


def test_a_ranker_behind_everything_is_the_ranker():
    queries, retriever, ranker = case(5)
    searcher = staged(retriever, ranker, num_candidates=NUM_ITEMS)
    query = Query(queries.users, queries.histories)
    hits = searcher.search(query, 5, SearchOptions(queries.seen))
    best = top_k(ranker.table[queries.users], 5, excluded=queries.seen)
    assert np.array_equal(hits.items, best.items)
    report = decompose(searcher, queries, ks=[1], one_stage_queries=100)
    assert report.miss == 0
    assert report.cuts[0].total_error == report.cuts[0].one_stage_error


def test_more_candidates_than_items_are_not_asked_for(monkeypatch):
    queries, retriever, ranker = case(4)
    searcher, asked = staged(retriever, ranker, num_candidates=3 * NUM_ITEMS), []
    search = searcher.search
    monkeypatch.setattr(searcher, "search", lambda query, k, options: asked.append(k) or search(query, k, options))
    assert decompose(searcher, queries, ks=(1, 5)).miss == 0
    assert set(asked) == {NUM_ITEMS}


def test_wrong_cuts():
    queries, retriever, ranker = case(0)
    searcher = staged(retriever, ranker, num_candidates=4)
    for ks, words in (
        ((1, 5), "k=5 is above 4"),
        ((1.5,), "not a list of whole numbers"),
        ((0,), "below 1"),
        ((), "empty"),
    ):
        with pytest.raises(InputError, match=words):
            decompose(searcher, queries, ks=ks)
