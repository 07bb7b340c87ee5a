"""The index contract; HNSW falls back to exact search, and refuses an invalid graph."""

import sys
from typing import ClassVar

import numpy as np
import pytest

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.index import INDEXES, ExactIndex, HnswIndex, IvfIndex
from beamwood.retrieval.products import best_products
from beamwood.testing import IndexContract
from beamwood.types import ItemLists, SearchOptions


class TestExact(IndexContract):
    index = ExactIndex
    recall = 1.0
    exhaustive: ClassVar = {}


class TestIvf(IndexContract):
    index = IvfIndex
    recall = 0.5
    exhaustive: ClassVar = {"num_buckets": 40, "num_probed": 40}
    efforts: ClassVar = [{"num_probed": num} for num in (1, 4, 16, 55)]


class TestHnsw(IndexContract):
    index = HnswIndex
    efforts: ClassVar = [{"num_links": 2, "search_width": 20}, {"num_links": 8, "search_width": 80}]
    # A beam as wide as the catalogue.
    exhaustive: ClassVar = {"search_width": 3000}

    @pytest.fixture(autouse=True)
    def _needs_faiss(self):
        pytest.importorskip("faiss", reason="faiss is not installed (pip install 'beamwood[ann]')")


def test_indexes_are_registered_by_name():
    assert all(index.kind == name for name, index in INDEXES.items())


@pytest.fixture
def case():
    pytest.importorskip("faiss", reason="faiss is not installed (pip install 'beamwood[ann]')")
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 16)).astype(np.float32), rng.normal(size=(3000, 16)).astype(np.float32), rng


def test_rows_that_a_filter_empties_are_exact(case):
    queries, vectors, rng = case
    index = HnswIndex(vectors)
    few = np.zeros(3000, bool)
    few[rng.permutation(3000)[:7]] = True
    exact = best_products(queries, vectors, 10, allowed=few)
    assert np.array_equal(index.search(queries, 10, SearchOptions(allowed=few)).items, exact.items)
    # Everything that the graph would return is excluded; the rest is found by brute force.
    best = best_products(queries[:1], vectors, 300)
    got = index.search(queries[:1], 5, SearchOptions(ItemLists.from_lists([np.sort(best.items[0])])))
    expected = best_products(queries[:1], vectors, 305).items[0, 300:]
    assert len(set(got.items[0]) & set(expected)) >= 4


def test_without_faiss_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r'index.kind=hnsw: faiss is not installed; .*pip install "beamwood\[ann\]"'):
        HnswIndex(np.zeros((3, 2)))


@pytest.mark.parametrize("name", ["levels", "neighbours"])
def test_an_invalid_graph_is_refused(case, name):
    """Its search would read out of bounds."""
    _, vectors, _ = case
    config, arrays = HnswIndex(vectors).export()
    levels = arrays["levels"]
    assert levels.max() > 1, "the graph has only one level, so the test is void"
    wrong = [arrays[name][:-1], np.full_like(arrays[name], 2**30), np.full_like(arrays[name], -5), arrays[name][::-1]]
    # Neighbours on an upper level that are not on that level.
    upper = arrays["neighbours"].copy()
    first = 64 * int(np.argmax(levels > 1)) + 64
    upper[first : first + 32] = np.flatnonzero(levels == 1)[0]
    wrong += [upper] if name == "neighbours" else []
    for array in wrong:
        with pytest.raises(ArtefactError, match=r"the index's|the index has"):
            HnswIndex.restore(vectors, config, arrays | {name: np.ascontiguousarray(array)})
    low = int(np.flatnonzero(levels == 1)[0])
    with pytest.raises(ArtefactError, match="entry_point"):
        HnswIndex.restore(vectors, config | {"entry_point": low}, arrays)
