"""Unseen items of users, against plain sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.data.unseen import UnseenItems
from beamwood.errors import InputError
from beamwood.types import ItemLists


@given(
    rows=st.lists(st.lists(st.integers(0, 8), max_size=20), min_size=1, max_size=6),
    extra=st.integers(0, 4),
)
def test_ranks_enumerate_the_unseen_items_in_order(rows, extra):
    num_items = 9 + extra
    unseen = UnseenItems(ItemLists.from_lists(rows), num_items)
    for user, row in enumerate(rows):
        others = sorted(set(range(num_items)) - set(row))
        assert unseen.lengths[user] == num_items - len(others)
        found = unseen.at(np.array([user]), np.arange(len(others))[None, :])[0]
        assert found.tolist() == others


def test_draws_are_uniform_over_unseen_items():
    unseen = UnseenItems(ItemLists.from_lists([[1, 3, 3], []]), 6)
    drawn = unseen.draw(np.array([0, 1]), np.random.default_rng(0).random((2, 30_000)))
    share = np.bincount(drawn[0], minlength=6) / 30_000
    assert share[[1, 3]].sum() == 0
    assert np.abs(share[[0, 2, 4, 5]] - 0.25).max() < 0.02
    assert np.abs(np.bincount(drawn[1], minlength=6) / 30_000 - 1 / 6).max() < 0.02


def test_distinct_draws_are_distinct_and_uniform():
    unseen = UnseenItems(ItemLists.from_lists([[0, 5]] * 4000), 9)
    drawn = unseen.distinct(np.arange(4000), 3, np.random.default_rng(0))
    assert (np.diff(np.sort(drawn, axis=1), axis=1) > 0).all()
    share = np.bincount(drawn.ravel(), minlength=9) / 12_000
    assert share[[0, 5]].sum() == 0
    assert np.abs(share[[1, 2, 3, 4, 6, 7, 8]] - 1 / 7).max() < 0.02


def test_wrong_input():
    with pytest.raises(InputError, match="item 7 of 5"):
        UnseenItems(ItemLists.from_lists([[7]]), 5)
    unseen = UnseenItems(ItemLists.from_lists([[0, 1, 2], [0]]), 3)
    with pytest.raises(InputError, match="user 0 has all 3 items"):
        unseen.draw(np.array([1, 0]), np.zeros((2, 1)))
    with pytest.raises(InputError, match="row 1 has only 2 of 3"):
        unseen.distinct(np.array([1]), 3, np.random.default_rng(0))
