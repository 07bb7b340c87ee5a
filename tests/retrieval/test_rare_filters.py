"""A tree returns k items if k are allowed, however rare they are."""

import numpy as np
import pytest

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
