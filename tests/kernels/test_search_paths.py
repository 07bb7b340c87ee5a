"""Beam search over path scores: the native core against the reference, and both against the definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.kernels import native, reference
from beamwood.kernels.search import DinSearch
from din_cases import random_case

native_only = pytest.mark.skipif(native() is None, reason="the native core was not built")


def path_scores(tree, weights, histories):
    """float64[B, capacity]: the sum of log sigmoid over all ancestors of each leaf, the leaf included."""
    shape = tree.shape
    total = np.zeros((len(histories), shape.capacity))
    for level in range(1, shape.depth + 1):
        nodes = np.arange(shape.level_size(level))
        for row, history in enumerate(histories):
            values = reference.score_level(weights, shape, level, history, nodes).astype(float)
            total[row] += -np.logaddexp(0, -values)[shape.ancestors(np.arange(shape.capacity), level)]
    return total


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    num_items=st.integers(1, 200),
    branching=st.sampled_from([2, 3, 16]),
    beam_width=st.integers(1, 40),
)
def test_native_equals_the_reference(seed, num_items, branching, beam_width):
    tree, weights, histories = random_case(seed, num_items=num_items, branching=branching, num_rows=4)
    expected = reference.beam_search(
        weights, tree.shape, histories, beam_width=beam_width, k=beam_width, live=tree.live_counts, by_path=True
    )
    search = DinSearch(weights, tree.shape, by_path=True)
    got = search.beam(histories, beam_width=beam_width, k=beam_width, live=tree.live_counts)
    assert np.array_equal(got.scored, expected.scored)
    found = expected.leaves >= 0
    assert np.array_equal(got.leaves >= 0, found)
    assert np.allclose(got.scores[found], expected.scores[found], atol=1e-4)
    assert np.mean(got.leaves == expected.leaves) > 0.9
    assert np.allclose(search.score(histories, got.leaves)[found], got.scores[found], atol=1e-4)


def test_exact_is_the_best_of_all_paths():
    tree, weights, histories = random_case(5, num_items=90, branching=3, num_rows=5)
    live = tree.item_of_leaf >= 0
    truth = np.where(live, path_scores(tree, weights, histories), -np.inf)
    search = DinSearch(weights, tree.shape, by_path=True)
    found = search.exact(histories, 10, live=tree.live_counts)
    assert np.array_equal(found.leaves, np.argsort(-truth, axis=1, kind="stable")[:, :10])
    assert np.allclose(found.scores, np.take_along_axis(truth, found.leaves.astype(int), axis=1), atol=1e-4)
    assert (search.exact(histories, 300, live=tree.live_counts).leaves[:, 90:] == -1).all()


@native_only
def test_extreme_scores_do_not_overflow():
    tree, weights, histories = random_case(6, num_items=40, num_rows=3)
    last = weights.layers[-1]
    layers = (*weights.layers[:-1], type(last)(last.weight * 1e4, last.bias, last.slope))
    steep = type(weights)(weights.nodes, weights.attention_in, weights.attention_out, weights.windows, layers)
    found = DinSearch(steep, tree.shape, by_path=True).beam(histories, beam_width=8, k=8, live=tree.live_counts)
    assert np.isfinite(found.scores).all()
    assert (found.scores <= 0).all()


def test_bf16_is_refused():
    tree, weights, _ = random_case(7)
    with pytest.raises(InputError, match="precision='bf16' rounds too much"):
        DinSearch(weights, tree.shape, precision="bf16", by_path=True)
