"""Sparse matrices cut to the strongest entries of each row, and the same as lists of one length.

Shape legend: V rows, K entries kept of a row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamwood.ragged import indptr_of, places_in_rows

__all__ = ["padded_rows", "from_padded_rows", "strongest"]


def strongest(matrix: sparse.csr_matrix, count: int) -> sparse.csr_matrix:
    """The `count` largest entries of each row, ties to the lower column."""
    matrix = sparse.csr_matrix(matrix)
    lengths = np.diff(matrix.indptr)
    # A lower bound for each row, so that little of a long row has to be sorted.
    least = np.full(len(lengths), -np.inf)
    for row in np.flatnonzero(lengths > count):
        own, above = matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]], lengths[row] - count
        least[row] = np.partition(own, above)[above]
    among = matrix.data >= np.repeat(least, lengths)
    rows = np.repeat(np.arange(len(lengths)), lengths)[among]
    columns, values = matrix.indices[among], matrix.data[among]
    starts = indptr_of(np.bincount(rows, minlength=len(lengths)))[:-1]
    order = np.lexsort((columns, -values, rows))
    kept = np.sort(order[np.arange(len(rows)) - starts[rows] < count])
    indptr = indptr_of(np.bincount(rows[kept], minlength=len(lengths)))
    return sparse.csr_matrix((values[kept], columns[kept], indptr), shape=matrix.shape)


def padded_rows(matrix: sparse.csr_matrix, count: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Columns int32[V, K] and values float32[V, K] of the strongest entries, -1 and 0 where a row has fewer."""
    matrix = strongest(matrix, count)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    place = places_in_rows(np.diff(matrix.indptr))
    columns, values = np.full((matrix.shape[0], count), -1, np.int32), np.zeros((matrix.shape[0], count), np.float32)
    columns[rows, place], values[rows, place] = matrix.indices, matrix.data
    return columns, values


def from_padded_rows(columns_VK: NDArray[np.int32], values_VK: NDArray[np.float32], size: int) -> sparse.csr_matrix:
    """float32[V, size], the inverse of `padded_rows`."""
    rows, places = np.nonzero(columns_VK >= 0)
    entries = values_VK[rows, places], (rows, columns_VK[rows, places])
    return sparse.csr_matrix(entries, shape=(len(columns_VK), size))
