"""HNSW: builds are reproducible, it is saved, counts are correct, and rows are independent."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from beamwood.retrieval.index.hnsw import HnswIndex
from beamwood.retrieval.products import best_products
from beamwood.types import ItemLists, SearchOptions

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def index():
    return HnswIndex(np.random.default_rng(0).normal(size=(5_000, 16)).astype(np.float32))


def test_builds_are_reproducible(index):
    again = HnswIndex(index.vectors)
    for name, array in index.export()[1].items():
        assert np.array_equal(again.export()[1][name], array)


def test_scored_counts_products(index):
    queries = np.random.default_rng(1).normal(size=(20, 16)).astype(np.float32)
    hits = index.search(queries, 10)
    # A search keeps 128 candidates and scores the neighbours of each.
    assert (hits.scored > 128).all()
    assert (hits.scored < 5_000).all()
    assert len(set(hits.scored.tolist())) > 1


class Meeting:
    """A graph whose searches end only when two of them are under way."""

    def __init__(self, graph):
        self.graph, self.both = graph, threading.Barrier(2, timeout=10)

    def search(self, *arguments, **options):
        found = self.graph.search(*arguments, **options)
        self.both.wait()
        return found


def test_threads_search_at_once_and_count_each_product_once(index):
    queries = np.random.default_rng(7).normal(size=(8, 16)).astype(np.float32)
    alone = index.search(queries, 10)
    shared = HnswIndex.restore(index.vectors, *index.export())
    shared._index = Meeting(shared._index)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda half: shared.search(half, 10), np.split(queries, 2)))
    assert np.array_equal(np.concatenate([hits.items for hits in found]), alone.items)
    # The library itself adds without a lock, so one of the eight searches may be lost.
    assert 0.7 * alone.scored.sum() < sum(hits.scored.sum() for hits in found) <= alone.scored.sum()


def test_short_vectors_are_found_too():
    """By inner product few items link to short ones. Queries orthogonal to all long items have short ones as best."""
    rng = np.random.default_rng(5)
    long, short = rng.normal(size=(2_000, 12)), 0.1 * rng.normal(size=(2_000, 12))
    long[:, 8:], short[:, :8] = 0, 0
    vectors = np.concatenate([long, short]).astype(np.float32)
    index = HnswIndex(vectors)
    queries = np.zeros((40, 12), np.float32)
    queries[:, 8:] = rng.normal(size=(40, 4))
    # Orthogonal to the long items, and then slightly less.
    for mixed in (0.0, 0.001):
        queries[:, :8] = mixed * rng.normal(size=(40, 8))
        best, found = best_products(queries, vectors, 10).items, index.search(queries, 10).items
        assert (best >= 2_000).mean() > 0.9
        recall = np.mean([len({*ours} & {*theirs}) / 10 for ours, theirs in zip(found, best, strict=True)])
        assert recall > 0.9, mixed


def test_a_beam_narrower_than_the_list_is_widened(index):
    narrow = HnswIndex.restore(index.vectors, *index.export())
    narrow._search_width = 1
    queries = np.random.default_rng(6).normal(size=(5, 16)).astype(np.float32)
    found = narrow.search(queries, 300)
    assert (found.items >= 0).all()
    assert all(len({*row}) == 300 for row in found.items.tolist())


def test_a_filter_without_the_nearest_items_is_answered_exactly(index):
    query = np.random.default_rng(7).normal(size=(1, 16)).astype(np.float32)
    allowed = np.ones(5_000, bool)
    allowed[best_products(query, index.vectors, 2_000).items[0]] = False
    found = index.search(query, 10, SearchOptions(allowed=allowed))
    exact = best_products(query, index.vectors, 10, allowed=allowed)
    assert found.items.tolist() == exact.items.tolist()
    assert found.scored[0] > exact.scored[0] == 3_000, "the graph was searched first"


def test_a_row_is_searched_as_deeply_alone_as_in_a_batch(index):
    queries = np.random.default_rng(2).normal(size=(3, 16)).astype(np.float32)
    excluded = ItemLists.from_lists([[], np.arange(0, 5_000, 4), [7]])
    together = index.search(queries, 10, SearchOptions(excluded))
    for row in range(3):
        alone = index.search(queries[row : row + 1], 10, SearchOptions(excluded.take(np.array([row]))))
        assert np.array_equal(alone.items[0], together.items[row])
        assert alone.scored[0] == together.scored[row]


def test_a_restored_graph_gives_equal_answers(index):
    queries = np.random.default_rng(3).normal(size=(5, 16)).astype(np.float32)
    again = HnswIndex.restore(index.vectors, *index.export())
    one, other = index.search(queries, 10), again.search(queries, 10)
    assert np.array_equal(one.items, other.items)
    assert np.array_equal(one.scored, other.scored)


def test_the_defaults_are_those_of_the_library():
    import faiss

    vectors = np.random.default_rng(4).normal(size=(700, 16)).astype(np.float32)
    plain = faiss.IndexHNSWFlat(16, 32, faiss.METRIC_INNER_PRODUCT)
    faiss.omp_set_num_threads(1)
    plain.add(vectors)
    _, arrays = HnswIndex(vectors).export()
    assert np.array_equal(arrays["neighbours"], faiss.vector_to_array(plain.hnsw.neighbors))
    assert np.array_equal(arrays["levels"], faiss.vector_to_array(plain.hnsw.levels))
