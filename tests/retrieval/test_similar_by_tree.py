"""Items near several given ones in a tree are those that a comparison with each of them finds."""

import numpy as np
import pytest

from beamwood.retrieval.similar import similar_items
from beamwood.types import ItemLists, SearchOptions
from retrieval_cases import tree_searcher

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
