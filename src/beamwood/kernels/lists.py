"""Sparse matrices cut to the strongest entries of each row, and the same as lists of one length.

Shape legend: V rows, K entries kept of a row.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["as_lists", "strongest"]


def strongest(matrix: sparse.csr_matrix, count: int) -> sparse.csr_matrix:
    """The `count` largest entries of each row, ties to the lower column."""
    matrix = sparse.csr_matrix(matrix)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    place = np.arange(len(rows)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    kept = np.sort(order[place < count])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=matrix.shape[0]))])
    return sparse.csr_matrix((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)


def as_lists(matrix: sparse.csr_matrix, count: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Columns int32[V, K] and values float32[V, K] of the strongest entries, -1 and 0 where a row has fewer."""
    matrix = strongest(matrix, count)
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    place = np.arange(len(rows)) - np.repeat(matrix.indptr[:-1], np.diff(matrix.indptr))
    columns, values = np.full((matrix.shape[0], count), -1, np.int32), np.zeros((matrix.shape[0], count), np.float32)
    columns[rows, place], values[rows, place] = matrix.indices, matrix.data
    return columns, values
