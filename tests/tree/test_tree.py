"""The tree's invariants, on random shapes and against plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.tree import Shape, Tree, category_tree, choose_shape, random_tree

branchings = st.one_of(st.integers(2, 9), st.sampled_from([16, 32, 255, 256]))


@given(st.integers(1, 3000), branchings, st.integers(0, 2**32 - 1))
def test_random_trees_keep_their_invariants(num_items, branching, seed):
    tree = random_tree(num_items, np.random.default_rng(seed), branching=branching)
    shape = tree.shape
    assert tree.num_items == num_items
    assert sorted(tree.item_of_leaf[tree.item_of_leaf >= 0]) == list(range(num_items))
    assert np.array_equal(tree.item_of_leaf[tree.leaf_of_item], np.arange(num_items))
    assert sum(shape.level_size(j) for j in range(1, shape.depth + 1)) == shape.num_nodes
    for level, counts in enumerate(tree.live_counts):
        assert len(counts) == shape.level_size(level)
        assert level == 0 or len(counts) == shape.level_size(level - 1) * shape.fanout(level)
        assert counts.sum() == num_items
        assert counts.max() - counts.min() <= 1
        assert np.array_equal(np.bincount(shape.ancestors(tree.leaf_of_item, level), minlength=len(counts)), counts)


def test_live_nodes_are_kept_and_those_of_a_grown_tree_are_its_own():
    tree = random_tree(2000, np.random.default_rng(0), branching=4)
    for each in (tree, tree.with_items(np.flatnonzero(tree.item_of_leaf < 0).astype(np.int32))):
        for level, counts in enumerate(each.live_counts):
            nodes = each.live_nodes(level)
            assert nodes is None if counts.all() else np.array_equal(nodes, np.flatnonzero(counts))
            assert each.live_nodes(level) is nodes
    assert tree.live_nodes(tree.shape.depth) is not None
    assert each.live_nodes(tree.shape.depth) is None


@given(st.integers(1, 10**6), branchings)
def test_a_shape_has_room_for_the_items(num_items, branching):
    shape = choose_shape(num_items, branching)
    assert shape.capacity >= num_items
    assert shape.depth >= 2 or num_items <= branching
    assert shape.root_fanout * branching ** (shape.depth - 1) - num_items < branching ** (shape.depth - 1)


@pytest.mark.parametrize("num_items", [3416, 6988, 12101, 66576, 10**6])
def test_a_binary_shape_has_few_empty_leaves(num_items):
    assert choose_shape(num_items, 2).capacity <= 1.05 * num_items


def test_parent_and_ancestor_agree():
    shape = Shape(root_fanout=3, branching=4, depth=4)
    leaf = np.arange(shape.capacity)
    node = leaf
    for level in range(shape.depth - 1, 0, -1):
        node = node // shape.branching
        assert np.array_equal(shape.ancestors(leaf, level), node)
    assert np.all(shape.ancestors(leaf, 0) == 0)
    assert np.all(shape.ancestors(np.array([-1]), 2) == -1)


def test_categories_stay_together():
    categories = np.array([2, 0, 1, 2, 0, 1, -1, 2])
    tree = category_tree(categories, np.random.default_rng(0), shape=Shape(2, 2, 3))
    in_order = categories[tree.item_of_leaf]
    changes = np.count_nonzero(np.diff(in_order))
    assert changes == 3
    assert in_order[-1] == -1


@pytest.mark.parametrize(
    ("item_of_leaf", "message"),
    [
        ([0, 1, 1, -1], "exactly once"),
        ([0, 2, 3, -1], "exactly once"),
        ([0, 1, -2, -1], "exactly once"),
        ([-1, -1, -1, -1], "no item"),
        ([0, 1], "shape"),
    ],
)
def test_wrong_trees_are_refused(item_of_leaf, message):
    with pytest.raises(InputError, match=message):
        Tree(Shape(2, 2, 2), np.array(item_of_leaf))


def test_a_tree_cannot_be_changed():
    tree = random_tree(8, np.random.default_rng(0))
    with pytest.raises(ValueError, match="read-only"):
        tree.item_of_leaf[0] = 3
    with pytest.raises(ValueError, match="read-only"):
        tree.leaf_of_item[0] = 3


@pytest.mark.parametrize("branching", [1, 257])
def test_branching_out_of_range(branching):
    with pytest.raises(InputError, match=r"outside 2\.\.256"):
        random_tree(10, np.random.default_rng(0), branching=branching)
    with pytest.raises(InputError, match="below 1"):
        choose_shape(0)


@pytest.mark.parametrize("count", [0, 1, 30, 900, 1700, 1998, 1999, 2000])
def test_counts_of_allowed_items(count, monkeypatch):
    """Few allowed items, and few others, are counted without a pass over the leaves."""
    rng = np.random.default_rng(count)
    tree = random_tree(2000, rng, branching=4)
    grown = tree.with_items(np.array([np.flatnonzero(tree.item_of_leaf < 0)[0], -1], np.int32))
    for each in (tree, grown):
        allowed = rng.permutation(each.num_items) < count
        leaves = each.leaf_of_item[allowed]
        mask = np.zeros(each.shape.capacity, bool)
        mask[leaves[leaves >= 0]] = True
        expected, before = each.counts_below(mask), [counts.copy() for counts in each.live_counts]
        with monkeypatch.context() as patched:
            if not 125 < count < 1875:
                patched.setattr(Tree, "_leaves_with", lambda *_: pytest.fail("all leaves were counted"))
            found = each.counts_of(allowed)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == np.int32
            np.testing.assert_array_equal(ours, theirs)
        for after, counts in zip(each.live_counts, before, strict=True):
            np.testing.assert_array_equal(after, counts)
