"""Positions of new items in an answer: not the first ones, at most a share, and k items if there are k."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.serve.answer.shares import order_by_share


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.1, [2, 3, 4, 5, 0]), (0.4, [2, 3, 0, 4, 1]), (0.5, [2, 0, 3, 1, 4]), (1.0, [0, 1, 2, 3, 4]), (0.0, None)],
)
def test_new_items_wait_for_positions_of_their_share(share, expected):
    """Items 0 and 1 are new and have the highest scores."""
    scores, new = np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0]), np.arange(6) < 2
    assert order_by_share(scores, new, share, 5) == (expected or [2, 3, 4, 5, 0])


def test_a_new_item_is_not_ranked_above_its_score():
    assert order_by_share(np.array([1.0, 9.0, 8.0, 7.0]), np.array([True, False, False, False]), 0.5, 3) == [1, 2, 3]


@given(
    scores=st.lists(st.floats(-9, 9), max_size=30),
    chance=st.integers(0, 2**30 - 1),
    share=st.floats(0, 1),
    k=st.integers(1, 40),
)
def test_properties_of_every_list(scores, chance, share, k):
    new = np.array([bool(chance >> at & 1) for at in range(len(scores))], bool)
    order = order_by_share(np.array(scores), new, share, k)
    assert len(order) == min(k, len(scores))
    assert len(set(order)) == len(order)
    known = [at for at in order if not new[at]]
    assert [scores[at] for at in known] == sorted((scores[at] for at in known), reverse=True)
    all_known = int((~new).sum())
    for number, place in enumerate((place for place, at in enumerate(order, start=1) if new[at]), start=1):
        spent = place - number >= all_known
        assert spent or place >= (min(math.ceil(number / share), k) if number < share * k else k)
