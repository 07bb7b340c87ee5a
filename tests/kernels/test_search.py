"""Native search equals the reference: scores, choices, ties, masks, for all instruction sets and precisions."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood import kernels
from beamwood.errors import InputError
from beamwood.kernels import reference
from beamwood.kernels.numpy_search import NumpySearcher
from beamwood.kernels.reference import SearchResult
from beamwood.kernels.search import DinSearch
from beamwood.models.terms import TERMS
from din_cases import WINDOWS, random_case, random_histories, without_terms

LIVE = kernels.active_kernels()
native_only = pytest.mark.skipif(LIVE["path"] != "native", reason="the native core is not built")
amx_only = pytest.mark.skipif(not LIVE["amx"], reason="no AMX here")
VARIANTS = [("float32", level) for level in LIVE["levels"]] + ([("exact", "v4")] if LIVE["amx"] else [])


def float64_scores(tree, weights, histories, leaves):
    shape = tree.shape
    return np.concatenate(
        [
            reference.score_level_plain(weights, shape, shape.depth, histories[i : i + 1], leaves[i : i + 1])
            for i in range(len(histories))
        ]
    )


def assert_same_up_to_ties(tree, weights, histories, got, expected, tolerance=1e-5):
    """Equal leaves in every position, or tied in float64; scores within `tolerance` of float64."""
    assert np.array_equal(got.leaves >= 0, expected.leaves >= 0)
    assert np.array_equal(got.scored, expected.scored)
    found = got.leaves >= 0
    assert np.all(np.isneginf(got.scores[~found]))
    truth = float64_scores(tree, weights, histories, got.leaves)
    scale = np.maximum(1, np.abs(truth, where=found, out=np.zeros_like(truth)))
    assert np.all(np.abs(got.scores[found] - truth[found]) <= tolerance * scale[found])
    other = float64_scores(tree, weights, histories, expected.leaves)
    assert np.all(np.abs(other[found] - truth[found]) <= 2 * tolerance * scale[found])


def masked_case(seed, num_rows, **sizes):
    """A case with a mask of leaves and a sorted list of excluded ones for each row."""
    tree, weights, histories = random_case(seed, num_rows=num_rows, **sizes)
    rng = np.random.default_rng(seed)
    mask = np.zeros(tree.shape.capacity, bool)
    mask[tree.leaf_of_item[rng.random(tree.num_items) < rng.choice([0.02, 0.5, 1])]] = True
    allowed = np.flatnonzero(mask)
    rows = [np.sort(rng.permutation(allowed)[: rng.integers(0, 30)]) for _ in range(num_rows)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    excluded = (indptr, np.concatenate(rows).astype(np.int32)) if rng.random() < 0.7 else None
    return tree, weights, histories, tree.counts_below(mask), excluded


@native_only
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    num_items=st.integers(1, 400),
    branching=st.sampled_from([2, 3, 5, 16, 256]),
    width=st.sampled_from([1, 3, 8, 24, 29, 30, 33]),
    hidden=st.sampled_from([1, 5, 16, 17, 36, 50]),
    windows=st.sampled_from([(1,), (4, 3, 2, 1), (5, 30), WINDOWS]),
    mlp=st.sampled_from([(), (7,), (128, 64, 24), (17, 33), (3, 3, 3, 3)]),
    variant=st.sampled_from(VARIANTS or [("float32", "generic")]),
    beam_width=st.integers(1, 70),
    table_nodes=st.sampled_from([0, 60, 512]),
    similarity=st.sampled_from([0, 1, 7, 16, 40, 67, 256]),
    neighbours=st.sampled_from([0, 1, 32]),
)
def test_every_shape_equals_the_reference(
    seed, num_items, branching, width, hidden, windows, mlp, variant, beam_width, table_nodes, similarity, neighbours
):
    tree, weights, histories, live, excluded = masked_case(
        seed,
        4,
        num_items=num_items,
        branching=branching,
        width=width,
        hidden=hidden,
        windows=windows,
        mlp=mlp,
        similarity=similarity,
        neighbours=neighbours,
    )
    # Random scorers of odd shapes are worse conditioned than trained ones: float32 errors exceed 1e-5.
    tolerance = 5e-5
    precision, level = variant
    search = DinSearch(weights, tree.shape, precision=precision, level=level, table_nodes=table_nodes)
    assert not search.why_numpy
    k = min(beam_width, 20)
    got = search.beam(histories, beam_width=beam_width, k=k, live=live, excluded=excluded)
    expected = reference.beam_search(
        weights, tree.shape, histories, beam_width=beam_width, k=k, live=live, excluded=excluded
    )
    assert_same_up_to_ties(tree, weights, histories, got, expected, tolerance)
    got = search.exact(histories, k, live=live, excluded=excluded)
    expected = reference.exact_search(weights, tree.shape, histories, k, live=live, excluded=excluded)
    assert_same_up_to_ties(tree, weights, histories, got, expected, tolerance)
    leaves = np.random.default_rng(seed).integers(-1, tree.shape.capacity, (4, 7))
    truth = float64_scores(tree, weights, histories, leaves)
    given = leaves >= 0
    scores = search.score(histories, leaves)
    assert np.all(np.isneginf(scores[~given]))
    assert np.all(np.abs(scores[given] - truth[given]) <= tolerance * np.maximum(1, np.abs(truth[given])))


@native_only
@pytest.mark.slow
def test_the_top_150_of_a_thousand_users():
    tree, weights, histories = random_case(
        3, num_items=3000, num_rows=1000, width=24, hidden=36, windows=WINDOWS, mlp=(128, 64, 24)
    )
    arguments = {"beam_width": 150, "k": 150, "live": tree.live_counts}
    expected = reference.beam_search(weights, tree.shape, histories, **arguments)
    for precision, level in VARIANTS:
        got = DinSearch(weights, tree.shape, precision=precision, level=level).beam(histories, **arguments)
        assert np.mean(got.leaves == expected.leaves) > 0.999
        differ = np.flatnonzero((got.leaves != expected.leaves).any(axis=1))
        rows = np.union1d(differ, np.arange(20))
        part, twin = (SearchResult(f.leaves[rows], f.scores[rows], f.scored[rows]) for f in (got, expected))
        assert_same_up_to_ties(tree, weights, histories[rows], part, twin)


@native_only
@pytest.mark.parametrize("variant", VARIANTS)
def test_tables_of_attention_change_no_bit(variant):
    precision, level = variant
    tree, weights, histories = random_case(7, num_items=700, num_rows=30, width=24, hidden=36, windows=WINDOWS)
    arguments = {"beam_width": 40, "k": 40, "live": tree.live_counts}
    kept, anew = (
        DinSearch(weights, tree.shape, precision=precision, level=level, table_nodes=most).beam(histories, **arguments)
        for most in (1024, 0)
    )
    assert np.array_equal(kept.leaves, anew.leaves)
    assert np.array_equal(kept.scores, anew.scores)


def test_tables_have_a_bound():
    tree, weights, _ = random_case(7, num_items=20, num_rows=1)
    with pytest.raises(InputError, match="table_nodes"):
        DinSearch(weights, tree.shape, table_nodes=1 << 20)


@amx_only
def test_split_tiles_choose_exactly_as_float32():
    tree, weights, histories = random_case(
        4, num_items=4000, num_rows=60, width=24, hidden=36, windows=WINDOWS, mlp=(128, 64, 24)
    )
    arguments = {"beam_width": 100, "k": 100, "live": tree.live_counts}
    exact = DinSearch(weights, tree.shape, precision="exact").beam(histories, **arguments)
    float32 = DinSearch(weights, tree.shape, precision="float32").beam(histories, **arguments)
    assert np.array_equal(exact.leaves, float32.leaves)
    assert np.array_equal(exact.scores, float32.scores)
    rough = DinSearch(weights, tree.shape, precision="bf16").beam(histories, **arguments)
    overlap = [len(np.intersect1d(a, b)) / 100 for a, b in zip(rough.leaves, float32.leaves, strict=True)]
    assert 0.7 < np.mean(overlap) < 1


@native_only
@pytest.mark.parametrize("variant", VARIANTS)
def test_ties_go_to_the_lower_node(variant):
    precision, level = variant
    tree, weights, histories = random_case(2)
    flat = dataclasses.replace(weights, nodes=np.ones_like(weights.nodes))
    search = DinSearch(flat, tree.shape, precision=precision, level=level)
    first = np.flatnonzero(tree.item_of_leaf >= 0)[:5]
    assert np.all(search.beam(histories, beam_width=5, k=5, live=tree.live_counts).leaves == first)
    assert np.all(search.exact(histories, 5, live=tree.live_counts).leaves == first)


@native_only
@pytest.mark.parametrize("precision", ["float32", "exact"])
def test_results_do_not_depend_on_threads_and_batches(precision):
    tree, weights, histories = random_case(6, num_rows=23)
    arguments = {"beam_width": 10, "k": 10, "live": tree.live_counts}
    one = DinSearch(weights, tree.shape, precision=precision).beam(histories, **arguments)
    many = DinSearch(weights, tree.shape, precision=precision, threads=5)
    for _ in range(3):
        found = many.beam(histories, **arguments)
        assert np.array_equal(found.leaves, one.leaves)
        assert np.array_equal(found.scores, one.scores)
    for row in range(3):
        single = many.beam(histories[row : row + 1], **arguments)
        assert np.array_equal(single.scores[0], one.scores[row])
    assert len(many.beam(histories[:0], **arguments).leaves) == 0


@native_only
def test_entries_of_one_node_in_several_windows_count_in_each():
    tree, weights, _ = random_case(7, windows=(4, 3, 2, 1))
    rng = np.random.default_rng(0)
    histories = random_histories(rng, tree, 8, 10)
    histories[2:] = np.where(histories[2:] >= 0, tree.leaf_of_item[:3][rng.integers(0, 3, (6, 10))], -1)
    leaves = np.tile(tree.leaf_of_item[:9], (8, 1))
    truth = float64_scores(tree, weights, histories, leaves)
    for precision, level in VARIANTS:
        scores = DinSearch(weights, tree.shape, precision=precision, level=level).score(histories, leaves)
        assert np.allclose(scores, truth, rtol=1e-5, atol=1e-5)


@native_only
def test_both_cores_have_the_same_methods():
    own, other = (
        {name for name in dir(core) if not name.startswith("_") and callable(getattr(core, name))}
        for core in (NumpySearcher, kernels.native().Searcher)
    )
    assert own == other


@native_only
@pytest.mark.parametrize("term", ["similarity", "seen", "neighbours"])
def test_a_derived_term_is_searched_as_it_scores(term, monkeypatch):
    """Beside its parent and in its place, though the native core knows the parent's form."""
    tree, weights, histories = random_case(5, similarity=4, neighbours=3)
    kind = type(TERMS[term])

    def halved(self, held, query):
        return kind.score(self, held, query) / 2

    part = weights.terms[term]
    own = dataclasses.replace(part, term=type("Mine", (kind,), {"name": "mine", "score": halved})())
    beside, instead = weights.terms | {"mine": own}, without_terms(weights, term).terms | {"mine": own}
    for terms in (beside, instead):
        scorer = dataclasses.replace(weights, terms=terms)
        with pytest.warns(UserWarning, match="no native form is known of the term 'mine': the tree is searched by"):
            search = DinSearch(scorer, tree.shape)
        assert search.why_numpy == "no native form is known of the term 'mine'"
        got = search.exact(histories, 9, live=tree.live_counts)
        expected = reference.exact_search(scorer, tree.shape, histories, 9, live=tree.live_counts)
        assert_same_up_to_ties(tree, scorer, histories, got, expected)
    plain = DinSearch(weights, tree.shape)
    assert not plain.why_numpy
    monkeypatch.setenv("BEAMWOOD_KERNELS", "reference")
    twin = DinSearch(weights, tree.shape).exact(histories, 9, live=tree.live_counts)
    assert_same_up_to_ties(tree, weights, histories, plain.exact(histories, 9, live=tree.live_counts), twin)


