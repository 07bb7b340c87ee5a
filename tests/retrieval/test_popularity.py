"""Popularity search by a precomputed order equals sorting every row."""

import numpy as np
import pytest

from beamwood.kept import Prepared
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.top_k import top_k
from beamwood.types import ItemLists, Query, SearchOptions


@pytest.mark.parametrize("num_items", [1, 7, 60])
@pytest.mark.parametrize("seed", range(20))
def test_the_order_equals_sorting_each_row(num_items: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    searcher = PopularitySearcher(rng.integers(0, 4, num_items))
    num_rows, k = int(rng.integers(0, 5)), int(rng.integers(1, num_items + 5))
    rows = [rng.integers(0, num_items, int(rng.integers(0, 20))).astype(np.int32) for _ in range(num_rows)]
    allowed = rng.random(num_items) < rng.random()
    for excluded in (None, ItemLists.from_lists(rows)):
        for mask, prepared in ((None, None), (allowed, None), (allowed, Prepared(allowed))):
            options = SearchOptions(excluded, mask, prepared=prepared)
            found = searcher.search(Query.of(ItemLists.empty(num_rows)), k, options)
            counts = np.broadcast_to(searcher.counts, (num_rows, num_items))
            wanted = top_k(counts, k, excluded=excluded, allowed=mask)
            assert np.array_equal(found.items, wanted.items)
            assert np.array_equal(found.scores, wanted.scores)


def test_only_a_few_items_of_a_large_catalogue_are_visited() -> None:
    searcher = PopularitySearcher(np.arange(100_000))
    seen = ItemLists.from_lists([np.array([99_999, 99_998, 3, 3], np.int32)])
    found = searcher.search(Query.of(seen), 2, SearchOptions(seen))
    assert found.items.tolist() == [[99_997, 99_996]]
    assert found.scored.tolist() == [6]
