"""Arithmetic on rows of unequal lengths in a flat array, as in compressed sparse rows (CSR).

Shape legend: B rows, E entries in total.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["indptr_of", "places_in_rows", "ranges"]


def indptr_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """int64[B + 1], the row pointer: where each row begins, then the total length."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def places_in_rows(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[E], the position of each entry within its row: lengths 2, 0, 3 give 0, 1, 0, 1, 2."""
    indptr = indptr_of(lengths)
    return np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)


def ranges(starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[E], `lengths[b]` consecutive numbers from `starts[b]` for each row: 5, 9 with lengths 2, 1 give 5, 6, 9."""
    indptr = indptr_of(lengths)
    return np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
