"""Iteration over rows in blocks, and evenly spread rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamwood.blocks import blocks, cell_blocks, evenly, slices, weighted_slices


@given(st.integers(0, 50), st.integers(0, 60))
def test_blocks_have_every_row_once_in_order(num_rows, size):
    parts = list(blocks(num_rows, size))
    assert [row for part in parts for row in part] == list(range(num_rows))
    assert all(len(part) == max(1, size) for part in parts[:-1])
    assert [list(range(part.start, part.stop)) for part in slices(num_rows, size)] == [part.tolist() for part in parts]


@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 40))
def test_blocks_of_cells_have_every_cell_once_and_are_small(num_rows, num_columns, num_cells):
    taken = np.zeros((num_rows, num_columns), int)
    for part in cell_blocks(num_rows, num_columns, num_cells):
        taken[part] += 1
        assert taken[part].size <= max(1, num_cells)
    assert (taken == 1).all()


@pytest.mark.parametrize(("num_rows", "most"), [(1, 1), (5, 9), (10, 4), (1000, 999), (7, 1)])
def test_evenly_spread_rows_are_distinct_and_include_both_ends(num_rows, most):
    rows = evenly(num_rows, most)
    assert len(rows) == min(num_rows, most)
    assert rows[0] == 0
    assert len(rows) == 1 or rows[-1] == num_rows - 1
    gaps = np.diff(rows)
    assert len(rows) == 1 or 1 <= gaps.min() <= gaps.max() <= gaps.min() + 1
    assert len(evenly(0, most)) == 0


def test_weighted_slices_cover_all_rows_within_their_weight():
    weights = np.array([3, 0, 2, 9, 1, 1, 0, 4])
    found = list(weighted_slices(weights, 5))
    assert [row for part in found for row in range(part.start, part.stop)] == list(range(8))
    assert found == [slice(0, 3), slice(3, 4), slice(4, 7), slice(7, 8)]
    assert list(weighted_slices(np.zeros(0, np.int64), 5)) == []
