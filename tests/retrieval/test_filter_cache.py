"""The cache of filters: bounded, and as fast with many entries as with few."""

from collections import Counter

import numpy as np
import polars as pl

from beamwood.kept import Prepared
from beamwood.retrieval.columns.filter_cache import FilterCache
from retrieval_cases import retriever_of, tree_searcher


def name(number):
    return b"%d" % number


def test_another_filter_costs_the_same_however_many_there_are(monkeypatch):
    measured, nbytes = [], Prepared.nbytes.fget
    monkeypatch.setattr(Prepared, "nbytes", property(lambda own: measured.append(own) or nbytes(own)))
    retriever = retriever_of(tree_searcher(60))
    ids = retriever.items.decode(np.arange(60))
    for number in range(1, 60):
        retriever.recommend([ids[:2]], 5, allowed=ids[:number])
    assert len(retriever.names.filters.cache) == 59
    assert len(measured) < 5 * 59


def test_arrays_derived_later_count_and_the_least_recently_used_is_dropped():
    uses = Counter()
    cache = FilterCache(3 * 2000, uses)
    kept = [cache.add(name(number), Prepared(np.zeros(100, bool))) for number in range(4)]
    assert len(cache) == 4
    before = cache.nbytes
    assert cache.get(name(0)) is kept[0]
    within = kept[1].once(cache, lambda: Prepared(np.zeros(500, bool)))
    assert cache.nbytes == before + 500
    # More than there is room for: of the others the least recently used goes.
    within.once(cache, lambda: np.zeros(2000, np.int8))
    assert cache.nbytes <= 3 * 2000
    assert cache.get(name(1)) is None
    assert cache.get(name(0)) is kept[0]
    before = cache.nbytes
    kept[1].once(kept, lambda: np.zeros(10**6, np.int8))
    assert cache.nbytes == before
    assert uses == {"hits": 2, "misses": 1}


def test_ids_with_conditions_are_prepared_once():
    filters = retriever_of(tree_searcher(60)).names.filters
    ids, cheap = filters.items.decode(np.arange(40)), {"price": {"lte": 20}}
    found, first = filters.prepared(ids, cheap), np.arange(60) < 40
    assert np.array_equal(found.mask, first & filters.prepared(None, cheap).mask)
    assert 0 < found.mask.sum() < 40
    assert filters.prepared(ids, {"price": {"lte": 20}}) is found
    for given in ((ids[:39], cheap), (ids, {"price": {"lte": 21}}), (ids, None)):
        other = filters.prepared(*given)
        assert other is not found
        assert filters.prepared(*given) is other
    # Conditions without a canonical text are not cached.
    for price in (20.0, 21.0):
        mask = filters.prepared(ids, {"price": pl.Series([price])}).mask
        assert np.array_equal(mask, first & filters.prepared(None, {"price": price}).mask)


def test_the_text_of_long_conditions_is_not_kept():
    retriever = retriever_of(tree_searcher(60))
    for number in range(2):
        many = [{"price": {"lte": each + number / 2}} for each in range(5000)]
        retriever.recommend([[]], 5, where={"any": many})
    cache = retriever.names.filters.cache
    assert len(cache) == 2
    assert all(len(each) == 16 for each in cache._kept)
