"""The first part of blends: its searches are made once for all blends, and change no measurement."""

from dataclasses import replace

import numpy as np
import pytest

import beamwood
from beamwood.recipes.portfolio.first_part import FirstPart, Remembered
from beamwood.recipes.portfolio.validation import Validation
from beamwood.training.budget import Budget
from beamwood.types import ItemLists, QueryNeeds, SearchOptions
from portfolios import small_split


class Counted:
    """A searcher that counts its searches."""

    def __init__(self, searcher):
        self.searcher, self.num_items, self.needs, self.calls = searcher, searcher.num_items, searcher.needs, 0

    def search(self, query, k, options=SearchOptions()):
        self.calls += 1
        return self.searcher.search(query, k, options)

    def score(self, query, items_BM):
        return self.searcher.score(query, items_BM)


@pytest.fixture(scope="module")
def split():
    return small_split()


@pytest.fixture(scope="module")
def fitted(split):
    return {name: beamwood.fit(split, name) for name in ("cooccurrence", "transitions", "popularity")}


def test_only_equal_searches_are_made_once(split, fitted):
    counted = Counted(fitted["transitions"].searcher)
    remembered, query = Remembered(counted), split.valid.query(QueryNeeds())
    excluded = SearchOptions(excluded=query.histories.distinct())
    none = ItemLists.empty(len(query))
    asked = [
        (query, 5, SearchOptions()),
        (query, 6, SearchOptions()),
        (query, 5, excluded),
        (query, 5, SearchOptions(excluded=none)),
        (query, 5, SearchOptions(num_exact=3)),
        (query, 5, SearchOptions(allowed=np.arange(remembered.num_items) % 2 == 0)),
        (query.take(np.arange(len(query))[::-1]), 5, SearchOptions()),
        (replace(query, histories=none), 5, SearchOptions()),
    ]
    for each in asked:
        assert np.array_equal(remembered.search(*each).items, counted.searcher.search(*each).items)
    assert counted.calls == len(asked) == len(remembered)
    again = split.valid.query(QueryNeeds())
    assert np.array_equal(remembered.search(again, 5).items, counted.searcher.search(query, 5).items)
    assert counted.calls == len(asked)


@pytest.mark.parametrize("monitor", ["removed/f@20", "both/ndcg@20"])
def test_blends_behind_one_first_part_are_measured_as_alone(split, fitted, monitor):
    validation = Validation(split, monitor, 1000, seed=0)
    first = FirstPart(("transitions",), fitted["transitions"], split, validation, seed=0)
    counted = first._remembered.searcher = Counted(first._remembered.searcher)
    assert not first.is_searched
    calls = []
    for second in ("cooccurrence", "popularity"):
        blend = first.behind(fitted[second], Budget())
        assert np.array_equal(validation.values(first.measured(blend)), validation.values(blend.searcher))
        calls.append(counted.calls)
    assert first.is_searched
    assert calls[0] == calls[1] > 0
