"""Arithmetic on whole numbers, above all on rows of unequal lengths in a flat array (compressed sparse rows, CSR).

Shape legend: B rows, K places of a row, E entries in total.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beamwood.errors import InputError

__all__ = ["indptr_of", "is_in", "places_in_rows", "ranges", "repeats", "sorted_distinct", "whole_numbers"]

_Whole = TypeVar("_Whole", bound=np.integer[Any])


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


def sorted_distinct(values: NDArray[_Whole]) -> NDArray[_Whole]:
    """The values ascending, each once, by sorting them: `numpy.unique` hashes, and takes many times as long."""
    ascending, kept = np.sort(values, axis=None), np.ones(values.size, bool)
    kept[1:] = ascending[1:] != ascending[:-1]
    return ascending[kept]


def is_in(values: NDArray[np.integer[Any]], others: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """bool of the shape of `values`, whether each is one of `others`, by sorting: `numpy.isin` hashes (see above)."""
    known = sorted_distinct(others)
    if len(known) == 0:
        return np.zeros(values.shape, np.bool_)
    found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def repeats(values_BK: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """bool[B, K], true where an earlier place of the row holds the same number; -1 (no item) never repeats."""
    order = np.argsort(values_BK, axis=1, kind="stable")
    ranked = np.take_along_axis(values_BK, order, axis=1)
    again = np.zeros(values_BK.shape, np.bool_)
    again[:, 1:] = (ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0)
    repeated = np.empty_like(again)
    np.put_along_axis(repeated, order, again, axis=1)
    return repeated


def whole_numbers(name: str, values: Any, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    """The values as a contiguous, aligned array of a type of integers. Errors: `InputError` on other values."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must hold whole numbers: {error}") from None
    if array.ndim == 0:
        raise InputError(f"{name} must be a list of whole numbers; got {values!r}")
    if array.dtype != dtype and array.size:
        most, is_integer = np.iinfo(dtype).max, array.dtype.kind in "iu"
        if not is_integer or array.max() > most or array.min() < -most:
            found = array.max() if is_integer else array.dtype
            raise InputError(f"{name} must hold whole numbers up to {most}; got {found}")
    array = np.ascontiguousarray(array, dtype)
    return array if array.flags.aligned else array.copy()
