"""The numpy reference: folded scores equal the plain equations, the beam equals brute force at full width."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import ArtefactError
from beamwood.kernels.din import DinWeights
from beamwood.kernels.reference import beam_search, score_level, score_level_plain
from beamwood.models.terms import TERMS
from din_cases import WINDOWS, random_case, random_weights, without_terms


def every_leaf(tree, weights, history_L):
    """Float64 scores of all leaves by the plain equations."""
    shape = tree.shape
    return score_level_plain(weights, shape, shape.depth, history_L[None], np.arange(shape.capacity)[None])[0]


def sparse_lists(rows):
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows).astype(np.int32)


@pytest.mark.parametrize("level", [1, 2, -1])
@pytest.mark.parametrize(
    ("width", "windows", "similarity"), [(8, (4, 3, 2, 1), 0), (24, WINDOWS, 0), (3, (1,), 0), (8, (4, 3, 2, 1), 30)]
)
def test_folded_scores_equal_the_equations(level, width, windows, similarity):
    fixed = {"similarity": similarity, "neighbours": similarity // 6}
    tree, weights, histories = random_case(1, width=width, windows=windows, **fixed)
    level = tree.shape.depth if level < 0 else level
    nodes = np.arange(tree.shape.level_size(level))
    for history in histories:
        expected = score_level_plain(weights, tree.shape, level, history[None], nodes[None])[0]
        assert np.allclose(score_level(weights, tree.shape, level, history, nodes), expected, rtol=1e-5, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 200), st.sampled_from([2, 3, 7, 256]))
def test_full_width_beam_equals_brute_force(seed, num_items, branching):
    tree, weights, histories = random_case(seed, num_items=num_items, branching=branching, num_rows=3)
    rng = np.random.default_rng(seed)
    allowed = rng.random(num_items) < 0.7
    mask = np.zeros(tree.shape.capacity, bool)
    mask[tree.leaf_of_item[allowed]] = True
    banned = [np.sort(rng.permutation(np.flatnonzero(mask))[: rng.integers(0, 20)]) for _ in histories]
    k = min(10, tree.shape.capacity)
    found = beam_search(
        weights,
        tree.shape,
        histories,
        beam_width=tree.shape.capacity,
        k=k,
        live=tree.counts_below(mask),
        excluded=sparse_lists(banned),
    )
    for row, history in enumerate(histories):
        scores = every_leaf(tree, weights, history)
        open_leaves = np.setdiff1d(np.flatnonzero(mask), banned[row])
        best = np.sort(scores[open_leaves])[::-1][:k]
        got = found.leaves[row]
        assert np.count_nonzero(got >= 0) == len(best)
        assert set(got[got >= 0]) <= set(open_leaves)
        assert np.allclose(found.scores[row, : len(best)], best, rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_k_results_if_k_are_allowed(seed, num_allowed):
    tree, weights, histories = random_case(seed)
    mask = np.zeros(tree.shape.capacity, bool)
    allowed = np.random.default_rng(seed).permutation(tree.num_items)[:num_allowed]
    mask[tree.leaf_of_item[allowed]] = True
    found = beam_search(weights, tree.shape, histories, beam_width=4, k=4, live=tree.counts_below(mask))
    assert np.all(np.count_nonzero(found.leaves >= 0, axis=1) == min(4, num_allowed))


def test_a_narrow_beam_follows_the_layers():
    tree, weights, histories = random_case(5, num_items=64, num_rows=4)
    shape, width = tree.shape, 3
    found = beam_search(weights, shape, histories, beam_width=width, k=width, live=tree.live_counts)
    for row, history in enumerate(histories):
        beam = [0]
        for level in range(1, shape.depth + 1):
            fanout = shape.root_fanout if level == 1 else shape.branching
            nodes = [p * fanout + c for p in beam for c in range(fanout)]
            nodes = [n for n in nodes if tree.live_counts[level][n] > 0]
            scores = score_level_plain(weights, shape, level, history[None], np.array([nodes]))[0]
            beam = [nodes[i] for i in np.argsort(-scores, kind="stable")[:width]]
        assert found.leaves[row].tolist() == beam


def test_ties_go_to_the_lower_node():
    tree, weights, histories = random_case(2)
    # Equal nodes are not enough: a matrix product may round equal rows differently.
    last = dataclasses.replace(weights.layers[-1], weight=np.zeros_like(weights.layers[-1].weight))
    flat = dataclasses.replace(weights, layers=(*weights.layers[:-1], last))
    found = beam_search(flat, tree.shape, histories, beam_width=5, k=5, live=tree.live_counts)
    assert np.all(found.leaves == np.flatnonzero(tree.item_of_leaf >= 0)[:5])


def test_the_similarity_adds_a_weighted_sum_of_products():
    tree, weights, histories = random_case(3, similarity=5)
    plain, level = without_terms(weights, "similarity"), tree.shape.depth
    offset, nodes = tree.shape.level_offset(level), np.arange(tree.num_items)
    vectors, places = (weights.terms["similarity"].arrays[name] for name in ("vectors", "places"))
    for history in histories:
        more = np.subtract(*(score_level(one, tree.shape, level, history, nodes) for one in (weights, plain)))
        expected = [
            sum(places[at] * vectors[offset + a] @ vectors[offset + n] for at, a in enumerate(history) if a >= 0)
            for n in nodes
        ]
        assert np.allclose(more, expected, atol=1e-5)


def test_seen_leaves_add_the_weights_of_their_positions():
    tree, weights, histories = random_case(3, num_items=20, similarity=5)
    plain, seen = without_terms(weights, "seen"), weights.terms["seen"].arrays["weights"]
    for level in range(1, tree.shape.depth + 1):
        nodes = np.arange(tree.shape.level_size(level))
        for history in histories:
            more = np.subtract(*(score_level(one, tree.shape, level, history, nodes) for one in (weights, plain)))
            held = [sum(seen[at] for at, leaf in enumerate(history) if leaf == node) for node in nodes]
            assert np.allclose(more, held if level == tree.shape.depth else 0, atol=1e-5)


def test_neighbours_add_the_logarithm_of_a_weighted_sum():
    tree, weights, histories = random_case(3, neighbours=3)
    plain, near = without_terms(weights, "neighbours"), weights.terms["neighbours"].arrays
    first, some = tree.shape.level_offset(tree.shape.depth), 0
    for level in range(1, tree.shape.depth + 1):
        offset, nodes = tree.shape.level_offset(level), np.arange(tree.shape.level_size(level))
        below, shares = tree.shape.leaves_below(level), near["shares"][offset + nodes]
        for leaves in histories:
            more = np.subtract(*(score_level(one, tree.shape, level, leaves, nodes) for one in (weights, plain)))
            expected = np.zeros(len(nodes))
            for place, a in enumerate(leaves):
                for leaf, chance in zip(near["leaves"][first + a], near["chances"][first + a], strict=True):
                    if a >= 0 and leaf >= 0:
                        expected[leaf // below] += near["places"][place] * chance
            some += np.count_nonzero(expected)
            assert np.allclose(more, near["gain"] * np.log(1 + expected / shares), atol=1e-4)
    assert some > 100


@pytest.mark.parametrize("more", [{}, {"similarity": 3}, {"neighbours": 3}, {"similarity": 2, "neighbours": 4}])
def test_arrays_round_trip_and_are_checked(more):
    weights = random_weights(np.random.default_rng(0), 10, **more)
    arrays = weights.arrays()
    terms = {name: part.term for name, part in weights.terms.items()}
    again = DinWeights.from_arrays(arrays, terms)
    assert all(np.array_equal(again.arrays()[name], array) for name, array in arrays.items())
    with pytest.raises(ArtefactError, match="lack 'nodes'"):
        DinWeights.from_arrays({name: array for name, array in arrays.items() if name != "nodes"}, terms)
    with pytest.raises(ArtefactError, match=r"layers\.1\.weight has shape"):
        DinWeights.from_arrays(arrays | {"layers.1.bias": np.zeros(3, np.float32)}, terms)
    with pytest.raises(ArtefactError, match="NaN"):
        DinWeights.from_arrays(arrays | {"nodes": np.full_like(weights.nodes, np.nan)}, terms)
    with pytest.raises(ArtefactError, match="float64"):
        DinWeights.from_arrays(arrays | {"nodes": weights.nodes.astype(np.float64)}, terms)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"similarity.vectors": np.zeros((9, 3), np.float32)}, "similarity.vectors has shape"),
        ({"similarity.places": np.zeros(3, np.float32)}, "similarity.places has shape"),
        ({"similarity.places": np.full(10, np.nan, np.float32)}, "similarity.places holds NaN"),
        ({"similarity.vectors": np.zeros((10, 0), np.float32)}, "similarity.vectors is empty"),
        ({"similarity.vectors": None}, "lack 'similarity.vectors'"),
        ({"similarity.places": None}, "lack 'similarity.places'"),
        ({"seen.weights": np.zeros(3, np.float32)}, "seen.weights has shape"),
        ({"seen.weights": np.zeros(10)}, "seen.weights is float64; expected contiguous, aligned float32"),
        ({"seen.weights": None}, "lack 'seen.weights'"),
        ({"trend.weights": np.zeros(3, np.float32)}, "'trend.weights' is an array neither of the scorer nor of its"),
        ({"similarity.weights": np.zeros(3, np.float32)}, "'similarity.weights' is an array neither of"),
        ({"neighbours.leaves": np.zeros((9, 3), np.int32)}, "neighbours.leaves has shape"),
        ({"neighbours.leaves": np.zeros((10, 3), np.int64)}, "neighbours.leaves is int64"),
        ({"neighbours.leaves": np.full((10, 3), -2, np.int32)}, "expected contiguous int32 of -1 or more"),
        ({"neighbours.leaves": None}, "lack 'neighbours.leaves'"),
        ({"neighbours.chances": np.zeros((10, 2), np.float32)}, "neighbours.chances has shape"),
        ({"neighbours.chances": np.full((10, 3), np.inf, np.float32)}, "neighbours.chances holds NaN"),
        ({"neighbours.chances": None}, "lack 'neighbours.chances'"),
        ({"neighbours.chances": np.full((10, 3), -1, np.float32)}, "neighbours.chances holds values below 0"),
        ({"neighbours.shares": np.zeros(9, np.float32)}, "neighbours.shares has shape"),
        ({"neighbours.shares": np.full(10, -1, np.float32)}, "neighbours.shares holds values below 0"),
        ({"neighbours.places": np.zeros(3, np.float32)}, "neighbours.places has shape"),
        ({"neighbours.places": np.full(10, -1, np.float32)}, "neighbours.places holds values below 0"),
        ({"neighbours.gain": np.zeros(2, np.float32)}, "neighbours.gain has shape"),
        ({"neighbours.gain": np.full(1, np.nan, np.float32)}, "neighbours.gain holds NaN"),
    ],
)
def test_invalid_arrays_are_named(changes, says):
    arrays = random_weights(np.random.default_rng(0), 10, similarity=3, neighbours=3).arrays() | changes
    with pytest.raises(ArtefactError, match=says):
        DinWeights.from_arrays({name: array for name, array in arrays.items() if array is not None}, TERMS)
