"""The cost of an answer grows with what is asked for, and that of a change with what changes, not with the catalogue."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from beamwood.retrieval.neighbours import NeighbourSearcher
from beamwood.retrieval.top_k import in_order
from beamwood.types import ItemLists, Prepared, Query, SearchOptions

NUM_ITEMS = 200_000


def most_bytes(work):
    """The most that is allocated at a time by a call."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def neighbours():
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, NUM_ITEMS, (2, 10 * NUM_ITEMS))
    similarity = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), (NUM_ITEMS, NUM_ITEMS))
    return NeighbourSearcher(similarity, rng.integers(0, 50, NUM_ITEMS))


def test_neighbours_are_found_without_a_pass_over_the_catalogue(neighbours):
    rng = np.random.default_rng(1)
    query = Query.of(ItemLists.from_lists([rng.integers(0, NUM_ITEMS, 20)]))
    allowed = np.ones(NUM_ITEMS, bool)
    allowed[7] = False
    prepared = Prepared(allowed)
    excluded = query.histories.distinct()
    for options in (SearchOptions(excluded), SearchOptions(excluded, allowed, prepared=prepared)):
        neighbours.search(query, 10, options)
        assert most_bytes(lambda options=options: neighbours.search(query, 10, options)) < NUM_ITEMS / 2


def test_what_a_history_adds_is_read_by_row(neighbours):
    history = ItemLists.from_lists([np.arange(20)])
    item = int(neighbours.similarity[3].indices[0])
    shares = neighbours.shares(history, item)
    near = neighbours.similarity[:, [item]].toarray().ravel()[:20]
    assert shares == [(place, float(near[place])) for place in np.argsort(-near, kind="stable") if near[place]]
    assert most_bytes(lambda: neighbours.shares(history, item)) < NUM_ITEMS / 2


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_few_allowed_items_are_in_the_order_of_all(share):
    rng = np.random.default_rng(2)
    values = rng.integers(0, 9, 5000).astype(np.float32)
    order, allowed = np.argsort(-values, kind="stable").astype(np.int32), rng.random(5000) < share
    np.testing.assert_array_equal(in_order(order, values, allowed), order[allowed[order]])
