"""The outline of a tree: counts, categories and lost labels of each node add up from the leaves to the root."""

import numpy as np
import polars as pl
import pytest

from beamwood.theory.outline import tree_outline
from beamwood.tree import Shape, Tree

ORDER = [3, 0, -1, 5, 1, 4, 2, -1, 6, 7, -1, -1]  # Leaves of 3 nodes with 2 children of 2 each.
NAMES = pl.Series([f"item {n}" for n in range(8)])
COUNTS = np.array([5, 0, 7, 1, 2, 9, 4, 4])
CATEGORIES = pl.Series([["a"], ["a", "b"], ["b"], None, ["b"], ["a", "c"], [], ["c"]])


@pytest.fixture
def tree():
    return Tree(Shape(3, 2, 3), np.array(ORDER, np.int32))


def drawn(tree, **options):
    labels, lost_on = np.array([0, 5, 5, 2, 7]), np.array([0, 1, 3, 2, 1])
    return tree_outline(tree, NAMES, COUNTS, CATEGORIES, labels, lost_on, **options)


def test_each_node_is_the_sum_of_its_children(tree):
    nodes = drawn(tree)
    assert nodes[0].items == 8
    assert nodes[0].share == 1
    for node in nodes:
        children = [nodes[place] for place in node.below]
        if children:
            assert sum(child.items for child in children) == node.items
            assert sum(child.share for child in children) == pytest.approx(node.share)
            assert sum(child.labels for child in children) == node.labels
            assert [child.level for child in children] == [node.level + 1] * len(children)
        else:
            assert node.items == 1
            assert node.level == 3
    assert sum(node.lost for node in nodes) == 4
    assert len(nodes) == 1 + 3 + 5 + 8
    places = [place for node in nodes for place in node.below]
    assert sorted(places) == list(range(1, len(nodes)))


def test_items_below_a_node(tree):
    nodes = drawn(tree)
    first = next(node for node in nodes if (node.level, node.number) == (1, 0))
    assert first.examples == ("item 5", "item 0", "item 3")
    assert [(part.name, part.share) for part in first.categories] == [("a", 2 / 3), ("c", 1 / 3)]
    assert (first.labels, first.lost) == (3, 1)
    leaf = next(node for node in nodes if node.level == 3 and node.examples == ("item 5",))
    assert (leaf.labels, leaf.lost) == (2, 1)
    assert nodes[0].lost == 0


def test_as_many_complete_levels_as_fit(tree):
    assert {node.level for node in drawn(tree, most=16)} == {0, 1, 2}
    assert {node.level for node in drawn(tree, most=4)} == {0, 1}
    assert {node.level for node in drawn(tree, most=3)} == {0}
    assert all(node.below == () for node in drawn(tree, most=16) if node.level == 2)


def test_without_categories_and_counts(tree):
    nodes = tree_outline(tree, NAMES, np.zeros(8, int), None, np.array([1]), np.array([0]))
    assert nodes[0].categories == ()
    assert nodes[0].share == 0
