"""`ItemLists`: compressed rows agree with plain Python lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.errors import InputError, nearest
from beamwood.types import ItemLists, among

rows_of_items = st.lists(st.lists(st.integers(0, 20), max_size=7), max_size=8)


@given(rows_of_items, st.integers(1, 6))
def test_agrees_with_lists(rows, length):
    lists = ItemLists.from_lists(rows)
    assert [list(row) for row in lists] == rows
    assert [list(row) for row in lists.last(length)] == [row[-length:] for row in rows]
    assert [list(row) for row in lists.distinct()] == [sorted(set(row)) for row in rows]
    expected = [[-1] * (length - len(row[-length:])) + row[-length:] for row in rows]
    assert lists.padded(length).tolist() == expected
    backwards = np.arange(len(rows))[::-1]
    assert [list(row) for row in lists.take(backwards)] == rows[::-1]
    assert [list(row) for row in ItemLists.concatenate([lists, lists])] == rows + rows


@given(rows_of_items, rows_of_items)
def test_two_lists_a_row(rows, others):
    others = [*others, *rows][: len(rows)]
    first, second = ItemLists.from_lists(rows), ItemLists.from_lists(others)
    both = first.union(second)
    assert [list(row) for row in both] == [sorted({*a, *b}) for a, b in zip(rows, others, strict=True)]
    items = np.tile(np.arange(-1, 23), (len(rows), 1))
    assert among(items, second).tolist() == [[item in other for item in range(-1, 23)] for other in others]
    with pytest.raises(InputError, match="give one row each"):
        first.union(ItemLists.empty(len(rows) + 1))


def test_wrong_arrays_are_refused():
    with pytest.raises(InputError, match="end at len"):
        ItemLists(np.array([0, 3]), np.array([1, 2]))
    with pytest.raises(InputError, match="never fall"):
        ItemLists(np.array([0, 2, 1, 2]), np.array([1, 2]))
    with pytest.raises(InputError, match="0 or more"):
        ItemLists(np.array([0, 1]), np.array([-1]))


def test_nearest_names_the_closest():
    assert nearest("drt", ["dtr", "tdm"]) == "; did you mean 'dtr'?"
    assert nearest("xyz", ["dtr", "tdm"]) == "; known: dtr, tdm"
