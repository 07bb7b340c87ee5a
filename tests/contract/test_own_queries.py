"""Custom query vectors search, are saved, and load with their record."""

import numpy as np
import polars as pl
import pytest

import beamwood
from beamwood.data import Vocabulary
from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.queries import QUERIES, HistoryMean
from beamwood.retrieval.searchers.vectors import VectorSearcher, searcher_with
from beamwood.types import ItemLists, Query, QueryNeeds


class Newest:
    """The vector of the newest item."""

    kind, needs = "newest", QueryNeeds()

    def __init__(self, items):
        self.items = items

    @property
    def shape(self):
        return self.items.shape

    def encode(self, query):
        padded = query.histories.padded(1)[:, 0]
        return np.where(padded[:, None] < 0, np.float32(0), self.items[padded])

    def export(self):
        return {}, {"rows": self.items}

    @classmethod
    def restore(cls, config, arrays, known):  # noqa: ARG003
        return cls(arrays["rows"])


def test_they_answer_and_load_with_their_record(tmp_path):
    vectors = np.eye(6, dtype=np.float32)
    searcher = VectorSearcher(Newest(np.roll(vectors, -1, axis=0)), vectors)
    query = Query.of(ItemLists.from_lists([[3, 0], [2]]))
    assert searcher.search(query, 1).items.tolist() == [[1], [3]]
    Retriever(searcher=searcher, items=Vocabulary(pl.Series(range(6)))).save(tmp_path / "model")
    with pytest.raises(ArtefactError, match="query vectors of kind 'newest' are unknown"):
        beamwood.load(tmp_path / "model")
    again = Retriever.load(tmp_path / "model", searchers={"vectors": searcher_with(queries=[Newest])})
    assert np.array_equal(again.searcher.search(query, 3).items, searcher.search(query, 3).items)


def test_a_name_that_is_taken_is_refused():
    assert Newest.kind not in QUERIES
    with pytest.raises(InputError, match=r"names of query vectors \['mean'\] are taken"):
        searcher_with(queries=[HistoryMean])
