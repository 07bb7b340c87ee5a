"""Selecting and sampling the queries of a split."""

import numpy as np
import pytest

from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.types import ItemLists


@pytest.fixture
def queries():
    """Twenty users with one history item; every fourth has no label."""
    items = [[user] for user in range(20)]
    labels = [[] if user % 4 == 0 else [user, user + 1] for user in range(20)]
    users, histories = np.arange(20), ItemLists.from_lists(items)
    return Queries(users, histories, ItemLists.from_lists(labels), histories)


def test_labelled_queries_keep_their_order_and_rows(queries):
    labelled = queries.labelled()
    assert labelled.users.tolist() == [user for user in range(20) if user % 4]
    assert [row.tolist() for row in labelled.histories] == [[user] for user in labelled.users]
    assert (labelled.labels.lengths == 2).all()


def test_a_sample_is_random_by_seed_and_in_order(queries):
    first, second = queries.sample(8, seed=1), queries.sample(8, seed=1)
    assert first.users.tolist() == second.users.tolist() == sorted(set(first.users.tolist()))
    assert len(first) == 8
    assert first.users.tolist() != queries.sample(8, seed=2).users.tolist()
    assert queries.sample(50, seed=1).users.tolist() == list(range(20))


def test_rows_beside_the_users_have_to_be_as_many(queries):
    with pytest.raises(InputError, match="20 users and 3 rows of labels"):
        Queries(queries.users, queries.histories, queries.labels.take(np.arange(3)), queries.seen)


def test_plain_lists_of_users_are_numbers_and_other_rows_need_their_class(queries):
    beside = (queries.histories, queries.labels, queries.seen)
    assert Queries(list(range(20)), *beside).users.dtype == np.int64
    with pytest.raises(InputError, match="users must hold whole numbers"):
        Queries(np.arange(20) + 0.5, *beside)
    with pytest.raises(InputError, match="labels is no ItemLists"):
        Queries(queries.users, queries.histories, [[1]] * 20, queries.seen)
