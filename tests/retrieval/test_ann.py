"""The approximate index against exact search; it needs the extra `ann`."""

import sys

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.retrieval.ann import FaissIndex
from beamwood.retrieval.vector import best_products
from beamwood.types import ItemLists


@pytest.fixture
def case():
    pytest.importorskip("faiss", reason="faiss is not installed (pip install 'beamwood[ann]')")
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 16)).astype(np.float32), rng.normal(size=(3000, 16)).astype(np.float32), rng


def test_finds_nearly_what_exact_search_finds(case):
    queries, vectors, rng = case
    excluded = ItemLists.from_lists([np.sort(rng.permutation(3000)[: 5 * n]) for n in range(20)])
    allowed = rng.random(3000) < 0.8
    got = FaissIndex(vectors).search(queries, 10, excluded=excluded, allowed=allowed)
    exact = best_products(queries, vectors, 10, excluded=excluded, allowed=allowed)
    overlap = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(got.items, exact.items, strict=True)])
    assert overlap > 0.9
    assert allowed[got.items].all()
    assert all(not set(row) & set(excluded[i]) for i, row in enumerate(got.items))
    assert np.allclose(got.scores, np.einsum("bd,bkd->bk", queries, vectors[got.items]), atol=1e-4)
    assert (np.diff(got.scores, axis=1) <= 0).all()


def test_rows_that_a_filter_empties_are_exact(case):
    queries, vectors, rng = case
    index = FaissIndex(vectors)
    few = np.zeros(3000, bool)
    few[rng.permutation(3000)[:7]] = True
    exact = best_products(queries, vectors, 10, allowed=few)
    assert np.array_equal(index.search(queries, 10, allowed=few).items, exact.items)
    # All that the graph would return is excluded: the rest is found by brute force.
    best = best_products(queries[:1], vectors, 300)
    got = index.search(queries[:1], 5, excluded=ItemLists.from_lists([np.sort(best.items[0])]))
    expected = best_products(queries[:1], vectors, 305).items[0, 300:]
    assert len(set(got.items[0]) & set(expected)) >= 4


def test_without_faiss_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"pip install 'beamwood\[ann\]'"):
        FaissIndex(np.zeros((3, 2)))
