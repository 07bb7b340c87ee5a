"""Balanced k-means trees and PIFA vectors: planted clusters are recovered, sizes are even, errors name the input."""

import numpy as np
import pytest
from scipy import sparse

from beamwood.errors import InputError
from beamwood.tree import Shape, Tree, build, flat_tree, kmeans_tree
from beamwood.tree.build import balanced_cuts
from beamwood.tree.pifa import pifa_vectors


@pytest.mark.parametrize(("num_items", "branching"), [(64, 2), (61, 2), (64, 4), (100, 3), (7, 16), (1, 2)])
def test_shape_is_that_of_an_even_tree(num_items, branching):
    rng = np.random.default_rng(0)
    tree = kmeans_tree(rng.normal(size=(num_items, 5)), rng, branching=branching)
    even = Tree.of_order(np.arange(num_items), branching=branching)
    assert tree.shape == even.shape
    assert all(np.array_equal(a, b) for a, b in zip(tree.live_counts, even.live_counts, strict=True))


@pytest.mark.parametrize("branching", [2, 4])
def test_planted_clusters_share_a_subtree(branching):
    """Eight distant clusters of eight items: each fills one subtree of eight leaves."""
    rng = np.random.default_rng(1)
    cluster = rng.permutation(np.repeat(np.arange(8), 8))
    centres = rng.normal(0, 20, (8, 6))
    shape = Shape(2, 2, 6) if branching == 2 else Shape(4, 4, 3)
    tree = kmeans_tree(centres[cluster] + rng.normal(0, 0.1, (64, 6)), rng, shape=shape)
    below = 8 if branching == 2 else 4
    together = cluster[tree.item_of_leaf].reshape(-1, below)
    assert (together == together[:, :1]).all()


@pytest.mark.parametrize(("count", "left"), [(3, 1), (8, 4), (9, 6), (40, 13)])
def test_groups_are_split_in_parallel_until_convergence(count, left):
    """In each group no swap of two items between its clusters brings them nearer to their centroids."""
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(200, count, 6)).astype(np.float32)
    order = balanced_cuts(vectors, left, rng)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(count), (200, 1)))
    own = np.take_along_axis(vectors, order[:, :, None], axis=1)
    direction = own[:, :left].mean(axis=1) - own[:, left:].mean(axis=1)
    along = np.einsum("gmd,gd->gm", own, direction)
    at_rest = along[:, :left].min(axis=1) >= along[:, left:].max(axis=1) - 1e-5
    assert at_rest.mean() > 0.97


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_clusters_do_not_depend_on_the_number_split_at_a_time(rows, monkeypatch):
    """Four pairs of close items: a pair stays together for every seed."""
    monkeypatch.setattr(build, "_ROWS", rows)
    rng = np.random.default_rng(rows)
    points = np.repeat(rng.normal(0, 20, (32, 3)), 2, axis=0) + rng.normal(0, 0.01, (64, 3))
    tree = kmeans_tree(points, rng)
    pairs = tree.item_of_leaf.reshape(-1, 2) // 2
    assert (pairs[:, 0] == pairs[:, 1]).all()


def test_equal_vectors_and_wrong_input():
    rng = np.random.default_rng(2)
    assert kmeans_tree(np.zeros((20, 3)), rng).num_items == 20
    with pytest.raises(InputError, match="finite"):
        kmeans_tree(np.full((4, 2), np.nan), rng)
    with pytest.raises(InputError, match="do not fit"):
        kmeans_tree(np.zeros((9, 2)), rng, shape=Shape(2, 2, 2))


def test_pifa_is_the_direction_of_the_sum():
    rng = np.random.default_rng(3)
    features = sparse.random(200, 40, 0.1, random_state=4, format="csr")
    targets = rng.integers(0, 9, 200)
    halves = [(features[part], targets[part]) for part in (slice(0, 90), slice(90, 200))]
    vectors = pifa_vectors(halves, 40, 10, rng, width=4000)
    sums = np.stack([np.asarray(features[targets == item].sum(axis=0))[0] for item in range(10)])
    unit = sums[:9] / np.linalg.norm(sums[:9], axis=1, keepdims=True)
    assert np.allclose(vectors[:9] @ vectors[:9].T, unit @ unit.T, atol=0.1)
    assert not vectors[9].any()
    with pytest.raises(InputError, match="3 targets and 40 features"):
        pifa_vectors([(features, targets[:3])], 40, 10, rng)


def test_flat_tree_has_one_level():
    tree = flat_tree(12)
    assert tree.shape.depth == 1
    assert np.array_equal(tree.item_of_leaf, np.arange(12))
