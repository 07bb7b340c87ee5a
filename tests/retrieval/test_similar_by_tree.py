"""Items near several given ones in a tree are those that a comparison with each of them finds."""

from typing import get_args

import numpy as np
import pytest

from beamwood.kernels.mixtures import Mixtures
from beamwood.retrieval.new_items.added import with_items
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.similar import By, similar_items
from beamwood.tree import Shape, Tree
from beamwood.types import ItemLists, SearchOptions
from din_cases import random_weights
from retrieval_cases import tree_searcher, vector_searcher

NUM_ITEMS = 200


def by_comparing_all(searcher, given, k):
    """The items by the deepest common ancestor with a given one, then by distance of leaves, then by index."""
    tree, shape = searcher.tree, searcher.tree.shape

    def key(item, other):
        leaf, at = int(tree.leaf_of_item[item]), int(tree.leaf_of_item[other])
        common = sum(
            leaf // shape.leaves_below(level) == at // shape.leaves_below(level) for level in range(1, shape.depth + 1)
        )
        return -common, abs(leaf - at)

    others = [item for item in range(NUM_ITEMS) if item not in given]
    return sorted(others, key=lambda item: (min(key(item, other) for other in given), item))[:k]


@pytest.mark.parametrize("count", [1, 2, 3, 17, 60])
def test_equals_a_comparison_with_each(count):
    rng = np.random.default_rng(count)
    for seed in range(4):
        searcher = tree_searcher(NUM_ITEMS, seed)
        for k in (1, 9, 100):
            given = rng.choice(NUM_ITEMS, count, replace=False).astype(np.int32)
            found = similar_items(searcher, given, k, SearchOptions(), by="tree").items[0]
            assert found[found >= 0].tolist() == by_comparing_all(searcher, set(given.tolist()), k)


def test_excluded_items_leave_their_places_to_the_next_ones():
    searcher, given = tree_searcher(NUM_ITEMS), np.array([5, 120], np.int32)
    nearest = by_comparing_all(searcher, {5, 120}, NUM_ITEMS)
    options = SearchOptions(ItemLists.from_lists([np.sort(nearest[:30])]))
    assert similar_items(searcher, given, 9, options, by="tree").items[0].tolist() == nearest[30:39]


def test_items_are_not_compared_with_each_given_one(monkeypatch):
    searcher, calls = tree_searcher(NUM_ITEMS), []
    plain = type(searcher.tree.shape).ancestors
    monkeypatch.setattr(type(searcher.tree.shape), "ancestors", lambda *given: calls.append(1) or plain(*given))
    similar_items(searcher, np.arange(150, dtype=np.int32), 9, SearchOptions(), by="tree")
    assert len(calls) == 2 * searcher.tree.shape.depth


def full_tree():
    """Every leaf holds an item, so that new ones stand beside the tree."""
    shape = Shape(5, 4, 3)
    rng = np.random.default_rng(0)
    weights = random_weights(rng, shape.num_nodes, similarity=6)
    return TreeSearcher(weights, Tree.of_order(rng.permutation(shape.capacity), shape), beam_width=shape.capacity)


@pytest.mark.parametrize("leaf", [0, 1, 30, 79])
def test_an_item_beside_the_tree_is_as_near_as_the_item_that_it_is_like(leaf):
    fitted = full_tree()
    known, like = fitted.num_items, int(fitted.tree.item_of_leaf[leaf])
    searcher = with_items(fitted, Mixtures.of([{like: 1.0}, {like: 0.4, int(fitted.tree.item_of_leaf[40]): 0.6}]))
    assert searcher.num_beside == 2
    for k in (1, 9, known + 1):
        found = similar_items(searcher, np.array([like], np.int32), k, SearchOptions(), by="tree").items[0].tolist()
        assert found[0] == known
        plain = similar_items(fitted, np.array([like], np.int32), known, SearchOptions(), by="tree").items[0].tolist()
        expected = [known, *plain[: known - 1]]
        expected.insert(expected.index(int(fitted.tree.item_of_leaf[40])) + 1, known + 1)
        assert found == expected[:k]


def vectors_and_tree():
    return Blend([Part(vector_searcher(NUM_ITEMS)), Part(tree_searcher(NUM_ITEMS))])


@pytest.mark.parametrize("make", [vectors_and_tree, lambda: tree_searcher(NUM_ITEMS), full_tree])
@pytest.mark.parametrize("by", get_args(By))
def test_items_without_a_mixture_come_last_and_given_ones_never(make, by):
    fitted = make()
    known = fitted.num_items
    searcher = with_items(fitted, Mixtures.of([{}, {5: 1.0}, {}]))
    given = np.array([7, known], np.int32)
    found = similar_items(searcher, given, known + 3, SearchOptions(), by=by).items[0].tolist()
    others = [item for item in range(known + 2) if item not in (7, known)]
    assert sorted(found[:known]) == others
    assert found[known:] == [known + 2, -1, -1]
    assert (similar_items(searcher, given[1:], 9, SearchOptions(), by=by).items == -1).all()
