"""Low overhead around a search: no Polars, and no work that grows with the catalogue or the number of users."""

import time

import numpy as np
import polars as pl
import pytest

from beamwood.errors import InputError
from beamwood.kernels.reference import SearchResult
from beamwood.retrieval.retriever import Retriever
from retrieval_cases import retriever_of, tree_searcher

WHERE = {"price": {"lte": 20}, "brand": ["brand 1", "brand 2"]}


def asks(retriever):
    history = retriever.items.decode(np.arange(3, 40))
    return {
        "history": lambda: retriever.recommend([history], 10),
        "user": lambda: retriever.recommend(users=[7], k=10),
        "category": lambda: retriever.recommend([history], 10, allowed={"category": "c1"}),
        "where": lambda: retriever.recommend([history], 10, where=WHERE),
        "ids": lambda: retriever.recommend([history], 3, allowed=retriever.items.decode(np.arange(50, 90))),
    }


@pytest.mark.parametrize("text", [True, False])
def test_polars_is_not_used_to_answer(text, tmp_path, monkeypatch):
    retriever_of(tree_searcher(400), text=text).save(tmp_path / "model")
    retriever = Retriever.load(tmp_path / "model")
    expected = {name: ask() for name, ask in asks(retriever).items()}

    def refused(*args, **kwargs):
        raise AssertionError("Polars was used")

    for kind in (pl.Series, pl.DataFrame, pl.LazyFrame):
        monkeypatch.setattr(kind, "__init__", refused)
    for name in ("from_arrow", "concat", "select"):
        monkeypatch.setattr(pl, name, refused)
    assert {name: ask() for name, ask in asks(retriever).items()} == expected


class Stub:
    """A native core with precomputed answers, so that only Python takes time."""

    def __init__(self, search):
        self.search, self.kept = search, {}

    def __getattr__(self, name):
        if not callable(getattr(self.search, name)):
            return getattr(self.search, name)

        def called(*args, **kwargs):
            key = name, kwargs.get("k"), kwargs["live"][-1].sum() if "live" in kwargs else None
            if key not in self.kept:
                self.kept[key] = getattr(self.search, name)(*args, **kwargs)
            found = self.kept[key]
            return (
                SearchResult(found.leaves.copy(), found.scores.copy(), found.scored)
                if isinstance(found, SearchResult)
                else found
            )

        return called


def seconds(ask):
    ask()
    taken = []
    for _ in range(60):
        began = time.process_time()
        ask()
        taken.append(time.process_time() - began)
    return float(np.median(taken))


@pytest.mark.parametrize("kind", ["history", "user", "category", "where"])
def test_python_overhead_does_not_grow_with_the_catalogue(kind, tmp_path):
    # Measured on one machine in one run: the sizes differ by a factor of 50, the times must differ far less.
    took = []
    for size, users in ((1_000, 100), (50_000, 5_000)):
        retriever_of(tree_searcher(size), num_users=users).save(tmp_path / str(size))
        retriever = Retriever.load(tmp_path / str(size))
        retriever.searcher.core = Stub(retriever.searcher.core)
        took.append(seconds(asks(retriever)[kind]))
    assert took[1] <= 4 * took[0]
    # Fifteen times the value of an idle machine.
    assert took[0] < 0.003


def test_a_filter_is_prepared_once_and_the_cache_is_bounded(tmp_path):
    retriever = retriever_of(tree_searcher(400))
    filters = retriever.names.filters
    history = retriever.items.decode(np.arange(3))
    for _ in range(2):
        retriever.recommend([history], 5, where={"price": {"lte": 30}})
    assert len(filters.cache) == 1
    one = filters.cache.nbytes
    assert one > 400 + 4 * 400
    filters.cache.max_bytes = 3 * one
    for price in range(1, 30):
        retriever.recommend([history], 5, where={"price": {"lte": price}})
    assert filters.cache.nbytes <= 3 * one
    assert len(filters.cache) == 3


def test_a_condition_that_contains_itself_is_refused():
    retriever = retriever_of(tree_searcher(400))
    own: list = []
    own.append(own)
    for where in ({"price": own}, {"price": {"in": own}}):
        with pytest.raises(InputError, match="price"):
            retriever.recommend([retriever.items.decode(np.arange(3))], 5, where=where)
    assert not len(retriever.names.filters.cache)
