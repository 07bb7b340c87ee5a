"""Buckets of items: overlaps count once, invalid buckets are refused, centres of planted clusters are found."""

import numpy as np
import pytest

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.index import IndexInputs, IvfIndex
from beamwood.retrieval.index.buckets import Buckets, best_inside, probed_items
from beamwood.retrieval.index.kmeans import kmeans, nearest_centres
from beamwood.retrieval.products import best_products
from beamwood.types import ItemLists, SearchOptions

PAIRS = [(0, 3), (0, 1), (1, 0), (1, 3), (2, 2), (2, 4), (2, 2)]


@pytest.fixture
def buckets():
    held, items = np.array(PAIRS).T
    return Buckets.of_pairs(held, items, 4, 5)


def test_an_item_in_several_buckets_counts_once(buckets):
    assert buckets.overlap
    assert buckets.sizes.tolist() == [2, 2, 2, 0]
    assert buckets.members(np.array([1, 0])).tolist() == [0, 1, 3]
    assert buckets.members(np.array([3])).tolist() == []
    assert not Buckets.of(np.array([0, 2, 2]), 3).overlap


def test_opening_all_overlapping_buckets_is_exact(buckets):
    rng = np.random.default_rng(0)
    vectors, query = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32)
    hits = best_inside(buckets, vectors, query, np.array([3, 2, 1, 0]), 4, 5, SearchOptions())
    assert np.array_equal(hits.items, best_products(query[None], vectors, 5).items)
    assert hits.scored.tolist() == [5]


def test_more_buckets_are_opened_until_there_are_enough_items(buckets):
    order = np.array([3, 0, 2, 1])
    assert probed_items(buckets, order, 1, 2, SearchOptions()).tolist() == [1, 3]
    banned = SearchOptions(ItemLists.from_lists([[3]]), np.array([True, True, True, True, False]))
    assert probed_items(buckets, order, 1, 2, banned).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"bucket_items": np.array([3, 1, 0, 3, 2, 4], np.int32)},
        {"bucket_items": np.array([1, 3, 0, 3, 2, 2], np.int32)},
        {"bucket_items": np.array([1, 3, 0, 3, 2, 9], np.int32)},
        {"bucket_items": np.array([1, 3, 0, 3, 2], np.int32)},
        {"bucket_items": np.array([1, 3, 1, 3, 2, 4], np.int32)},
        {"bucket_starts": np.array([0, 2, 1, 6, 6])},
        {"bucket_starts": np.array([0, 2, 4, 6], np.int32)},
    ],
)
def test_invalid_buckets_are_refused(buckets, change):
    assert Buckets.restore(buckets.arrays(), 5, 4).overlap
    with pytest.raises((ArtefactError, InputError)):
        Buckets.restore(buckets.arrays() | change, 5)


def test_planted_clusters_are_recovered():
    rng = np.random.default_rng(1)
    planted = 40 * rng.normal(size=(12, 6)).astype(np.float32)
    of = np.repeat(np.arange(12), 50)
    vectors = planted[of] + rng.normal(size=(600, 6)).astype(np.float32)
    centres = kmeans(vectors, 12, rng)
    nearest, distances = nearest_centres(vectors, centres)
    assert all(len(set(nearest[of == group])) == 1 for group in range(12))
    np.testing.assert_allclose(distances, np.square(vectors - centres[nearest]).sum(axis=1), rtol=1e-2, atol=1e-2)


def test_fewer_vectors_than_centres_are_the_centres():
    vectors = np.eye(3, dtype=np.float32)
    assert np.array_equal(kmeans(vectors, 7, np.random.default_rng(0)), vectors)
    assert np.isfinite(kmeans(np.zeros((50, 2), np.float32), 7, np.random.default_rng(0))).all()


def test_a_bucket_saves_products():
    rng = np.random.default_rng(2)
    vectors, queries = rng.normal(size=(2000, 8)).astype(np.float32), rng.normal(size=(5, 8)).astype(np.float32)
    index = IvfIndex(vectors)
    hits = index.search(queries, 10)
    assert (hits.scored < 800).all()
    # The filter is applied inside the search, so excluded items cost no product.
    allowed = np.arange(2000) % 2 == 0
    assert (index.search(queries, 10, SearchOptions(allowed=allowed)).scored < hits.scored).all()


def test_without_time_centres_are_drawn(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    rounds = []
    monkeypatch.setattr(
        "beamwood.retrieval.index.kmeans.nearest_centres",
        lambda *given: rounds.append(given) or nearest_centres(*given),
    )
    drawn = kmeans(vectors, 9, np.random.default_rng(0), seconds=-1.0)
    assert not rounds
    assert len(np.unique(drawn, axis=0)) == 9
    assert np.isin(drawn[:, 0], vectors[:, 0]).all()
    assert np.array_equal(
        kmeans(vectors, 9, np.random.default_rng(0), seconds=1e9), kmeans(vectors, 9, np.random.default_rng(0))
    )
    assert len(rounds) > 2
    late = IvfIndex(vectors, None, IndexInputs(seconds=1e-9))
    assert np.isin(late.centres[:, 0], vectors[:, 0]).all()
    assert np.array_equal(np.sort(late.buckets.arrays()["bucket_items"]), np.arange(300))
