"""A tree returns k items if k are allowed, however rare they are."""

import numpy as np
import pytest

from beamwood.kept import Prepared
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import ItemLists, Query, SearchOptions
from din_cases import random_case


@pytest.mark.parametrize("share", [0.01, 0.05, 0.4])
def test_k_items_are_returned_if_k_are_allowed(share):
    tree, weights, _ = random_case(4, num_items=900, num_rows=1)
    searcher, rng = TreeSearcher(weights, tree, beam_width=20), np.random.default_rng(1)
    histories = ItemLists.from_lists([rng.integers(0, 900, 8) for _ in range(12)])
    allowed = rng.random(900) < share
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


def test_two_trees_that_share_a_filter_judge_it_by_their_own_nodes():
    """Trees of a blend have one cached filter; what is one subtree of the first is scattered over the second."""
    cases = [random_case(seed, num_items=900, num_rows=1) for seed in (4, 5)]
    searchers = [TreeSearcher(weights, tree, beam_width=20) for tree, weights, _ in cases]
    query, order, differ = Query.of(ItemLists.from_lists([[1, 2, 3]])), np.argsort(cases[0][0].leaf_of_item), 0
    for count in range(60, 240, 10):
        allowed = np.isin(np.arange(900), order[:count])
        shared = SearchOptions(allowed=allowed, prepared=Prepared(allowed))
        alone = [int(each.search(query, 10, SearchOptions(allowed=allowed)).scored[0]) for each in searchers]
        assert [int(each.search(query, 10, shared).scored[0]) for each in searchers] == alone
        differ += alone[0] < count == alone[1]
    assert differ


@pytest.mark.parametrize("in_one_subtree", [False, True])
def test_a_filter_is_scored_whole_if_a_beam_would_score_as_many(in_one_subtree):
    tree, weights, _ = random_case(4, num_items=900, num_rows=1)
    searcher, rng = TreeSearcher(weights, tree, beam_width=20), np.random.default_rng(2)
    query = Query.of(ItemLists.from_lists([rng.integers(0, 900, 8)]))
    order = np.argsort(tree.leaf_of_item) if in_one_subtree else rng.permutation(900)
    scored_whole = []
    for count in range(10, 400, 30):
        options = SearchOptions(allowed=np.isin(np.arange(900), order[:count]))
        # The beam itself, asked of the core.
        leaves = searcher.leaves_of(query.histories)
        beam = searcher.core.beam(leaves, beam_width=20, k=10, live=tree.counts_of(options.allowed))
        found, exact = searcher.search(query, 10, options), searcher.exact(query, 10, options)
        if found.scored[0] == count:
            assert np.array_equal(found.items, exact.items)
            assert count <= max(2 * 20, 1.2 * beam.scored[0])
            scored_whole.append(count)
        else:
            assert found.scored[0] == beam.scored[0] <= 1.2 * count
    assert len(scored_whole) >= 3
    assert scored_whole == list(range(10, scored_whole[-1] + 1, 30))
    assert scored_whole[-1] > 2 * 20
