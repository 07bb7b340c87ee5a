"""Searches that end on a level above the leaves, and scores of its nodes."""

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.kernels import reference
from beamwood.kernels.search import DinSearch
from kernels.test_search import VARIANTS, masked_case


@pytest.fixture(params=[False, True], ids=["by node", "by path"])
def case(request):
    tree, weights, histories, live, excluded = masked_case(4, 5, num_items=300, branching=3, similarity=5, neighbours=4)
    return tree, weights, histories, live, excluded, request.param


@pytest.mark.parametrize("variant", [*VARIANTS, None], ids=str)
def test_a_search_ends_on_the_last_level_of_its_counts(case, variant, monkeypatch):
    """It gives the nodes from which the whole search opens the next level."""
    tree, weights, histories, live, excluded, by_path = case
    if variant is None:
        monkeypatch.setenv("BEAMWOOD_KERNELS", "reference")
    elif by_path and variant[0] != "float32":
        pytest.skip("scores by path are of float32 alone")
    precision, level = ("float32", None) if variant is None else variant
    search = DinSearch(weights, tree.shape, precision=precision, level=level, by_path=by_path)
    for last in range(1, tree.shape.depth + 1):
        width = min(9, tree.shape.level_size(last))
        found = search.beam(histories, beam_width=9, k=width, live=live[: last + 1], excluded=excluded)
        for row, (nodes, scores) in enumerate(zip(found.leaves, found.scores, strict=True)):
            banned, kept = reference.banned_row(excluded, row), nodes[nodes >= 0]
            assert len(kept) == len(set(kept.tolist())) > 0
            own = search.score(histories[row : row + 1], kept[None], level=last)[0]
            np.testing.assert_allclose(own, scores[: len(kept)], rtol=1e-4, atol=1e-4)
            assert (np.diff(scores[: len(kept)]) <= 0).all()
            below = tree.shape.leaves_below(last)
            allowed = np.setdiff1d(np.flatnonzero(live[-1]), banned)
            assert set(kept.tolist()) <= set((allowed // below).tolist())


def test_native_and_numpy_score_a_level_alike(case, monkeypatch):
    tree, weights, histories, *_, by_path = case
    native = DinSearch(weights, tree.shape, by_path=by_path)
    monkeypatch.setenv("BEAMWOOD_KERNELS", "reference")
    plain = DinSearch(weights, tree.shape, by_path=by_path)
    for level in range(1, tree.shape.depth + 1):
        nodes = np.random.default_rng(level).integers(-1, tree.shape.level_size(level), (len(histories), 8))
        theirs = plain.score(histories, nodes, level=level)
        assert (np.isneginf(theirs) == (nodes < 0)).all()
        np.testing.assert_allclose(native.score(histories, nodes, level=level), theirs, rtol=1e-4, atol=1e-4)
    default = plain.score(histories, nodes)
    np.testing.assert_array_equal(default, plain.score(histories, nodes, level=tree.shape.depth))


def test_nodes_beyond_their_level_and_counts_beyond_the_tree_are_refused(case):
    tree, weights, histories, live, *_ = case
    search = DinSearch(weights, tree.shape)
    beyond = np.full((len(histories), 1), tree.shape.level_size(1))
    with pytest.raises(InputError, match=r"nodes_BM holds .*; the nodes of level 1 are 0\.\."):
        search.score(histories, beyond, level=1)
    for wrong in (live[:1], (*live, live[-1])):
        with pytest.raises(InputError, match=r"live has \d+ levels"):
            search.beam(histories, beam_width=4, k=4, live=wrong)
