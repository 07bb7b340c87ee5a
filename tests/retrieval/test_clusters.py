"""Cluster trees: planted groups are leaves, shared items are in two leaves, and searching all leaves is exact."""

from typing import ClassVar

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.retrieval.index import ClusterIndex, IndexInputs, IvfIndex, settings_of
from beamwood.retrieval.index.clusters import ClusterTree, grow_tree, reached_leaves, shared_leaves
from beamwood.retrieval.products import best_products
from beamwood.testing import IndexContract
from beamwood.types import SearchOptions


class TestClusters(IndexContract):
    index = ClusterIndex
    num_items = 1500
    settings: ClassVar = {"leaf_size": 30, "num_probed": 40}
    recall = 0.5
    exhaustive: ClassVar = {"num_probed": 1500}
    efforts: ClassVar = [{"num_probed": num} for num in (1, 6, 30, 1500)]


class TestPartition(IndexContract):
    index = ClusterIndex
    num_items = 600
    settings: ClassVar = {"leaf_size": 20, "num_homes": 1, "num_probed": 30}
    recall = 0.5
    exhaustive: ClassVar = {"num_probed": 600}


@pytest.fixture
def tree():
    """A tree whose root has three children: the second is a leaf, the others have two children each."""
    return ClusterTree.of([3, 2, 0, 2, 0, 0, 0, 0])


