"""Counting methods with seen items first or last equal lists that are combined by hand."""

import numpy as np
import pytest
from scipy import sparse

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.types import ItemLists, Query, SearchOptions

ROWS, ITEMS, LENGTH = 12, 30, 6


def searcher(seen):
    rng = np.random.default_rng(0)
    matrix = sparse.random(ITEMS, ITEMS, 0.3, format="csr", random_state=1, dtype=np.float32)
    return NeighbourSearcher(matrix, rng.permutation(ITEMS), decay=0.8, length=LENGTH, seen=seen)


@pytest.fixture
def case():
    rng = np.random.default_rng(2)
    histories = ItemLists.from_lists([rng.integers(0, ITEMS, size) for size in (0, 1, 2, 3, 5, 6, 9, 30, 4, 4, 4, 4)])
    excluded = ItemLists.from_lists([rng.permutation(ITEMS)[: rng.integers(0, 6)] for _ in range(ROWS)])
    return histories, excluded, rng.random(ITEMS) < 0.8


@pytest.mark.parametrize("filters", [(), ("excluded",), ("allowed",), ("excluded", "allowed")])
@pytest.mark.parametrize("seen", ["first", "last"])
def test_lists_equal_those_combined_by_hand(case, seen, filters):
    histories, excluded, allowed = case
    chosen = {name: part for name, part in {"excluded": excluded, "allowed": allowed}.items() if name in filters}
    found = searcher(seen).search(Query.of(histories), ITEMS, SearchOptions(**chosen))
    plain = searcher("counted")
    every = plain.search(Query.of(histories), ITEMS, SearchOptions(**chosen))
    for row, history in enumerate(histories):
        had = list(dict.fromkeys(history[::-1][:LENGTH].tolist()))
        known = every.items[row][every.items[row] >= 0].tolist()
        scored = [item for item, score in zip(known, every.scores[row], strict=False) if score > 0 and item not in had]
        filler = [item for item in known if item not in scored and (seen == "last" or item not in had)]
        filler = sorted(filler, key=lambda item: (-plain.popularity[item], item))
        expected = ([item for item in had if item in known] if seen == "first" else []) + scored + filler
        ours = found.items[row][found.items[row] >= 0].tolist()
        assert ours == expected
    assert (found.scores[:, 1:] <= found.scores[:, :-1]).all()
    assert np.array_equal(found.scored, every.scored)
    given = np.where(found.items < 0, 0, found.items)
    scores = searcher(seen).score(Query.of(histories), given)
    assert np.allclose(np.where(found.items < 0, 0, scores), np.where(found.items < 0, 0, found.scores), rtol=1e-5)


def test_the_choice_is_saved_and_checked():
    config, arrays = searcher("first").export()
    assert restore_searcher("neighbours", config, dict(arrays)).seen == "first"
    with pytest.raises(InputError, match="did you mean 'first'"):
        searcher("frst")
    with pytest.raises((ArtefactError, ValueError), match="seen"):
        restore_searcher("neighbours", config | {"seen": "frst"}, dict(arrays))
    del config["seen"]
    with pytest.raises((ArtefactError, ValueError), match="seen"):
        restore_searcher("neighbours", config, dict(arrays))
