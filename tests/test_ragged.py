"""Rows of different lengths in one flat array."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from beamwood.ragged import indptr_of, places_in_rows, ranges

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
