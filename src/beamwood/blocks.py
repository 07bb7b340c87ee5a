"""Rows in blocks, so that memory stays bounded, and evenly spread samples of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["blocks", "cell_blocks", "evenly", "slices", "weighted_slices"]


def slices(num_rows: int, size: int) -> Iterator[slice]:
    """Slices of all rows in order, each of `max(size, 1)` rows, the last of the rest."""
    size = max(1, size)
    return (slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size))


def blocks(num_rows: int, size: int) -> Iterator[NDArray[np.int64]]:
    """The row numbers of `slices`."""
    return (np.arange(part.start, part.stop) for part in slices(num_rows, size))


def weighted_slices(weights_N: NDArray[np.integer[Any]], most: int) -> Iterator[slice]:
    """Slices of all rows in order, each of a total weight of at most `most`, or of one row that is heavier."""
    start, ends = 0, np.cumsum(weights_N)
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(start, stop)
        start = stop


def cell_blocks(num_rows: int, num_columns: int, num_cells: int) -> Iterator[tuple[slice, slice]]:
    """Row and column slices that tile a matrix, each of at most `num_cells` cells: whole rows where they fit."""
    width = max(1, min(num_columns, num_cells))
    return ((rows, columns) for rows in slices(num_rows, num_cells // width) for columns in slices(num_columns, width))


def evenly(num_rows: int, most: int) -> NDArray[np.int64]:
    """int64[min(num_rows, most)], ascending row numbers from the first to the last, evenly spread."""
    return np.linspace(0, num_rows - 1, min(num_rows, most)).astype(np.int64)
