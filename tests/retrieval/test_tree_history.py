"""If seen items may be recommended again, a tree search adds the history's items to its candidates."""

import copy
import pickle

import numpy as np
import pytest

from beamwood.kernels.links import LINKS
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import ItemLists, Query, SearchOptions
from din_cases import random_case, with_term


def case(repeat, *, link="softmax", beam_width=4):
    tree, weights, _ = random_case(3, num_items=300, num_rows=1, similarity=4)
    weights = with_term(weights, "seen", weights=np.full(weights.history_length, repeat, np.float32))
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, 300, size) for size in (0, 1, 2, 7, 10, 30)] + [np.array([5, 5, 9, 5])]
    return TreeSearcher(weights, tree, beam_width=beam_width, link=LINKS[link]), Query.of(ItemLists.from_lists(rows))


def latest(searcher, histories, row):
    return set(histories[row][-searcher.weights.history_length :].tolist())


@pytest.mark.parametrize("link", ["softmax", "path"])
def test_seen_items_are_found_if_the_beam_misses_them(link):
    searcher, query = case(1000.0, link=link)
    hits, beam, missed = searcher.search(query, 12), searcher.beam(query, 12), 0
    for row in range(len(query)):
        had, found = latest(searcher, query.histories, row), set(beam.items[row].tolist())
        candidates = np.array(sorted(had | found))
        scores = searcher.score(query.take(np.array([row])), candidates[None])[0]
        assert hits.items[row].tolist() == candidates[np.argsort(-scores, kind="stable")][:12].tolist()
        assert hits.scored[row] == beam.scored[row] + len(had - found)
        missed += len((had - found) & set(hits.items[row].tolist()))
    assert missed > 1, "the beam reached every item, so the test is void"
    assert np.allclose(hits.scores, searcher.score(query, hits.items), rtol=1e-5)


def test_excluded_items_are_not_added():
    searcher, query = case(1000.0)
    allowed = np.ones(300, bool)
    gone = query.histories[4][-3:]
    allowed[gone] = False
    assert not np.isin(searcher.search(query, 12, SearchOptions(allowed=allowed)).items, gone).any()
    some = ItemLists.from_lists([row[::2] for row in query.histories])
    answers = searcher.search(query, 12, SearchOptions(some))
    for row in range(len(query)):
        had = latest(searcher, query.histories, row) - set(some[row].tolist())
        assert not set(some[row].tolist()) & set(answers.items[row].tolist())
        assert set(answers.items[row, : len(had)].tolist()) == had
    without = searcher.search(query, 12, SearchOptions(query.histories))
    assert not any(set(query.histories[row].tolist()) & set(without.items[row].tolist()) for row in range(len(query)))


def test_without_repeats_only_the_beam_is_searched():
    searcher, query = case(-1.0)
    beam, hits = searcher.beam(query, 12), searcher.search(query, 12)
    assert np.array_equal(hits.items, beam.items)
    assert np.array_equal(hits.scored, beam.scored)


def test_items_found_by_the_beam_are_scored_once():
    searcher, query = case(1000.0, beam_width=300)
    hits = searcher.search(query, 300)
    assert np.array_equal(hits.scored, searcher.beam(query, 300).scored)
    assert np.array_equal(np.sort(hits.items, axis=1), np.tile(np.arange(300), (len(query), 1)))


def test_a_searcher_can_be_copied_and_sent():
    """A worker in another process needs this."""
    searcher, query = case(1000.0, link="path")
    expected = searcher.search(query, 12)
    for other in (pickle.loads(pickle.dumps(searcher)), copy.deepcopy(searcher)):
        found = other.search(query, 12)
        assert np.array_equal(found.items, expected.items)
        assert np.array_equal(found.scores, expected.scores)


@pytest.mark.parametrize("added", [-1000.0, -2.0, 0.0, 2.0])
def test_a_weight_of_repeats_is_added_to_items_found_separately(added):
    searcher, query = case(0.5, beam_width=300)
    seen = searcher.weights.terms["seen"].arrays["weights"]
    weights = with_term(searcher.weights, "seen", weights=seen + np.float32(added))
    expected = TreeSearcher(weights, searcher.tree, beam_width=300).search(query, 12)
    apart = searcher.apart(query, 12)
    found = apart.best(apart.scores_BC(12), added, 12)
    assert np.array_equal(found.items, expected.items)
    assert np.allclose(found.scores, expected.scores, rtol=1e-4)


def test_no_history_adds_no_items():
    searcher, _ = case(0.5)
    nobody = Query.of(ItemLists.from_lists([np.array([], int)] * 3))
    apart = searcher.apart(nobody, 5)
    assert np.array_equal(apart.best(apart.scores_BC(5), 8.0, 5).items, searcher.search(nobody, 5).items)