@native_only
def test_a_form_of_two_terms_is_known_of_one():
    tree, weights, _ = random_case(6, similarity=4)
    twice = dataclasses.replace(weights, terms=weights.terms | {"more": weights.terms["seen"]})
    with pytest.warns(UserWarning, match="no native form is known of the term 'more'"):
        assert DinSearch(twice, tree.shape).why_numpy


def test_the_reference_is_used_on_request(monkeypatch):
    monkeypatch.setenv("BEAMWOOD_KERNELS", "reference")
    tree, weights, histories = random_case(1)
    search = DinSearch(weights, tree.shape)
    assert search.why_numpy
    assert kernels.active_kernels()["path"] == "reference"
    leaves = np.tile(np.append(tree.leaf_of_item, -1), (len(histories), 1))
    scores = search.score(histories, leaves)
    truth = float64_scores(tree, weights, histories, leaves)
    assert np.allclose(scores[:, :-1], truth[:, :-1], rtol=1e-5, atol=1e-5)
    exact = search.exact(histories, 5, live=tree.live_counts)
    wide = search.beam(histories, beam_width=tree.shape.capacity, k=5, live=tree.live_counts)
    assert np.array_equal(exact.leaves, wide.leaves)
    assert np.allclose(exact.scores, np.sort(scores, axis=1)[:, ::-1][:, :5])
    with pytest.raises(InputError, match="bf16"):
        DinSearch(weights, tree.shape, precision="bf16")


