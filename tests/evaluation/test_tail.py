"""The tail report: which queries and labels it keeps, and how uneven an exposure is."""

import numpy as np
import pytest

from beamwood.data.split import Queries
from beamwood.errors import InputError
from beamwood.evaluation.metrics import TailRule, gini
from beamwood.evaluation.tail import tail_queries
from beamwood.types import ItemLists


def test_only_tail_labels_and_their_users():
    counts = np.array([50, 1, 30, 2, 40])
    lists = ItemLists.from_lists([[0], [2], [4], [0, 1]])
    labels = ItemLists.from_lists([[0, 1], [2], [1, 3], [4]])
    queries = Queries(np.array([7, 8, 9, 10]), lists, labels, lists)
    tail = tail_queries(queries, counts, TailRule(share=0.4))
    assert tail.users.tolist() == [7, 9]
    assert [row.tolist() for row in tail.labels] == [[1], [1, 3]]
    assert [row.tolist() for row in tail.histories] == [[0], [4]]
    assert tail.of_queries == 4
    assert "0.4 share of item types" in tail.rule
    only_head = Queries(np.array([1]), lists.take(np.array([0])), labels.take(np.array([1])), lists.take(np.array([0])))
    with pytest.raises(InputError, match="no query has a tail label"):
        tail_queries(only_head, counts, TailRule(share=0.4))


def test_gini():
    assert gini(np.array([5, 5, 5])) == 0
    assert np.isclose(gini(np.array([0, 0, 0, 12])), 0.75)
    assert gini(np.zeros(4)) == 0
    values = np.array([1.0, 4.0, 2.0, 7.0])
    slow = np.abs(values[:, None] - values[None]).sum() / (2 * 16 * values.mean())
    assert np.isclose(gini(values), slow)
