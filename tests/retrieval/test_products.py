"""Exact search over vectors against a plain sort, across block borders, and its errors."""

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.retrieval import products as module
from beamwood.retrieval.products import best_products, products
from beamwood.retrieval.top_k import top_k
from beamwood.types import ItemLists


@pytest.mark.parametrize(("block_rows", "block_items"), [(64, 65536), (2, 7), (1, 1)])
@pytest.mark.parametrize("k", [1, 6, 60])
def test_equals_a_plain_sort(monkeypatch, block_rows, block_items, k):
    monkeypatch.setattr(module, "_BLOCK_ROWS", block_rows)
    monkeypatch.setattr(module, "_BLOCK_ITEMS", block_items)
    rng = np.random.default_rng(k)
    # Small integers give many ties, which the lower index wins.
    queries, vectors = (rng.integers(-2, 3, (n, 4)).astype(np.float32) for n in (5, 50))
    excluded = ItemLists.from_lists([np.sort(rng.permutation(50)[:n]) for n in (0, 1, 20, 50, 3)])
    allowed = rng.random(50) < 0.7
    got = best_products(queries, vectors, k, excluded=excluded, allowed=allowed)
    expected = top_k(queries @ vectors.T, k, excluded=excluded, allowed=allowed)
    assert np.array_equal(got.items, expected.items)
    assert np.array_equal(got.scores, expected.scores)
    assert np.array_equal(got.scored, expected.scored)


@pytest.mark.parametrize("num_allowed", [0, 1, 9, 120])
def test_few_allowed_items_are_scored_alone(monkeypatch, num_allowed):
    """A vector that no filter allows is never multiplied: here it is infinite, and its score would be none."""
    monkeypatch.setattr(module, "_BLOCK_ITEMS", 50)
    rng = np.random.default_rng(num_allowed)
    queries, vectors = (rng.integers(-2, 3, (n, 4)).astype(np.float32) for n in (5, 1000))
    excluded = ItemLists.from_lists([np.sort(rng.permutation(1000)[:n]) for n in (0, 1, 400, 1000, 3)])
    allowed = np.zeros(1000, bool)
    allowed[rng.permutation(1000)[:num_allowed]] = True
    expected = top_k(queries @ vectors.T, 7, excluded=excluded, allowed=allowed)
    vectors[~allowed] = np.inf
    got = best_products(queries, vectors, 7, excluded=excluded, allowed=allowed)
    assert np.array_equal(got.items, expected.items)
    assert np.array_equal(got.scores, expected.scores)
    assert np.array_equal(got.scored, expected.scored)


@pytest.mark.parametrize("columns", [3, 40])
def test_scores_of_given_items(columns):
    rng = np.random.default_rng(0)
    queries, vectors = rng.normal(size=(70, 8)).astype(np.float32), rng.normal(size=(50, 8)).astype(np.float32)
    items = rng.integers(-1, 50, (70, columns))
    got = products(queries, vectors, items)
    expected = np.einsum("bd,bmd->bm", queries, vectors[np.maximum(items, 0)])
    assert np.allclose(got[items >= 0], expected[items >= 0], atol=1e-4)
    assert np.isneginf(got[items < 0]).all()


def test_wrong_input():
    with pytest.raises(InputError, match="widths must agree"):
        best_products(np.zeros((2, 3)), np.zeros((5, 4)), 2)
    with pytest.raises(InputError, match="a score is NaN"):
        best_products(np.full((1, 3), np.nan), np.zeros((5, 3)), 2)
    with pytest.raises(InputError, match=r"outside -1\.\.4"):
        products(np.zeros((1, 3)), np.zeros((5, 3)), np.array([[5]]))
    assert best_products(np.zeros((0, 3)), np.zeros((5, 3)), 2).items.shape == (0, 2)
