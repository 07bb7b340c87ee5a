"""Weighted means of known rows, for rows that were not trained.

Shape legend: M mixtures, E entries of all of them, N known rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamwood.errors import InputError
from beamwood.kernels.arrays import check_integers
from beamwood.ragged import ranges
from beamwood.types import BoolArray, IndexArray, ItemLists

__all__ = ["Mixtures"]


@dataclass(frozen=True, slots=True)
class Mixtures:
    """M mixtures of known rows: `lists` their indices, `weights` float32[E], which sum to 1 in each mixture.

    An empty mixture has no entries. Errors: `InputError` on weights that are not positive numbers.
    """

    lists: ItemLists
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        weights = np.ascontiguousarray(self.weights, np.float32)
        if weights.shape != self.lists.items.shape or not np.isfinite(weights).all() or (weights <= 0).any():
            raise InputError("weights of a mixture must be one positive number for each of its entries")
        sums = np.bincount(self.lists.rows, weights, minlength=len(self.lists)).astype(np.float32)
        object.__setattr__(self, "weights", weights / sums[self.lists.rows])

    @classmethod
    def of(cls, rows: Iterable[Mapping[int, float]]) -> Self:
        """The mixtures of tables of index and weight."""
        tables = list(rows)
        weights = [weight for table in tables for weight in table.values()]
        return cls(ItemLists.from_lists([list(table) for table in tables]), np.array(weights, np.float32))

    def __len__(self) -> int:
        return len(self.lists)

    def take(self, rows: IndexArray) -> Self:
        """The mixtures of the given rows, in that order."""
        rows = np.asarray(rows, np.int64)
        lists = self.lists.take(rows)
        return type(self)(lists, self.weights[ranges(self.lists.indptr[rows], lists.lengths)])

    def followed_by(self, more: Mixtures) -> Self:
        """These mixtures, then more."""
        lists = ItemLists.concatenate([self.lists, more.lists])
        return type(self)(lists, np.concatenate([self.weights, more.weights]))

    def moved(self, place: IndexArray) -> Self:
        """The mixtures with row `place[i]` instead of row i."""
        return type(self)(ItemLists(self.lists.indptr, place[self.lists.items].astype(np.int32)), self.weights)

    def check(self, num_rows: int) -> None:
        """Errors: an index beyond `num_rows`."""
        most = int(self.lists.items.max(initial=-1))
        if most >= num_rows:
            raise InputError(f"a mixture holds index {most}; those known end at {num_rows - 1}")

    def keys(self) -> list[bytes]:
        """Bytes that are equal where mixtures are."""
        items, weights, bounds = self.lists.items, self.weights, itertools.pairwise(self.lists.indptr.tolist())
        return [items[start:stop].tobytes() + weights[start:stop].tobytes() for start, stop in bounds]

    def same(self, other: Mixtures) -> BoolArray:
        """bool[min(M, M of the other)], whether a row equals the other's row of that number."""
        one, two = self.lists.indptr, other.lists.indptr
        count = min(len(self), len(other))
        lengths = np.diff(one[: count + 1])
        same: BoolArray = lengths == np.diff(two[: count + 1])
        rows = np.flatnonzero(same)
        ours, theirs = ranges(one[rows], lengths[rows]), ranges(two[rows], lengths[rows])
        differs = self.lists.items[ours] != other.lists.items[theirs]
        differs |= self.weights[ours] != other.weights[theirs]
        same[np.repeat(rows, lengths[rows])[differs]] = False
        return same

    def heaviest(self) -> NDArray[np.int32]:
        """int32[M], the row with the largest weight, ties to the first; -1 for an empty mixture."""
        order = np.lexsort((np.arange(len(self.weights)), -self.weights, self.lists.rows))
        found = np.full(len(self), -1, np.int32)
        some = self.lists.lengths > 0
        found[some] = self.lists.items[order[self.lists.indptr[:-1][some]]]
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays for `from_arrays`."""
        return {"indptr": self.lists.indptr, "items": self.lists.items, "weights": self.weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The inverse of `arrays`. Errors: `ValueError`, `KeyError` on invalid arrays."""
        check_integers(arrays, {"indptr": (np.int64,), "items": (np.int32,)})
        return cls(ItemLists(arrays["indptr"], arrays["items"]), arrays["weights"])

    def matrix(self, num_rows: int) -> sparse.csr_matrix:
        """float32[M, N], the weights."""
        parts = self.weights, self.lists.items, self.lists.indptr
        return sparse.csr_matrix(parts, shape=(len(self), num_rows))

    def mixed(self, rows_N: NDArray[Any], offset: int = 0) -> NDArray[np.float32]:
        """float32[M, ..], the mixtures of an array's rows, the first at `offset`; zeros for an empty mixture."""
        return self.summed(np.asarray(rows_N[self.lists.items + offset], np.float32))

    def summed(self, chosen: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[M, ..], the mixtures of gathered rows, one an entry."""
        flat = chosen.reshape(len(chosen), int(np.prod(chosen.shape[1:])))
        entries = np.arange(len(chosen))
        gather = sparse.csr_matrix((self.weights, entries, self.lists.indptr), shape=(len(self), len(chosen)))
        return np.asarray(gather @ flat, np.float32).reshape(len(self), *chosen.shape[1:])
