"""Blends of two stages: ranked candidates, the items after them, and top positions that do not depend on k."""

import re

import numpy as np
import pytest

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.searchers.blend import Blend, Part, sole_part
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.retrieval.searchers.scorers import restore_scorer
from beamwood.retrieval.top_k import top_k
from beamwood.types import ItemLists, Query, QueryNeeds, SearchOptions

USERS, ITEMS, CANDIDATES = 12, 60, 10


def scorer(seed):
    rng = np.random.default_rng(seed)
    arrays = {"users": rng.normal(size=(USERS + 1, 4)), "items": rng.normal(size=(ITEMS, 4))}
    return restore_scorer({"kind": "graphrec"}, {name: array.astype(np.float32) for name, array in arrays.items()})


def staged(weight=0.0, seen_weight=0.0):
    parts = [Part(RankingSearcher(scorer(1)), weight), Part(RankingSearcher(scorer(2)))]
    return Blend(parts, num_candidates=CANDIDATES, seen_weight=seen_weight)


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    query = Query(np.arange(USERS), ItemLists.empty(USERS))
    excluded = ItemLists.from_lists([rng.permutation(ITEMS)[:5] for _ in range(USERS)])
    allowed = rng.random(ITEMS) < 0.7
    return staged(), query, excluded, allowed


@pytest.mark.parametrize("k", [3, CANDIDATES, CANDIDATES + 1, 30, ITEMS])
def test_the_ranker_orders_the_candidates_for_every_k(case, k):
    searcher, query, excluded, allowed = case
    best = searcher.search(query, CANDIDATES, SearchOptions(excluded, allowed))
    found = searcher.search(query, k, SearchOptions(excluded, allowed))
    both = min(k, CANDIDATES)
    assert np.array_equal(found.items[:, :both], best.items[:, :both])
    assert np.array_equal(found.scores[:, :both], searcher.score(query, best.items[:, :both]))
    own = searcher.first.search(query, max(k, CANDIDATES), SearchOptions(excluded, allowed))
    assert np.array_equal(found.items[:, both:], own.items[:, CANDIDATES : max(k, CANDIDATES)])
    assert np.array_equal(found.scored, own.scored + CANDIDATES)
    real = found.items >= 0
    assert np.array_equal(real.sum(axis=1), np.minimum(k, (own.items >= 0).sum(axis=1)))
    assert np.array_equal(np.isfinite(found.scores), real)
    assert (found.scores[:, 1:] <= found.scores[:, :-1]).all()
    # Later items are never tied, so the order of ties is not broken.
    assert (found.scores[:, both:] < found.scores[:, both - 1 : -1])[real[:, both:]].all()


def test_fewer_allowed_than_candidates(case):
    searcher, query, _, _ = case
    allowed = np.arange(ITEMS) < 4
    found = searcher.search(query, 25, SearchOptions(allowed=allowed))
    assert (np.sort(found.items[:, :4], axis=1) == np.arange(4)).all()
    assert (found.items[:, 4:] == -1).all()
    assert np.isneginf(found.scores[:, 4:]).all()


@pytest.mark.parametrize("weight", [0.5, 3.0, 1e6])
def test_scores_of_retriever_and_ranker_are_combined(case, weight):
    plain, query, excluded, _ = case
    searcher = staged(weight)
    brought = plain.first.search(query, 2 * CANDIDATES, SearchOptions(excluded))
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
    again = Blend.restore(*searcher.export())
    assert np.array_equal(again.search(query, 7, SearchOptions(excluded)).items, found.items[:, :7])


@pytest.mark.parametrize("weight", [-50.0, -0.3, 50.0])
def test_a_weight_for_seen_items(case, weight):
    plain, query, excluded, _ = case
    histories = plain.first.search(query, CANDIDATES).items[:, ::3]
    query = Query(query.users, ItemLists.from_lists(list(histories)))
    searcher = staged(seen_weight=weight)
    found = searcher.search(query, CANDIDATES, SearchOptions(excluded))
    own = plain.first.search(query, CANDIDATES, SearchOptions(query.histories.union(excluded))).items
    for row, history in enumerate(histories):
        had = np.setdiff1d(history, excluded[row])
        candidates = np.concatenate([own[row], had])[None]
        (total,) = plain.score(query.take(np.array([row])), candidates)
        total = total + np.float32(weight) * np.isin(candidates[0], had)
        best = np.lexsort((candidates[0], -total))[:CANDIDATES]
        assert found.items[row].tolist() == candidates[0, best].tolist()
        assert np.allclose(found.scores[row], total[best], rtol=1e-5)
        assert (np.isin(had, found.items[row]).all() and weight == 50) or weight < 50
    assert Blend.restore(*searcher.export()).seen_weight == weight
    # If seen items are removed, their weight has no effect.
    removed = SearchOptions(query.histories.union(excluded))
    for ours, theirs in zip(*(each.search(query, 25, removed).scores for each in (searcher, plain)), strict=True):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("weight", [-1.0, np.nan, np.inf])
