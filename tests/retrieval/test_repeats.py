"""What a history holds, scored apart: the same as a weight added to a dense row of scores."""

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.models.encoders import ENCODERS
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.queries import EncodedHistory
from beamwood.retrieval.top_k import top_k
from beamwood.retrieval.vectors import VectorSearcher
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
    return VectorSearcher(EncodedHistory(encoder), encoder.vectors, repeat_weight=weight)


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
    dense = ours.encode(query) @ ours.vectors.T
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


def test_the_weight_is_saved_and_folders_of_before_have_none(case):
    config, arrays = searcher(-2.5).export()
    assert restore_searcher("vectors", config, dict(arrays)).repeat_weight == -2.5
    del config["repeat_weight"]
    assert restore_searcher("vectors", config, dict(arrays)).repeat_weight == 0


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf])
def test_what_is_no_weight_is_refused(weight):
    with pytest.raises(InputError, match="repeat_weight"):
        searcher(weight)
