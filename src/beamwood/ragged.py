"""Rows of unequal lengths, one after the other in a flat array, as compressed sparse rows (CSR) have them.

Shape legend: B rows, E entries of all rows together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["indptr_of", "places_in_rows", "ranges"]


def indptr_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """int64[B + 1], where each row of the given lengths begins, and last where all end."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def places_in_rows(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[E], the place of each entry within its row: of lengths 2, 0 and 3 they are 0, 1, 0, 1, 2."""
    indptr = indptr_of(lengths)
    return np.arange(indptr[-1]) - np.repeat(indptr[:-1], lengths)


def ranges(starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[E], of each row `lengths[b]` numbers from `starts[b]` on: of 5 and 9, lengths 2 and 1, they are 5, 6, 9."""
    indptr = indptr_of(lengths)
    return np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], lengths)