def test_a_wrong_weight_is_refused(weight):
    with pytest.raises(InputError, match=re.escape(f"weight={weight} must be 0")):
        staged(weight)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf])
def test_a_weight_of_another_type_is_refused(weight):
    with pytest.raises(InputError, match="seen_weight"):
        staged(seen_weight=weight)


def test_invalid_blends_are_refused():
    with pytest.raises(InputError, match="num_candidates=0 is below 1"):
        Blend([Part(Table(1))], num_candidates=0)
    with pytest.raises(InputError, match="no part has a weight above 0"):
        Blend([Part(Table(1), 0.0)])
    with pytest.raises(ArtefactError, match=f"the first part has {ITEMS} items, another 7; fit both on one log"):
        Blend([Part(Table(1)), Part(PopularitySearcher(np.ones(7)))], num_candidates=5)


class Table:
    """A searcher of random scores by the newest item of a history; the last row is for empty histories."""

    kind, needs, num_items = "table", QueryNeeds(), ITEMS

    def __init__(self, seed, *, below_0=False):
        # Multiples of 1/8, whose sums are exact, so that ties are exact too.
        table = (8 * np.random.default_rng(seed).normal(size=(ITEMS + 1, ITEMS))).round().astype(np.float32) / 8
        self.table = -np.abs(table) - 0.125 if below_0 else table

    def rows(self, query):
        return self.table[[int(history[-1]) if len(history) else ITEMS for history in query.histories]]

    def search(self, query, k, options=SearchOptions()):
        return top_k(self.rows(query), k, excluded=options.excluded, allowed=options.allowed)

    def score(self, query, items):
        scores = np.take_along_axis(self.rows(query), np.maximum(items, 0).astype(np.int64), axis=1)
        return np.where(items < 0, np.float32(-np.inf), scores)


def in_loops(blend, query, k, excluded, allowed):
    """The items and scores of a blend, computed in loops over rows and items."""
    for row, history in enumerate(query.histories):
        one, seen = query.take(np.array([row])), set(history.tolist())
        free = [item for item in range(ITEMS) if allowed[item] and item not in excluded[row]]
        if blend.fallback is not None and not seen and blend.parts[0].gate == "history":
            best = sorted(free, key=lambda item: (-blend.fallback.counts[item], item))[:k]
            yield best, [0.0] * len(best)
            continue

        def of(part, item, one=one):
            (score,) = part.searcher.score(one, np.array([[item]]))[0].astype(float)
            return np.log(np.exp(score) / (1 - np.exp(score))) if part.link == "log-odds" else score

        def total(item, seen=seen):
            open_parts = [part for part in blend.parts if seen or part.gate == "always"]
            return sum(part.weight * of(part, item) for part in open_parts) + blend.seen_weight * (item in seen)

        apart = seen if blend.seen_weight else set()
        brought = sorted(set(free) - apart, key=lambda item: (-of(blend.parts[0], item), item))
        judged = k if blend.num_candidates is None else blend.num_candidates
        candidates = brought[:judged] + [item for item in free if item in apart]
        best = sorted(candidates, key=lambda item: (-round(total(item), 4), item))
        rest, lowest = brought[judged : max(k, judged)], total(best[-1]) if best else 0
        scores = [total(item) for item in best] + [lowest - place - 1 for place in range(len(rest))]
        yield (best + rest)[:k], scores[:k]


PARTS = {
    "one": [Part(Table(1))],
    "weighed": [Part(Table(1), 2.0), Part(Table(2))],
    "not the first's score": [Part(Table(1), 0.0), Part(Table(2))],
    "three": [Part(Table(1), 0.5), Part(Table(2), 0.0), Part(Table(3), 3.0)],
    "log-probabilities": [Part(Table(1, below_0=True), link="log-odds"), Part(Table(2))],
    "gates": [Part(Table(1), gate="history"), Part(Table(2), gate="history")],
}