def test_unknown_kernels_are_named(monkeypatch):
    monkeypatch.setenv("BEAMWOOD_KERNELS", "nativ")
    with pytest.raises(InputError, match="did you mean 'native'"):
        kernels.active_kernels()


def test_a_missing_native_core_is_an_error(monkeypatch):
    monkeypatch.setenv("BEAMWOOD_KERNELS", "native")
    monkeypatch.setattr(kernels.dispatch, "_imported", lambda: (None, "not built"))
    with pytest.raises(InputError, match="compiler"):
        kernels.active_kernels()


@pytest.mark.parametrize("path", ["native", "reference"])
def test_invalid_weights_are_refused(monkeypatch, path):
    if path == "native" and LIVE["path"] != "native":
        pytest.skip("the native core is not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", path)
    tree, weights, histories = random_case(1)
    search, live, capacity = DinSearch(weights, tree.shape), tree.live_counts, tree.shape.capacity
    for bad in [{"precision": "exakt"}, {"threads": 0}, {"threads": 1025}]:
        with pytest.raises(InputError):
            DinSearch(weights, tree.shape, **bad)
    short = dataclasses.replace(weights, nodes=weights.nodes[1:])
    with pytest.raises(InputError, match="nodes"):
        DinSearch(short, tree.shape)
    for bad in [
        histories.astype(float),
        histories[0],
        histories[:, 1:],
        np.full_like(histories, capacity),
        np.full_like(histories, -2),
    ]:
        with pytest.raises(InputError):
            search.beam(bad, beam_width=4, k=4, live=live)
        with pytest.raises(InputError):
            search.score(bad, np.zeros((len(histories), 1), int))
    for bad_live in [live[1:], (*live[:-1], live[-1][1:]), (*live[:-1], live[-1].astype(np.int64))]:
        with pytest.raises(InputError, match="live"):
            search.beam(histories, beam_width=4, k=4, live=bad_live)
    rows = len(histories)
    none = np.zeros(rows + 1, np.int64)
    for bad_lists in [
        (none[1:], np.empty(0, np.int32)),
        (np.full(rows + 1, 2), np.array([1, 2], np.int32)),
        (np.append(none[1:], 2), np.array([2, 1], np.int32)),
        (np.append(none[1:], 1), np.array([capacity], np.int32)),
        (np.append(none[1:], 1), np.array([-1], np.int32)),
    ]:
        with pytest.raises(InputError):
            search.exact(histories, 4, live=live, excluded=bad_lists)
    for k, width in [(0, 4), (5, 4)]:
        with pytest.raises(InputError, match="k="):
            search.beam(histories, beam_width=width, k=k, live=live)
    with pytest.raises(InputError, match="rows"):
        search.score(histories, np.zeros((1, 1), int))
    everything = search.score(histories, np.asfortranarray(np.tile(np.arange(capacity), (rows, 1))))
    assert everything.shape == (rows, capacity)
