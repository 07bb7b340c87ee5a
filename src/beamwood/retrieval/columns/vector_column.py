"""An item column of content vectors, by which the known items most similar to a new one are found.

Shape legend: N items, F width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.retrieval.products import best_products
from beamwood.types import BoolArray, FloatArray

__all__ = ["VectorColumn"]


@dataclass(frozen=True, slots=True, eq=False)
class VectorColumn:
    """`values` float32[N, F]: vectors of length 1, or of zeros for an item without one. No filter can ask for them."""

    values: NDArray[np.float32]
    more: int = 0
    """The number of items after these N, which have no vector here."""
    kind = "vector"

    @classmethod
    def of(cls, vectors: FloatArray) -> VectorColumn:
        """The column of vectors of any length."""
        largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
        # Scaled first, as the squares of large numbers overflow.
        scaled = vectors / np.where(largest > 0, largest, 1)
        lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
        return cls((scaled / np.where(lengths > 0, lengths, 1)).astype(np.float32))

    @classmethod
    def restore(cls, num_items: int, arrays: dict[str, NDArray[Any]]) -> VectorColumn:
        """The inverse of `arrays`. Errors: another shape or type."""
        values = arrays["values"]
        if values.ndim != 2 or len(values) != num_items or values.shape[1] == 0 or values.dtype != np.float32:
            raise InputError(f"an item column of vectors is {values.dtype} of shape {values.shape}")
        return cls(values)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that `restore` reads."""
        none = np.zeros((self.more, self.values.shape[1]), np.float32)
        return {"values": np.concatenate([self.values, none]) if self.more else self.values}

    def first(self, count: int) -> VectorColumn:
        """The vectors of the first items, at most N; no copy."""
        return VectorColumn(self.values[:count])

    def missing(self) -> BoolArray:
        """bool[N + more], the items without a vector."""
        return np.concatenate([~self.values.any(axis=1), np.ones(self.more, bool)])

    def similar(
        self, name: str, vectors: Sequence[Any], count: int, alive: BoolArray | None = None
    ) -> list[NDArray[np.int32]]:
        """For each vector int32[at most `count`], the items of the highest positive cosine.

        `alive` bool[at least N]: only these items. Errors: not F finite numbers.
        """
        if not vectors:
            return []
        directions = np.stack([self._direction(name, vector) for vector in vectors])
        allowed = None if alive is None else alive[: len(self.values)]
        hits = best_products(directions, self.values, count, allowed=allowed)
        return [items[scores > 0] for items, scores in zip(hits.items, hits.scores, strict=True)]

    def _direction(self, name: str, vector: Any) -> NDArray[np.float32]:
        width = self.values.shape[1]
        try:
            given = np.asarray(vector)
        except (TypeError, ValueError):
            given = np.empty(0)
        if given.shape != (width,) or given.dtype.kind not in "iuf" or not np.isfinite(given).all():
            raise InputError(f"{name} is not a list of {width} finite numbers, as the vectors of the known items are")
        direction: NDArray[np.float32] = VectorColumn.of(given.astype(np.float64)[None]).values[0]
        return direction
