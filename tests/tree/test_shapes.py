"""The papers' complete trees, compact trees, and trees from codes."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.tree import Shape, category_tree, choose_shape, kmeans_tree, random_tree, tree_of_codes
from real_data import real_data

# A complete tree with branching 3: the root, 1..3, 4..12, 13..39.
TERNARY = [[], [1, 2, 3], list(range(4, 13)), list(range(13, 40))]


def test_the_papers_tree_of_7129_items():
    """DTR, section 6.1: binary, with 13 levels; the compact shape is wider at the root and has fewer empty leaves."""
    assert choose_shape(7129, 2, "complete") == Shape(2, 2, 13)
    assert choose_shape(7129, 2) == choose_shape(7129, 2, "compact") == Shape(7, 2, 11)


@given(st.integers(1, 10**6), st.integers(2, 256))
def test_a_complete_tree_has_the_fewest_sufficient_levels(num_items, branching):
    shape = choose_shape(num_items, branching, "complete")
    assert (shape.root_fanout, shape.branching) == (branching, branching)
    assert shape.capacity == branching**shape.depth >= num_items
    assert shape.depth == 1 or branching ** (shape.depth - 1) < num_items


@pytest.mark.parametrize("shape", ["compact", "complete", Shape(5, 3, 3)])
def test_every_builder_accepts_a_shape(shape):
    rng = np.random.default_rng(0)
    trees = [
        random_tree(40, rng, branching=3, shape=shape),
        category_tree(np.arange(40) % 7, rng, branching=3, shape=shape),
        kmeans_tree(rng.normal(size=(40, 5)), rng, branching=3, shape=shape),
    ]
    for tree in trees:
        assert tree.shape == choose_shape(40, 3, shape)
        assert sorted(tree.item_of_leaf[tree.item_of_leaf >= 0]) == list(range(40))


def test_an_unknown_shape_gets_a_suggestion():
    with pytest.raises(InputError, match=r"shape='complet' is unknown; did you mean 'complete'\?"):
        choose_shape(7, 2, "complet")


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint16])
def test_items_are_placed_by_their_codes(dtype):
    """In the planted tree the parent of code c is (c - 1) // 3, up to the root."""
    codes = np.random.default_rng(0).permutation(TERNARY[3])[:20].astype(dtype)
    tree = tree_of_codes(codes, branching=3)
    assert tree.shape == Shape(3, 3, 3)
    nodes = codes.astype(int)
    for level in (3, 2, 1):
        assert np.array_equal(tree.shape.ancestors(tree.leaf_of_item, level), nodes - TERNARY[level][0])
        nodes = (nodes - 1) // 3
    assert not nodes.any()


def test_the_shape_follows_the_level_of_the_codes():
    assert tree_of_codes(np.array([2])).shape == Shape(2, 2, 1)
    assert tree_of_codes(np.array([6, 3])).shape == Shape(2, 2, 2)
    assert tree_of_codes(np.array([6, 3])).item_of_leaf.tolist() == [1, -1, -1, 0]


@pytest.mark.parametrize(
    ("codes", "says"),
    [
        ([3, 4, 3], "items 0 and 2 both have the code 3; give each its own"),
        ([3, -1, 4, -1], "2 of 4 items have no code, the first is item 1; give all"),
        ([7, 14, 3], r"of item 2 is 3, outside 7\.\.14, the nodes of level 3, of which that of item 1 is 14"),
        ([0], r"the code of item 0 is 0, outside 1\.\.2"),
        ([2**40], "the code of item 0 is 1099511627776, a node of level 40; no tree is so deep"),
        ([1.0, 2.0], r"codes is float64\(2,\); give one whole number an item"),
        ([], "give one whole number an item"),
    ],
)
def test_codes_that_form_no_tree_are_refused(codes, says):
    with pytest.raises(InputError, match=says):
        tree_of_codes(np.array(codes))


@pytest.mark.real_data
def test_the_authors_own_tree():
    """The codes of DTR's authors are the 14th level of a binary heap, one for each of 7,129 items."""
    path = real_data("mind_dtr") / "items.parquet"
    codes = pl.read_parquet(path)["dtr_tree_code"].to_numpy()
    tree = tree_of_codes(codes)
    assert tree.shape == choose_shape(len(codes), 2, "complete") == Shape(2, 2, 13)
    assert np.array_equal(tree.leaf_of_item, codes - 8191)
