"""Rectified labels equal their definition in loops, and the paper's example."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.kernels import native
from beamwood.kernels.labels import one_step_labels, rectified_levels
from beamwood.tree import Shape, Tree, random_tree


@pytest.fixture(params=["native", "reference"])
def path(request, monkeypatch):
    if request.param == "native" and native() is None:
        pytest.skip("the native core is not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", request.param)
    return request.param


def best_below(scores_N, tree, level, node):
    """The best item below a node by definition: highest score, then lowest index; None without items."""
    below = tree.shape.leaves_below(level)
    items = tree.item_of_leaf[node * below : (node + 1) * below]
    return min((item for item in items if item >= 0), key=lambda item: (-scores_N[item], item), default=None)


def plain_labels(scores_N, tree, target):
    """z_0..z_H by the definition, and the one-step form of levels 1..H."""
    shape, leaf = tree.shape, tree.leaf_of_item[target]
    z = [best_below(scores_N, tree, level, shape.ancestors(leaf, level)) == target for level in range(shape.depth + 1)]
    steps = []
    for level in range(1, shape.depth):
        best = best_below(scores_N, tree, level, shape.ancestors(leaf, level))
        child = shape.ancestors(leaf, level + 1)
        steps.append(shape.ancestors(tree.leaf_of_item[best], level + 1) == child)
    return z, [*steps, True]


def case(num_items, branching, rows, seed, *, distinct=True):
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng, branching=branching)
    if distinct:
        queries, vectors, bias = rng.normal(size=(rows, 3)), rng.normal(size=(num_items, 3)), rng.normal(size=num_items)
    else:
        # Small integers are exact in float32, so ties are exact.
        queries, vectors = rng.integers(0, 2, (rows, 2)), rng.integers(0, 2, (num_items, 2))
        bias = rng.integers(0, 2, num_items)
    targets = rng.integers(0, num_items, rows)
    return tree, queries.astype(np.float32), vectors.astype(np.float32), bias.astype(np.float32), targets


def levels_of(queries, vectors, tree, targets, bias=0):
    """The levels of one target per row, by vector products, as for an estimator with vectors."""
    return rectified_levels(queries @ vectors.T + bias, tree, targets[:, None])[:, 0]


def steps_of(queries, vectors, tree, targets, bias=0):
    return one_step_labels(queries @ vectors.T + bias, tree, targets[:, None])[:, 0]


@pytest.mark.parametrize("distinct", [True, False], ids=["distinct", "ties"])
@pytest.mark.parametrize(("num_items", "branching"), [(1, 2), (2, 2), (23, 2), (64, 4), (50, 3), (9, 16)])
def test_labels_equal_the_definition(num_items, branching, distinct, path):
    tree, queries, vectors, bias, targets = case(num_items, branching, 40, num_items, distinct=distinct)
    levels = levels_of(queries, vectors, tree, targets, bias)
    steps = steps_of(queries, vectors, tree, targets, bias)
    assert levels.dtype == np.uint8
    for row, target in enumerate(targets):
        z, one_step = plain_labels(vectors @ queries[row] + bias, tree, target)
        assert z == [level >= levels[row] for level in range(tree.shape.depth + 1)]
        assert steps[row].tolist() == one_step


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(2, 5), st.integers(0, 10**6), st.booleans())
def test_the_label_is_the_product_of_the_steps_below(num_items, branching, seed, distinct):
    tree, queries, vectors, bias, targets = case(num_items, branching, 7, seed, distinct=distinct)
    levels = levels_of(queries, vectors, tree, targets, bias)
    steps = steps_of(queries, vectors, tree, targets, bias)
    z = levels[:, None] <= np.arange(1, tree.shape.depth + 1)
    assert np.array_equal(z, np.cumprod(steps[:, ::-1], axis=1)[:, ::-1].astype(bool))


def test_binary_levels_are_the_bit_length_of_the_nearest_better_leaf():
    tree, queries, vectors, bias, targets = case(64, 2, 50, 5)
    assert tree.shape.capacity == 64
    levels = levels_of(queries, vectors, tree, targets, bias)
    for row, target in enumerate(targets):
        scores, leaf = vectors @ queries[row] + bias, int(tree.leaf_of_item[target])
        better = [int(tree.leaf_of_item[item]) for item in range(64) if scores[item] > scores[target]]
        bits = min((leaf ^ other).bit_length() for other in better) if better else tree.shape.depth + 1
        assert levels[row] == tree.shape.depth - bits + 1


def test_known_answer_item_f_of_the_papers_illustration(path):
    # Appendix F: below node 1 (items a..h) c is best with .13, so f (.11) has label 0; below node 4 f is best: label 1.
    probabilities = np.array([0.05, 0.02, 0.13, 0.04, 0.06, 0.11, 0.03, 0.08, 0.2, 0.28], np.float32)
    tree = Tree(Shape(2, 2, 4), np.array([*range(10), -1, -1, -1, -1, -1, -1], np.int32))
    level = levels_of(np.ones((1, 1), np.float32), probabilities[:, None], tree, np.array([5]))
    # Node 1 is on level 1, node 4 on level 2, as in the figure.
    assert level.tolist() == [2]


def test_many_rows_are_processed_in_blocks(path, monkeypatch):
    tree, queries, vectors, bias, targets = case(40, 2, 30, 8)
    whole = levels_of(queries, vectors, tree, targets, bias)
    steps = steps_of(queries, vectors, tree, targets, bias)
    monkeypatch.setattr("beamwood.kernels.labels.BLOCK_ROWS", 7)
    assert np.array_equal(levels_of(queries, vectors, tree, targets, bias), whole)
    assert np.array_equal(steps_of(queries, vectors, tree, targets, bias), steps)
    assert len(levels_of(queries[:0], vectors, tree, targets[:0])) == 0


def test_invalid_shapes_are_refused():
    tree, queries, vectors, bias, targets = case(20, 2, 5, 1)
    scores, targets = queries @ vectors.T + bias, targets[:, None]
    for labels in (rectified_levels, one_step_labels):
        with pytest.raises(InputError, match="scores_BN has shape"):
            labels(scores[:, :-1], tree, targets)
        with pytest.raises(InputError, match=r"targets_BT must hold items in 0\.\.19"):
            labels(scores, tree, targets + 20)
        with pytest.raises(InputError, match="targets_BT has shape"):
            labels(scores, tree, targets[:3])
        with pytest.raises(InputError, match="NaN"):
            labels(np.where(scores == scores[2, 1], np.nan, scores), tree, targets)
