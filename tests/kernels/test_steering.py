"""Steered searches: native equals the reference, with bitwise equal head scores; a wide way is the full search."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood import kernels
from beamwood.errors import ArtefactError, InputError
from beamwood.kernels import steering
from beamwood.kernels.light import LightHead, Way, quantised
from beamwood.kernels.search import DinSearch
from din_cases import WINDOWS, random_case, random_light
from kernels.test_search import VARIANTS, assert_same_up_to_ties, masked_case, native_only

LIVE = kernels.active_kernels()


def with_light(weights, seed, **sizes):
    rng = np.random.default_rng(seed)
    light = random_light(rng, len(weights.nodes), weights.history_length, **sizes)
    return dataclasses.replace(weights, light=light)


@native_only
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_items=st.integers(1, 400),
    branching=st.sampled_from([2, 3, 5, 16]),
    columns=st.sampled_from([1, 3, 16, 31, 32, 64, 100]),
    hidden=st.sampled_from([1, 7, 128]),
    variant=st.sampled_from(VARIANTS or [("float32", "generic")]),
    kind=st.sampled_from(["steer", "cascade"]),
    beam_width=st.integers(1, 70),
    judged=st.integers(1, 90),
    terms=st.sampled_from([(0, 0), (7, 0), (16, 5), (0, 5)]),
    again=st.booleans(),
)
def test_every_way_equals_the_reference(
    seed, num_items, branching, columns, hidden, variant, kind, beam_width, judged, terms, again
):
    tree, weights, histories, live, excluded = masked_case(
        seed, 4, num_items=num_items, branching=branching, similarity=terms[0], neighbours=terms[1]
    )
    weights = with_light(weights, seed, width=columns, hidden=hidden)
    if terms[1]:
        # Sums of neighbours in another order differ in the last bit, which may change a cutoff.
        weights = dataclasses.replace(weights, terms={n: t for n, t in weights.terms.items() if n != "neighbours"})
    precision, level = variant
    search = DinSearch(weights, tree.shape, precision=precision, level=level)
    assert not search.why_numpy
    way, k = Way(kind, beam_width, judged), min(beam_width, 20)
    arguments = {"k": k, "live": live, "excluded": excluded, "again": again}
    got = search.steered(histories, way, **arguments)
    expected = steering.steered_search(weights, tree.shape, histories, way, **arguments)
    if kind == "steer":
        assert np.array_equal(np.sort(got.leaves), np.sort(expected.leaves)) or k < judged
    assert_same_up_to_ties(tree, weights, histories, got, expected, 5e-5)


@native_only
@pytest.mark.parametrize("steered", [False, True])
@pytest.mark.parametrize("level", LIVE["levels"])
def test_visited_nodes_equal_the_reference(level, steered):
    tree, weights, histories = random_case(5, num_items=700, num_rows=12, similarity=8)
    weights = with_light(weights, 5)
    search = DinSearch(weights, tree.shape, precision="float32", level=level)
    offsets = np.random.default_rng(0).random(12)
    arguments = {"beam_width": 20, "steered": steered, "most": 41, "offsets": offsets, "live": tree.live_counts}
    got, expected = search.visit(histories, **arguments), steering.visit(weights, tree.shape, histories, **arguments)
    assert np.mean(got.nodes == expected.nodes) > (0.999 if steered else 0.97)
    assert np.allclose(got.weights, expected.weights)
    same = (got.nodes == expected.nodes) & (got.nodes >= 0)
    assert np.allclose(got.scores[same], expected.scores[same], atol=1e-4)
    given = got.nodes >= 0
    assert np.all(np.isneginf(got.scores[~given]))
    for level in range(tree.shape.depth):
        # The scored nodes are the best of all open ones.
        for row in range(12):
            own = got.nodes[row, level][given[row, level]]
            assert len(np.unique(own)) == len(own)


def test_the_head_equals_its_equation():
    tree, weights, histories = random_case(3, num_items=200, num_rows=6, similarity=8)
    rng, length = np.random.default_rng(0), weights.history_length
    light = random_light(rng, len(weights.nodes), length, width=20)
    weights, level = dataclasses.replace(weights, light=light), tree.shape.depth
    offset, nodes = tree.shape.level_offset(level), np.arange(30)
    for leaves in histories:
        total = np.zeros(20)
        for place, leaf in enumerate(leaves):
            if leaf >= 0:
                row = offset + leaf
                total += light.places[place] * light.history_scales[row] * light.history[row].astype(float)
        query = total + light.down @ np.maximum(light.up @ total + light.up_bias, 0) + light.down_bias
        vectors = light.nodes[offset + nodes].astype(float) * light.node_scales[offset + nodes][:, None]
        truth = vectors @ query + light.biases[offset + nodes]
        truth += [sum(weights.terms["seen"].arrays["weights"][leaves == node]) for node in nodes]
        got = steering.light_scores(weights, tree.shape, level, leaves, nodes)
        rounding = np.abs(query).max() / 1023 * np.abs(vectors).sum(axis=1)
        assert np.all(np.abs(got - truth) <= rounding + 1e-4)


@pytest.mark.parametrize("path", ["native", "reference"])
@pytest.mark.parametrize("kind", ["steer", "cascade"])
@pytest.mark.parametrize("most", [1000, 2**33])
def test_a_way_without_pruning_is_the_full_search(monkeypatch, path, kind, most):
    """Also for counts that no native integer holds: as a k above 20 multiplies those of a stored way."""
    if path == "native" and LIVE["path"] != "native":
        pytest.skip("the native core is not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", path)
    tree, weights, histories = random_case(9, num_items=150, num_rows=5, similarity=6, neighbours=3)
    search = DinSearch(with_light(weights, 9), tree.shape, precision="float32")
    got = search.steered(histories, Way(kind, most, most), k=20, live=tree.live_counts)
    assert (search.later(histories[:1], Way(kind, most, most), k=20, live=tree.live_counts) is None) == bool(
        search.why_numpy
    )
    exact = search.exact(histories, 20, live=tree.live_counts)
    assert np.array_equal(got.leaves, exact.leaves)
    assert np.array_equal(got.scores, exact.scores)


@pytest.mark.parametrize("path", ["native", "reference"])
def test_seen_items_are_always_candidates(monkeypatch, path):
    if path == "native" and LIVE["path"] != "native":
        pytest.skip("the native core is not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", path)
    tree, weights, histories = random_case(9, num_items=300, num_rows=8, windows=WINDOWS, similarity=6)
    seen = {"weights": np.full(weights.history_length, 1e9, np.float32)}
    terms = weights.terms | {"seen": dataclasses.replace(weights.terms["seen"], arrays=seen)}
    search = DinSearch(with_light(dataclasses.replace(weights, terms=terms), 9), tree.shape)
    way, k = Way("steer", 80, 80), 80
    found = search.steered(histories, way, k=k, live=tree.live_counts, again=True).leaves
    for leaves, own in zip(found, histories, strict=True):
        distinct = np.unique(own[own >= 0])
        assert set(leaves[: len(distinct)].tolist()) == set(distinct.tolist())


def test_quantised_vectors_are_close():
    vectors = np.random.default_rng(0).normal(0, 1, (50, 64)).astype(np.float32)
    vectors[3] = 0
    values, scales = quantised(vectors)
    assert values.dtype == np.int8
    assert np.all(np.abs(values * scales[:, None] - vectors) <= scales[:, None] / 2 + 1e-6)


def test_invalid_arrays_are_refused():
    tree, weights, histories = random_case(1)
    live = tree.live_counts
    with pytest.raises(InputError, match="light_width"):
        DinSearch(weights, tree.shape).steered(histories, Way("steer", 10, 10), k=4, live=live)
    lit = with_light(weights, 1)
    search = DinSearch(lit, tree.shape)
    with pytest.raises(InputError, match="light"):
        search.steered(histories, Way("beam", 10), k=4, live=live)
    with pytest.raises(InputError, match="beam_width"):
        search.steered(histories, Way("steer", 3, 10), k=4, live=live)
    with pytest.raises(InputError, match="lower k"):
        search.steered(histories, Way("steer", 2**41, 10), k=2**40, live=live)
    with pytest.raises(InputError, match="does not steer a search by path"):
        DinSearch(lit, tree.shape, by_path=True)
    for bad in [("stear", 10, 10), ("steer", 0, 10), ("steer", 10, 0), ("beam", 10, 4)]:
        with pytest.raises(InputError):
            Way(*bad)
    light, arrays = lit.light, lit.light.arrays()
    assert LightHead.from_arrays(arrays) is not light
    for name, array in arrays.items():
        bad = [array[1:], array.astype(np.float64), np.asfortranarray(array) if array.ndim == 2 else array[::2]]
        bad += [np.full_like(array, np.nan)] if array.dtype == np.float32 else []
        for each in bad:
            with pytest.raises(ArtefactError, match="light"):
                dataclasses.replace(lit, light=LightHead(**{**arrays, name: each}))
        with pytest.raises(ArtefactError, match=f"light.{name}"):
            LightHead.from_arrays({key: value for key, value in arrays.items() if key != name})