@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("seen_weight", [0.0, -1024.0, 1.5])
@pytest.mark.parametrize(("num_candidates", "k"), [(None, 7), (9, 4), (9, 20), (ITEMS, ITEMS + 3)])
@pytest.mark.parametrize("parts", PARTS)
def test_a_blend_equals_loops(parts, num_candidates, k, seen_weight, fallback):
    rng = np.random.default_rng(0)
    popular = PopularitySearcher(rng.integers(0, 9, ITEMS)) if fallback else None
    blend = Blend(PARTS[parts], seen_weight=seen_weight, num_candidates=num_candidates, fallback=popular)
    lists = [[], [3], [5, 5, 9], rng.integers(0, ITEMS, 30), []]
    excluded = [[], [7], [9], rng.permutation(ITEMS)[:20], [0, 1]]
    query, banned = Query.of(ItemLists.from_lists(lists)), ItemLists.from_lists(excluded)
    allowed = rng.random(ITEMS) < 0.8
    found = blend.search(query, k, SearchOptions(banned, allowed))
    for row, (items, scores) in enumerate(in_loops(blend, query, k, banned, allowed)):
        assert found.items[row].tolist() == items + [-1] * (k - len(items)), row
        assert np.allclose(found.scores[row, : len(items)], scores, rtol=1e-4, atol=1e-4)
        assert np.isneginf(found.scores[row, len(items) :]).all()
    assert np.isneginf(blend.score(query, np.full((5, 1), -1))).all()


@pytest.mark.parametrize("seen_weight", [0.0, 1.5])
def test_scores_equal_those_of_the_search(seen_weight):
    rng = np.random.default_rng(2)
    query = Query.of(ItemLists.from_lists([rng.integers(0, ITEMS, size) for size in (0, 1, 5, 30)]))
    blend = Blend([Part(Table(1), 0.5), Part(Table(2))], seen_weight=seen_weight, num_candidates=8)
    found = blend.search(query, 6)
    assert np.allclose(blend.score(query, found.items), found.scores, atol=1e-5)
    every = np.arange(ITEMS)
    of_all = blend.score(query, np.broadcast_to(every, (4, ITEMS)))
    assert np.array_equal(of_all, blend.score(query, np.tile(every, (4, 1))))


def test_parts_of_a_score_are_explained():
    query = Query.of(ItemLists.from_lists([[3], [5, 9]]))
    blend = Blend([Part(Table(1), 0.5), Part(Table(2))], seen_weight=2.0, num_candidates=8)
    assert blend.search(query, 6).parts == ()
    found = blend.search(query, 6, SearchOptions(explain=True))
    first, second = found.parts
    assert (first.hits.items >= 0).sum(axis=1).tolist() == (second.hits.items >= 0).sum(axis=1).tolist() == [9, 10]
    assert np.allclose(first.hits.scores, Table(1).score(query, first.hits.items))
    assert np.array_equal(second.hits.scores, Table(2).score(query, second.hits.items))
    assert np.array_equal(found.scored, first.hits.scored + second.hits.scored)
    assert sole_part(blend) is blend
    assert sole_part(Blend(PARTS["one"])) is PARTS["one"][0].searcher


def test_blends_of_blends_are_saved(case):
    _, query, excluded, allowed = case
    popular = PopularitySearcher(np.random.default_rng(4).integers(0, 9, ITEMS))
    inner = Blend([Part(RankingSearcher(scorer(1)), gate="history")], seen_weight=-3.0, fallback=popular)
    outer = Blend(
        [Part(inner, 0.25, gate="history"), Part(RankingSearcher(scorer(2)), 2.0, "log-odds"), Part(popular, 0.1)],
        seen_weight=1.5,
        num_candidates=CANDIDATES,
        fallback=popular,
    )
    again = Blend.restore(*outer.export())
    assert again.export()[0] == outer.export()[0]
    for options in (SearchOptions(), SearchOptions(excluded, allowed)):
        ours, theirs = outer.search(query, 15, options), again.search(query, 15, options)
        assert np.array_equal(ours.items, theirs.items)
        assert np.array_equal(ours.scores, theirs.scores)
    assert outer.needs.users


def test_long_and_short_histories_are_ordered_alike():
    """Histories of similar length are scored together to avoid padding."""
    rng = np.random.default_rng(5)
    lists = [rng.integers(0, ITEMS, 40 if row == 70 else row % 3) for row in range(150)]
    query = Query.of(ItemLists.from_lists(lists))
    excluded = ItemLists.from_lists([history[:1] for history in lists])
    blend = Blend([Part(Table(1)), Part(Table(2))], seen_weight=0.5, num_candidates=5)
    together = blend.search(query, 12, SearchOptions(excluded))
    for row in (0, 1, 2, 70, 149):
        rows = np.array([row])
        alone_ = blend.search(query.take(rows), 12, SearchOptions(excluded.take(rows)))
        assert np.array_equal(alone_.items[0], together.items[row])
        assert np.array_equal(alone_.scores[0], together.scores[row])
