"""Filters that are asked for again cost nothing, one that may change is counted anew; k answers where k may be."""

import pickle

import numpy as np
import pytest

from beamwood.retrieval.prepared import PreparedFilters
from beamwood.retrieval.tree import TreeSearcher
from beamwood.types import ItemLists, Query, SearchOptions
from din_cases import random_case


def fixed(allowed):
    allowed.flags.writeable = False
    return allowed


def test_only_what_cannot_change_is_kept():
    tree, _, _ = random_case(1)
    filters, rng = PreparedFilters(tree), np.random.default_rng(0)
    allowed = rng.random(tree.num_items) < 0.3
    before = filters.live(allowed)
    assert len(filters) == 0
    allowed[:] = True
    assert filters.live(allowed)[0][0] == tree.num_items != before[0][0]
    view = allowed[:]
    view.flags.writeable = False
    filters.live(view)
    assert len(filters) == 0, "its base can still be written to"
    kept = fixed(rng.random(tree.num_items) < 0.3)
    assert filters.live(kept) is filters.live(kept)
    assert len(filters) == 1
    assert int(filters.live(kept)[0][0]) == np.count_nonzero(kept)
    assert filters.live(None) is tree.live_counts
    assert len(pickle.loads(pickle.dumps(filters))) == 0


def test_the_oldest_go_first_and_the_latest_stays():
    tree, _, _ = random_case(1)
    size = sum(counts.nbytes for counts in tree.live_counts) + tree.num_items
    filters = PreparedFilters(tree, most_bytes=2 * size)
    one, two, three = (fixed(np.arange(tree.num_items) % 3 == rest) for rest in range(3))
    first = filters.live(one)
    filters.live(two)
    assert filters.live(one) is first
    filters.live(three)
    assert len(filters) == 2
    assert filters.live(one) is first, "the second was asked for longest ago"
    small = PreparedFilters(tree, most_bytes=1)
    assert small.live(one) is small.live(one)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.4])
def test_k_answers_come_whenever_k_items_are_allowed(share):
    tree, weights, _ = random_case(4, num_items=900, num_rows=1)
    searcher, rng = TreeSearcher(weights, tree, beam_width=20), np.random.default_rng(1)
    histories = ItemLists.from_lists([rng.integers(0, 900, 8) for _ in range(12)])
    allowed = fixed(rng.random(900) < share)
    excluded = ItemLists.from_lists([rng.permutation(900)[: rng.integers(0, 700)] for _ in range(12)])
    hits = searcher.search(Query.of(histories), 10, SearchOptions(excluded, allowed))
    for row, lists in enumerate(excluded):
        left = np.setdiff1d(np.flatnonzero(allowed), lists)
        found = hits.items[row][hits.items[row] >= 0]
        assert len(found) == min(10, len(left))
        assert np.isin(found, left).all()
    if share < 0.03:
        exact = searcher.exact(Query.of(histories), 10, SearchOptions(excluded, allowed))
        assert np.array_equal(hits.items, exact.items)
