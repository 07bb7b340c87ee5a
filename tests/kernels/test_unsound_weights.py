"""Mapped weights are checked when they are needed: a search of damaged ones is refused, or they had no effect."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import values_unread
from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import Way
from beamwood.kernels.search import DinSearch
from din_cases import random_case, random_light
from kernels.test_search import VARIANTS

NODE_ARRAYS = (
    "nodes",
    "similarity.vectors",
    "neighbours.chances",
    "neighbours.shares",
    "light.node_scales",
    "light.biases",
)
WRONG = (np.nan, np.inf, -np.inf)
WAYS = (Way("beam", 12), Way("steer", 12, 10), Way("cascade", 6, 12))


def case(seed):
    tree, weights, histories = random_case(seed, num_items=200, num_rows=6, similarity=5, neighbours=3)
    light = random_light(np.random.default_rng(seed), len(weights.nodes), weights.history_length, width=16)
    return tree, dataclasses.replace(weights, light=light), histories


def damaged(weights, name, place, value):
    """The weights with a value at one position of an array, at several, or at every one (None)."""
    arrays = {kept: array.copy() for kept, array in weights.arrays().items()}
    flat = arrays[name].reshape(-1)
    flat[slice(None) if place is None else np.array(place) % flat.size] = value
    with values_unread():
        return DinWeights.from_arrays(arrays, {term: part.term for term, part in weights.terms.items()})


def answers(weights, tree, histories, way, precision, level):
    """Leaves and scores of every kind of search that the way uses; with level None by numpy."""
    search, live = DinSearch(weights, tree.shape, precision=precision, level=level), tree.live_counts
    if way.kind == "beam":
        found = search.beam(histories, beam_width=way.beam_width, k=6, live=live)
        return found.leaves, found.scores, search.score(histories, np.tile(np.arange(9), (len(histories), 1)))
    found = search.steered(histories, way, k=6, live=live)
    return found.leaves, found.scores


@pytest.fixture(params=[*VARIANTS, ("float32", None)], ids=str)
def variant(request, monkeypatch):
    if request.param[1] is None:
        monkeypatch.setenv("BEAMWOOD_KERNELS", "reference")
    return request.param


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("value", WRONG)
@pytest.mark.parametrize("name", [*NODE_ARRAYS, "light.history_scales"])
def test_arrays_of_nan_are_refused(name, value, variant):
    tree, weights, histories = case(3)
    bad = damaged(weights, name, None, value)
    for way in WAYS[1:] if name.startswith("light") else WAYS:
        answers(weights, tree, histories, way, *variant)
        with pytest.raises(ArtefactError, match="a score is NaN or infinite, so a stored weight is damaged"):
            answers(bad, tree, histories, way, *variant)


@pytest.mark.parametrize("bits", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FC00000])
def test_every_nan_of_a_leaf_is_refused(bits, variant):
    """Rounded to bf16, bits of all ones would be 0; a leaf far from the best is not scored again in float32."""
    tree, weights, histories = case(3)
    live, nan = tree.live_counts, np.array(bits, np.uint32).view(np.float32)
    level, (precision, isa) = tree.shape.depth, variant
    intact = DinSearch(weights, tree.shape, precision=precision, level=isa)
    last = intact.exact(histories[1:2], tree.num_items, live=live).leaves[0, -1]
    width = weights.nodes.shape[1]
    place = (tree.shape.level_offset(level) + last) * width
    bad = damaged(weights, "nodes", range(place, place + width), nan)
    with pytest.raises(ArtefactError, match="a score is NaN or infinite"):
        DinSearch(bad, tree.shape, precision=precision, level=isa).exact(histories[1:2], 1, live=live)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 99),
    name=st.sampled_from(NODE_ARRAYS),
    place=st.integers(0, 10**6),
    value=st.sampled_from(WRONG),
    way=st.sampled_from(WAYS),
    variant=st.sampled_from(VARIANTS or [("float32", None)]),
)
def test_one_damaged_number_is_refused_or_changes_nothing(seed, name, place, value, way, variant):
    tree, weights, histories = case(seed)
    expected = answers(weights, tree, histories, way, *variant)
    try:
        found = answers(damaged(weights, name, place, value), tree, histories, way, *variant)
    except ArtefactError:
        return
    assert all(np.array_equal(one, other) for one, other in zip(found, expected, strict=True))
