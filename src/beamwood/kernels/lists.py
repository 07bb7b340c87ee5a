"""Sparse matrices cut to the strongest entries of each row, and the same as lists of one length.

Shape legend: V rows, K entries kept of a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamwood.ragged import indptr_of, places_in_rows
from beamwood.types import BoolArray

__all__ = ["padded_rows", "from_padded_rows", "strongest"]


def strongest(matrix: sparse.csr_matrix, count: int) -> sparse.csr_matrix:
    """The `count` largest entries of each row, ties to the lower column."""
    matrix = sparse.csr_matrix(matrix)
    lengths = np.diff(matrix.indptr)
    kept = np.ones(matrix.nnz, bool)
    for row in np.flatnonzero(lengths > count):
        span = slice(matrix.indptr[row], matrix.indptr[row + 1])
        kept[span] = _largest(matrix.data[span], matrix.indices[span], count)
    if kept.all():
        return matrix
    indptr = indptr_of(kept)[matrix.indptr]
    return sparse.csr_matrix((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)


def _largest(values: NDArray[Any], columns: NDArray[Any], count: int) -> BoolArray:
    """Whether an entry is among the `count` largest values, ties to the lower column."""
    least = np.partition(values, len(values) - count)[len(values) - count]
    kept: BoolArray = values > least
    tied = np.flatnonzero(values == least)
    kept[tied[np.argsort(columns[tied])][: count - np.count_nonzero(kept)]] = True
    return kept


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
