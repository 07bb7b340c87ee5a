"""Walks down the tree have the stated probabilities: the paper's figure, sums to 1, and a chi-square test."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from beamwood.errors import InputError
from beamwood.kernels.paths import sample_paths
from beamwood.tree import Shape, Tree, random_tree


def table_score(shape, num_rows, seed, calls=None):
    """A score function over random tables, and the tables, one [B, n] per level."""
    rng = np.random.default_rng(seed)
    tables = {level: rng.normal(size=(num_rows, shape.level_size(level))) for level in range(1, shape.depth + 1)}

    def score(level, nodes):
        if calls is not None:
            calls.append((level, nodes))
        return tables[level] if nodes is None else np.take_along_axis(tables[level], nodes, axis=1)

    return score, tables


def exact_log_q(tree, tables, row):
    """log q of every node of every level by equation 22-23, in plain loops."""
    shape, log_q = tree.shape, {(0, 0): 0.0}
    for level in range(1, shape.depth + 1):
        fanout = shape.root_fanout if level == 1 else shape.branching
        for parent in range(shape.level_size(level - 1)):
            children = range(parent * fanout, (parent + 1) * fanout)
            alive = [child for child in children if tree.live_counts[level][child]]
            total = sum(np.exp(tables[level][row, child]) for child in alive)
            for child in children:
                step = tables[level][row, child] - np.log(total) if child in alive else -np.inf
                log_q[level, child] = log_q[level - 1, parent] + step
    return log_q


def sample(tree, score, num_rows, num_paths, seed=0):
    rng = np.random.default_rng(seed)
    uniforms = rng.random((tree.shape.depth, num_rows, num_paths))
    targets = tree.leaf_of_item[rng.integers(0, tree.num_items, (num_rows, 2))].astype(np.int64)
    return sample_paths(score, tree.shape, tree.live_counts, uniforms, targets), targets


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(2, 4), st.integers(1, 9), st.integers(0, 10**6))
def test_walks_are_paths_with_their_exact_probabilities(num_items, branching, num_paths, seed):
    tree = random_tree(num_items, np.random.default_rng(seed), branching=branching)
    shape, num_rows = tree.shape, 3
    score, tables = table_score(shape, num_rows, seed)
    paths, targets = sample(tree, score, num_rows, num_paths, seed)
    assert paths.nodes.shape == (shape.depth, num_rows, num_paths)
    for row in range(num_rows):
        log_q = exact_log_q(tree, tables, row)
        for level in range(1, shape.depth + 1):
            total = sum(np.exp(log_q[level, node]) for node in range(shape.level_size(level)))
            assert total == pytest.approx(1)
            nodes = paths.nodes[level - 1, row]
            assert (tree.live_counts[level][nodes] > 0).all()
            assert np.allclose(paths.log_q[level - 1, row], [log_q[level, node] for node in nodes], atol=1e-5)
            own = shape.ancestors(targets[row], level)
            expected = [log_q[level, node] for node in own]
            assert np.allclose(paths.log_q_targets[level - 1, row], expected, atol=1e-5)
            if level > 1:
                assert np.array_equal(nodes // shape.branching, paths.nodes[level - 2, row])


def test_draws_follow_the_stated_distribution():
    tree = random_tree(30, np.random.default_rng(1), branching=2)
    score, tables = table_score(tree.shape, 1, 4)
    # Few walks per call, so that deep levels are not fully scored.
    counts = {level: np.zeros(tree.shape.level_size(level)) for level in range(1, tree.shape.depth + 1)}
    rng = np.random.default_rng(9)
    for _ in range(4000):
        uniforms = rng.random((tree.shape.depth, 1, 3))
        paths = sample_paths(score, tree.shape, tree.live_counts, uniforms, tree.leaf_of_item[None, :1])
        for level, nodes in enumerate(paths.nodes, start=1):
            counts[level] += np.bincount(nodes[0], minlength=len(counts[level]))
    log_q = exact_log_q(tree, tables, 0)
    for level, seen in counts.items():
        expected = np.exp([log_q[level, node] for node in range(len(seen))]) * seen.sum()
        assert (seen[expected == 0] == 0).all()
        alive = expected > 0
        assert chisquare(seen[alive], expected[alive]).pvalue > 1e-3, level


def test_known_answer_the_papers_sampling_figure():
    # 0 -> 1 (.3) -> 3 (.6) -> 8 (.8): q(3) = .18, q(8) = .144.
    shape = Shape(2, 2, 3)
    tree = Tree(shape, np.arange(8, dtype=np.int32))
    p = {1: [0.3, 0.7], 2: [0.6, 0.4, 0.5, 0.5], 3: [0.2, 0.8, 0.5, 0.5, 0.1, 0.9, 0.3, 0.7]}

    def score(level, nodes):
        values = np.log(p[level])[None]
        return values if nodes is None else values[:, nodes[0]]

    # Heap number 8 is leaf 1.
    uniforms = np.array([0.1, 0.1, 0.9]).reshape(3, 1, 1)
    paths = sample_paths(score, shape, tree.live_counts, uniforms, np.array([[1]]))
    assert paths.nodes[:, 0, 0].tolist() == [0, 0, 1]
    assert np.allclose(np.exp(paths.log_q[:, 0, 0]), [0.3, 0.18, 0.144])
    assert np.allclose(np.exp(paths.log_q_targets[:, 0, 0]), [0.3, 0.18, 0.144])


def test_theorem_3_parents_that_sum_their_children_give_the_softmax():
    tree = random_tree(32, np.random.default_rng(0))
    shape, rng = tree.shape, np.random.default_rng(2)
    tables = {shape.depth: rng.normal(size=(1, shape.capacity))}
    for level in range(shape.depth - 1, 0, -1):
        children = tables[level + 1].reshape(1, -1, shape.branching)
        tables[level] = np.log(np.exp(children).sum(axis=2))
    log_q = exact_log_q(tree, tables, 0)
    paths, _ = sample(tree, lambda level, nodes: tables[level] if nodes is None else tables[level][:, nodes[0]], 1, 20)
    for level in range(1, shape.depth + 1):
        softmax = tables[level][0] - np.log(np.exp(tables[level][0]).sum())
        assert np.allclose([log_q[level, node] for node in range(len(softmax))], softmax)
        assert np.allclose(paths.log_q[level - 1, 0], softmax[paths.nodes[level - 1, 0]], atol=1e-5)


def test_only_children_of_distinct_visited_nodes_are_scored():
    tree = random_tree(1 << 12, np.random.default_rng(0))
    calls = []
    score, _ = table_score(tree.shape, 2, 0, calls)
    paths, _ = sample(tree, score, 2, 5)
    for level, nodes in calls:
        if nodes is None:
            assert tree.shape.level_size(level) <= 2 * 7
        else:
            assert nodes.shape[1] <= 2 * 7
            for row in range(2):
                visited = set((nodes[row] // 2).tolist())
                assert visited >= set(paths.nodes[level - 2, row].tolist())


def test_extreme_scores_keep_log_q_finite_and_uniforms_at_the_edge_draw_live_nodes():
    tree = Tree.of_order(np.arange(5), Shape(2, 2, 3))
    score, tables = table_score(tree.shape, 1, 0)
    for table in tables.values():
        table *= 300
    for edge in (0.0, np.nextafter(1, 0)):
        uniforms = np.full((3, 1, 4), edge)
        paths = sample_paths(
            score, tree.shape, tree.live_counts, uniforms, tree.leaf_of_item[None, :1].astype(np.int64)
        )
        assert np.isfinite(paths.log_q).all()
        assert np.isfinite(paths.log_q_targets).all()
        assert (tree.item_of_leaf[paths.nodes[-1]] >= 0).all()


def test_invalid_shapes_are_refused():
    tree = Tree.of_order(np.arange(5), Shape(2, 2, 3))
    score, _ = table_score(tree.shape, 1, 0)
    uniforms, target = np.zeros((3, 1, 4)), tree.leaf_of_item[None, :1].astype(np.int64)
    empty = np.flatnonzero(tree.item_of_leaf < 0)[None, :1]
    with pytest.raises(InputError, match="uniforms_HBM has shape"):
        sample_paths(score, tree.shape, tree.live_counts, uniforms[:2], target)
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        sample_paths(score, tree.shape, tree.live_counts, uniforms + 1, target)
    with pytest.raises(InputError, match="without an item"):
        sample_paths(score, tree.shape, tree.live_counts, uniforms, empty)
    with pytest.raises(InputError, match="live does not fit"):
        sample_paths(score, tree.shape, tree.live_counts[1:], uniforms, target)
    with pytest.raises(InputError, match="NaN"):
        sample_paths(lambda level, nodes: np.full((1, 2), np.nan), tree.shape, tree.live_counts, uniforms, target)
    with pytest.raises(InputError, match="score returned shape"):
        sample_paths(lambda level, nodes: np.zeros((1, 3)), tree.shape, tree.live_counts, uniforms, target)
