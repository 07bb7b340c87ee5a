"""The assignment walk keeps the tree's invariants, honours capacities and order, and equals brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.tree import Shape, Tree, random_tree
from beamwood.tree.assign import assign, num_candidates, stop_after


def table_score(tree, seed, *, whole=False):
    """Scores from one table [N, n] per level, independent of the parent."""
    rng = np.random.default_rng(seed)
    draws = (lambda size: rng.integers(0, 3, size).astype(float)) if whole else rng.normal
    tables = [draws(size=(tree.num_items, tree.shape.level_size(level))) for level in range(tree.shape.depth + 1)]

    def score(items, parents, level, next_level):
        count = num_candidates(tree.shape, level, next_level)
        return tables[next_level][items[:, None], parents[:, None] * count + np.arange(count)]

    return score, tables


def plain_assign(tree, tables, num_instances, stride):
    """The rule in plain loops over dictionaries."""
    shape = tree.shape
    spread_tree = Tree.of_order(np.arange(tree.num_items), shape)
    place, level = dict.fromkeys(range(tree.num_items), 0), 0
    while level < shape.depth:
        below = level + 1
        while below < shape.depth and num_candidates(shape, level, below + 1) <= shape.branching**stride:
            below += 1
        count = num_candidates(shape, level, below)
        room = {node: int(spread_tree.live_counts[below][node]) for node in range(shape.level_size(below))}
        new = {}
        for item in sorted(range(tree.num_items), key=lambda item: (-num_instances[item], item)):
            nodes = [node for node in range(place[item] * count, (place[item] + 1) * count) if room[node]]
            old = int(shape.ancestors(tree.leaf_of_item[item], below))
            if num_instances[item]:
                new[item] = min(nodes, key=lambda node: (-tables[below][item, node], node))
            elif old in nodes:
                new[item] = old
            else:
                new[item] = min(nodes, key=lambda node: (-room[node], node))
            room[new[item]] -= 1
        place, level = new, below
    return [place[item] for item in range(tree.num_items)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(2, 4), st.integers(1, 8), st.integers(0, 10**6), st.booleans())
def test_the_walk_equals_plain_loops(num_items, branching, stride, seed, ties):
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng, branching=branching)
    score, tables = table_score(tree, seed, whole=ties)
    num_instances = rng.integers(0, 4, num_items)
    new = assign(tree, score, num_instances=num_instances, stride=stride)
    assert new.leaf_of_item.tolist() == plain_assign(tree, tables, num_instances, stride)
    even = Tree.of_order(np.arange(num_items), tree.shape)
    assert all(np.array_equal(a, b) for a, b in zip(new.live_counts, even.live_counts, strict=True))
    assert sorted(new.item_of_leaf[new.item_of_leaf >= 0].tolist()) == list(range(num_items))


def test_calls_of_the_score_function_have_complete_parents(monkeypatch):
    tree = random_tree(300, np.random.default_rng(0))
    score, _ = table_score(tree, 1)
    expected = assign(tree, score, num_instances=np.ones(300), stride=3)
    monkeypatch.setattr("beamwood.tree.assign.CALL_ITEMS", 40)
    seen = []

    def watched(items, parents, level, next_level):
        assert (np.diff(parents) >= 0).all()
        seen.append((level, set(parents.tolist()), len(items)))
        return score(items, parents, level, next_level)

    assert np.array_equal(
        assign(tree, watched, num_instances=np.ones(300), stride=3).item_of_leaf, expected.item_of_leaf
    )
    stops = sorted({at for at, _, _ in seen})
    assert len(stops) > 2
    for level in stops:
        parents = [parents for at, parents, _ in seen if at == level]
        assert sum(map(len, parents)) == len(set().union(*parents))
        assert sum(count for at, _, count in seen if at == level) == 300
    assert len(seen) > len(stops)


def test_known_answer_the_papers_figure_2():
    # Items a..h, d = 2, three levels: node 4 is best for f but has b and c already, so f goes to its next best, node 5.
    tree = Tree(Shape(2, 2, 3), np.arange(8, dtype=np.int32))
    a, b, c, d, e, f, g, h = range(8)
    wishes = {a: [3], b: [4], c: [4], d: [3], e: [5], f: [4, 5], g: [6], h: [6]}

    def score(items, parents, level, next_level):
        values = np.zeros((len(items), num_candidates(tree.shape, level, next_level)))
        if level == 0:
            for row, item in enumerate(items):
                for rank, node in enumerate(wishes[int(item)]):
                    values[row, node - 3] = 10 - rank
        return values

    # All have the same number of instances, so a comes first.
    new = assign(tree, score, num_instances=np.ones(8), stride=2)
    pairs = [set(new.item_of_leaf[2 * node : 2 * node + 2].tolist()) for node in range(4)]
    assert pairs == [{a, d}, {b, c}, {e, f}, {g, h}]


def test_a_stride_stops_where_the_paper_does():
    complete = Shape(2, 2, 13)
    assert [stop_after(complete, level, 7) for level in (0, 7)] == [7, 13]
    wide = Shape(7, 2, 11)
    assert [stop_after(wide, level, 7) for level in (0, 5)] == [5, 11]
    assert stop_after(Shape(9, 2, 3), 0, 1) == 1


def test_an_update_is_better_than_chance_and_reproducible():
    tree = random_tree(500, np.random.default_rng(3))
    score, tables = table_score(tree, 7)

    def total(other):
        return tables[-1][np.arange(500), other.leaf_of_item].sum()

    flat = assign(tree, score, num_instances=np.ones(500), stride=tree.shape.depth)
    assert total(flat) > total(tree) + 500
    again = assign(tree, score, num_instances=np.ones(500), stride=tree.shape.depth)
    assert np.array_equal(flat.item_of_leaf, again.item_of_leaf)


def test_items_without_instances_keep_their_place_if_free():
    tree = Tree.of_order(np.random.default_rng(0).permutation(200))

    def score(items, parents, level, next_level):
        return np.zeros((len(items), num_candidates(tree.shape, level, next_level)))

    still = assign(tree, score, num_instances=np.zeros(200), stride=3)
    assert np.array_equal(still.item_of_leaf, tree.item_of_leaf)


def test_unsigned_counts_are_counts():
    """Negated they would wrap, and items without instances would choose first."""
    tree = random_tree(30, np.random.default_rng(0), branching=3)
    score, _ = table_score(tree, 1)
    counts = np.random.default_rng(2).integers(0, 3, 30)
    signed, unsigned = (
        assign(tree, score, num_instances=each, stride=2) for each in (counts, counts.astype(np.uint32))
    )
    assert np.array_equal(signed.item_of_leaf, unsigned.item_of_leaf)


def test_invalid_shapes_are_refused():
    tree = random_tree(10, np.random.default_rng(0))
    score, _ = table_score(tree, 1)
    with pytest.raises(InputError, match="stride=0"):
        assign(tree, score, num_instances=np.ones(10), stride=0)
    with pytest.raises(InputError, match="num_instances has shape"):
        assign(tree, score, num_instances=np.ones(9))
    with pytest.raises(InputError, match="score returned NaN"):
        assign(tree, lambda *call: score(*call) * np.nan, num_instances=np.ones(10))
    with pytest.raises(InputError, match="score returned shape"):
        assign(tree, lambda *call: score(*call)[:, :1], num_instances=np.ones(10))