@pytest.fixture
def planted():
    """The vectors of nine groups of ten, in three clusters of three, and the group of each."""
    rng = np.random.default_rng(3)
    group = np.arange(90) % 9
    far, near = 60 * np.eye(3, 6), 8 * np.eye(6)[3:]
    vectors = far[group // 3] + near[group % 3] + 0.1 * rng.normal(size=(90, 6))
    return vectors.astype(np.float32), group


def test_nodes_are_ordered_by_level(tree):
    assert tree.levels() == [(1, 4), (4, 8)]
    assert tree.leaves.tolist() == [2, 4, 5, 6, 7]
    assert tree.parents.tolist() == [-1, 0, 0, 0, 1, 1, 3, 3]
    assert tree.paths().tolist() == [[2, -1], [1, 4], [1, 5], [3, 6], [3, 7]]


def test_a_root_alone_is_a_leaf():
    tree = ClusterTree.of([0])
    assert (tree.levels(), tree.leaves.tolist(), tree.paths().shape) == ([], [0], (1, 0))
    nodes, products = tree.walk(np.zeros((1, 2)), np.zeros(2), 4)
    assert (nodes.tolist(), products) == ([0], 0)


def test_a_beam_keeps_leaves_of_upper_levels(tree):
    """The best node of the first level is a leaf; the search continues from the next one."""
    scores = np.array([[0, 1, 3, 2, 9, 9, 5, 6.0]]).T
    nodes, products = tree.walk(scores, np.ones(1), 2)
    assert (nodes.tolist(), products) == ([2, 7, 6], 5)
    nodes, products = tree.walk(scores, np.ones(1), 1)
    assert (nodes.tolist(), products) == ([2], 3)
    nodes, products = tree.walk(scores, np.ones(1), 9)
    assert (sorted(nodes.tolist()), products) == ([2, 4, 5, 6, 7], 7)


@pytest.mark.parametrize("counts", [[2, 0], [1, -1, 1], [0, 1], [1, 0, 1, 0], []])
def test_invalid_trees_are_refused(counts):
    with pytest.raises(ArtefactError):
        ClusterTree.of(np.array(counts, np.int32))


def test_planted_groups_are_its_leaves(planted):
    vectors, group = planted
    tree, nodes, leaf = grow_tree(vectors, 3, 11, np.random.default_rng(0))
    assert tree.num_children.tolist() == [3, 3, 3, 3] + [0] * 9
    assert len({(a, b) for a, b in zip(group.tolist(), leaf.tolist(), strict=True)}) == 9
    for number, node in enumerate(tree.leaves):
        np.testing.assert_allclose(nodes[node], vectors[leaf == number].mean(axis=0), atol=1e-4)


def test_splitting_ends_for_equal_vectors():
    """It also ends if each split separates only a few vectors."""
    vectors = np.ones((500, 4), np.float32)
    tree, _, leaf = grow_tree(vectors, 10, 20, np.random.default_rng(0))
    assert (len(tree.leaves), leaf.max()) == (1, 0)
    assert np.array_equal(ClusterIndex(vectors).search(vectors[:1], 5).items, [[0, 1, 2, 3, 4]])
    steep = (4.0 ** -np.arange(60.0))[:, None].astype(np.float32)
    tree, _, leaf = grow_tree(steep, 2, 2, np.random.default_rng(0))
    assert len(tree.levels()) <= 16
    assert set(leaf.tolist()) == set(range(len(tree.leaves)))


def test_an_item_is_placed_in_the_leaves_of_its_queries():
    """Leaves with the most queries come first, then its own leaf; an item without queries stays."""
    own = np.array([0, 1, 2, 2], np.int32)
    items, leaves = np.array([(0, 1), (0, 2), (0, 2), (1, 2), (1, 0), (2, 2)]).T
    two = shared_leaves(own, 3, items, leaves, 2)
    assert [row.tolist() for row in two.lists] == [[1], [0], [0, 1, 2, 3]]
    three = shared_leaves(own, 3, items, leaves, 3)
    assert [row.tolist() for row in three.lists] == [[0, 1], [0, 1], [0, 1, 2, 3]]
    one = shared_leaves(own, 3, items, leaves, 1)
    assert not one.overlap
    assert one.of_item().tolist() == [2, 0, 2, 2]
    none = shared_leaves(own, 3, items[:0], leaves[:0], 5)
    assert none.of_item().tolist() == own.tolist()


def test_a_shared_item_is_found_in_both_leaves(planted):
    """Item 0 is a label of queries in the first and the last group; opening either leaf finds it."""
    vectors, group = planted
    tree, nodes, leaf = grow_tree(vectors, 3, 11, np.random.default_rng(0))
    homes = [int(leaf[group == each][0]) for each in (0, 8)]
    buckets = shared_leaves(leaf, 9, np.zeros(20, int), np.repeat(homes, 10), 2)
    index = ClusterIndex.of(vectors, tree, nodes, buckets, 1)
    for each in (0, 8):
        query = vectors[group == each].mean(axis=0, keepdims=True)
        members = np.flatnonzero(group == each)
        assert set(index.search(query, 11).items[0].tolist()) >= {0, *members.tolist()}
    alone = ClusterIndex.of(vectors, tree, nodes, shared_leaves(leaf, 9, np.zeros(20, int), np.repeat(homes, 10), 1), 1)
    assert not alone.buckets.overlap


def test_leaves_with_the_largest_products_are_reached():
    rng = np.random.default_rng(1)
    queries, leaves = rng.normal(size=(7, 3)), rng.normal(size=(9, 3))
    best = np.argsort(-(queries @ leaves.T), axis=1)[:, :5]
    assert np.array_equal(np.sort(reached_leaves(queries, leaves), axis=1), np.sort(best, axis=1))
    assert reached_leaves(queries, leaves[:2]).shape == (7, 2)


def test_a_second_leaf_per_item_raises_recall():
    """Queries have few directions, as in practice."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(1500, 24)) * rng.lognormal(0, 0.4, size=(1500, 1))).astype(np.float32)
    queries = (rng.normal(size=(2000, 4)) @ rng.normal(size=(4, 24))).astype(np.float32)
    exact, found = best_products(queries[:200], vectors, 10).items, []
    for homes in (1, 2):
        settings = settings_of(ClusterIndex, {"leaf_size": 40, "num_homes": homes, "num_probed": 4})
        index = ClusterIndex(vectors, settings, IndexInputs(0, lambda: queries[200:]))
        hits = index.search(queries[:200], 10)
        found.append(np.mean([len({*a} & {*b}) / 10 for a, b in zip(hits.items, exact, strict=True)]))
    assert found[1] > found[0] + 0.02
    plain = IvfIndex(vectors, settings_of(IvfIndex, {"num_buckets": 60, "num_probed": 4})).search(queries[:200], 10)
    assert found[1] > np.mean([len({*a} & {*b}) / 10 for a, b in zip(plain.items, exact, strict=True)])


def test_a_filter_opens_more_leaves():
    vectors = np.random.default_rng(4).normal(size=(400, 8)).astype(np.float32)
    index = ClusterIndex(vectors, settings_of(ClusterIndex, {"leaf_size": 20, "num_probed": 1}))
    allowed = np.zeros(400, bool)
    allowed[::40] = True
    hits = index.search(vectors[:5], 10, SearchOptions(allowed=allowed))
    assert np.array_equal(np.sort(hits.items, axis=1), np.tile(np.arange(0, 400, 40), (5, 1)))
    assert np.array_equal(hits.items, best_products(vectors[:5], vectors, 10, allowed=allowed).items)


def test_it_keeps_its_time_limit():
    vectors = np.random.default_rng(4).normal(size=(400, 8)).astype(np.float32)
    given = settings_of(ClusterIndex, {"leaf_size": 20})
    late = ClusterIndex(vectors, given, IndexInputs(0, lambda: vectors, seconds=1e-9))
    assert not late.buckets.overlap
    assert ClusterIndex(vectors, given, IndexInputs(0, lambda: vectors)).buckets.overlap


def test_invalid_arrays_are_refused():
    vectors = np.random.default_rng(4).normal(size=(400, 8)).astype(np.float32)
    config, arrays = ClusterIndex(vectors, settings_of(ClusterIndex, {"leaf_size": 20})).export()
    for name in arrays:
        with pytest.raises(ArtefactError):
            ClusterIndex.restore(vectors, config, {other: each for other, each in arrays.items() if other != name})
    for change in (
        {"nodes": arrays["nodes"][1:]},
        {"nodes": np.full_like(arrays["nodes"], np.nan)},
        {"num_children": arrays["num_children"][::-1].copy()},
        {"num_children": arrays["num_children"].astype(np.int64)},
    ):
        with pytest.raises(ArtefactError):
            ClusterIndex.restore(vectors, config, arrays | change)
