"""A weight for seen items with vector search equals one added to dense scores."""

import numpy as np
import pytest

from beamwood.models.encoders import ENCODERS
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.vectors import sequence_searcher
from beamwood.retrieval.top_k import top_k
from beamwood.types import ItemLists, Query, SearchOptions

ROWS, ITEMS, WIDTH, HIDDEN = 9, 50, 6, 5


def searcher(weight):
    rng = np.random.default_rng(0)
    shapes = {
        "items.weight": (ITEMS, WIDTH),
        "gru.weight_ih_l0": (3 * HIDDEN, WIDTH),
        "gru.weight_hh_l0": (3 * HIDDEN, HIDDEN),
        "gru.bias_ih_l0": (3 * HIDDEN,),
        "gru.bias_hh_l0": (3 * HIDDEN,),
        "output.weight": (WIDTH, HIDDEN),
        "output.bias": (WIDTH,),
    }
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    encoder = PlainEncoder(ENCODERS["gru4rec"], arrays, {"hidden": HIDDEN}, length=8)
    return Blend([Part(sequence_searcher(encoder), gate="history")], seen_weight=weight)


@pytest.fixture
def case():
    rng = np.random.default_rng(1)
    lists = [rng.integers(0, ITEMS, size) for size in (0, 1, 2, 5, 8, 20, 200, 3, 3)]
    excluded = ItemLists.from_lists([rng.permutation(ITEMS)[: rng.integers(0, 9)] for _ in range(ROWS)])
    return ItemLists.from_lists(lists), excluded, rng.random(ITEMS) < 0.7


@pytest.mark.parametrize("k", [1, 7, ITEMS + 5])
@pytest.mark.parametrize("weight", [-1024.0, -1.5, 0.0, 2.0, 64.0])
@pytest.mark.parametrize("filters", [(), ("excluded",), ("allowed",), ("excluded", "allowed")])
def test_the_search_equals_dense_scores(case, k, weight, filters):
    histories, excluded, allowed = case
    chosen = {name: part for name, part in {"excluded": excluded, "allowed": allowed}.items() if name in filters}
    ours = searcher(weight)
    query = Query.of(histories)
    dense = ours.first.encode(query) @ ours.first.vectors.T
    for row, history in enumerate(histories):
        dense[row, np.unique(history)] += np.float32(weight)
    expected, found = top_k(dense, k, **chosen), ours.search(query, k, SearchOptions(**chosen))
    assert np.array_equal(found.items, expected.items)
    assert np.allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-4)
    assert np.array_equal(found.scored, expected.scored)
    every = np.tile(np.arange(-1, ITEMS), (ROWS, 1))
    scores = ours.score(query, every)
    assert np.allclose(scores[:, 1:], dense, rtol=1e-4, atol=1e-4)
    assert np.isneginf(scores[:, 0]).all()


def test_the_weight_is_saved():
    config, arrays = searcher(-2.5).export()
    assert restore_searcher("blend", config, dict(arrays)).seen_weight == -2.5
