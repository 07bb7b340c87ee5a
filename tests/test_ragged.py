"""Rows of different lengths in one flat array."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.ragged import indptr_of, is_in, places_in_rows, ranges, repeats, sorted_distinct
from beamwood.types import ItemLists, among

LENGTHS = st.lists(st.integers(0, 5), max_size=8)


@given(LENGTHS)
def test_each_row_starts_at_the_end_of_the_previous_one(lengths):
    indptr = indptr_of(lengths)
    assert indptr.dtype == np.int64
    assert indptr.tolist() == [sum(lengths[:row]) for row in range(len(lengths) + 1)]


@given(LENGTHS, st.data())
def test_entries_are_numbered_within_their_row(lengths, data):
    starts = data.draw(st.lists(st.integers(-9, 9), min_size=len(lengths), max_size=len(lengths)))
    sizes = np.array(lengths, np.int64)
    assert places_in_rows(sizes).tolist() == [place for length in lengths for place in range(length)]
    wanted = [start + place for start, length in zip(starts, lengths, strict=True) for place in range(length)]
    assert ranges(np.array(starts, np.int64), sizes).tolist() == wanted


@given(st.lists(st.integers(-5, 5)))
def test_values_are_sorted_and_distinct(values):
    assert sorted_distinct(np.array(values, np.int32)).tolist() == sorted(set(values))


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_values_that_others_hold_are_found(values, others):
    found = is_in(np.array(values, np.int64), np.array(others, np.int64))
    assert found.tolist() == [value in others for value in values]


def test_lists_are_sorted_and_not_hashed(monkeypatch):
    """Four million keys take numpy's hash five seconds, and a sort a tenth of one."""
    lists = ItemLists.from_lists([[3, 1, 3], [], [2, 2]])
    monkeypatch.setattr(np, "unique", lambda *_: pytest.fail("numpy's unique hashes whole numbers"))
    assert [row.tolist() for row in lists.distinct()] == [[1, 3], [], [2]]
    assert [row.tolist() for row in lists.union(lists)] == [[1, 3], [], [2]]
    assert among(np.array([[1], [1], [2]]), lists).tolist() == [[True], [False], [True]]


@given(st.lists(st.lists(st.integers(-1, 5), min_size=6, max_size=6), max_size=4))
def test_repeats_are_what_an_earlier_place_holds(rows):
    expected = [[each >= 0 and each in row[:place] for place, each in enumerate(row)] for row in rows]
    assert repeats(np.array(rows, np.int32).reshape(len(rows), 6)).tolist() == expected
