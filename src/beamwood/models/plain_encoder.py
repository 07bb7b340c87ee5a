"""A fitted sequence encoder in plain arrays: histories become vectors without torch.

Shape legend: B rows, L history length, D width, N items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.models.encoder import Encoder
from beamwood.models.parameters import check_declared
from beamwood.types import IndexArray

__all__ = ["PlainEncoder"]

_BLOCK_ROWS = 64
_TABLES = ("items.weight", "outputs.weight")


class PlainEncoder:
    """The vector of a history by an encoder's forward pass over its arrays, named as the encoder's parameters.

    "items.weight" [N, D] are the input vectors, "outputs.weight" (if any) the vectors searched. `sizes`: the encoder's
    own. Raises `ArtefactError` on missing, superfluous, inconsistent or non-finite arrays, and `ValueError` on sizes
    that the encoder does not have.
    """

    def __init__(
        self, encoder: Encoder, arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, Any], *, length: int
    ) -> None:
        if length < 1:
            raise ArtefactError(f"length={length} is below 1")
        self.encoder, self.length = encoder, length
        self._sizes = encoder.sizes.model_validate(sizes)
        self.num_items, self.width = shape_of(arrays, "items.weight", 2)
        check_floats(arrays, {name: (self.num_items, self.width) for name in _TABLES if name in arrays})
        tables = [name for name in arrays if name.startswith(("items.", "outputs."))]
        check_declared(arrays, encoder.parameters(self.width, length, self._sizes), tables)
        self.arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}

    @property
    def name(self) -> str:
        """The encoder's name."""
        return self.encoder.name

    @property
    def sizes(self) -> dict[str, Any]:
        """The encoder's own sizes, JSON-able."""
        return self._sizes.model_dump(mode="json")

    @property
    def vectors(self) -> NDArray[np.float32]:
        """float32[N, D], the vectors that are searched."""
        return self.arrays.get("outputs.weight", self.arrays["items.weight"])

    def replaced(self, arrays: Mapping[str, NDArray[Any]]) -> PlainEncoder:
        """The same encoder with other arrays."""
        return PlainEncoder(self.encoder, arrays, self.sizes, length=self.length)

    def encode(self, items_BL: IndexArray) -> NDArray[np.float32]:
        """float32[B, D] for item indices with -1 padding on the left; an empty history gives zeros."""
        result = np.zeros((len(items_BL), self.width), np.float32)
        whole = self.encoder.whole_window
        if whole and items_BL.shape[1] < self.length:
            items_BL = np.pad(items_BL, ((0, 0), (self.length - items_BL.shape[1], 0)), constant_values=-1)
        for part in slices(len(items_BL), _BLOCK_ROWS):
            rows = items_BL[part]
            # Columns that are padding in all rows are dropped.
            used = self.length if whole else int((rows >= 0).any(axis=0).sum())
            if used:
                result[part] = self._encode(rows[:, rows.shape[1] - used :])
        result[(items_BL < 0).all(axis=1)] = 0
        return result

    def _encode(self, items_BL: IndexArray) -> NDArray[np.float32]:
        """float32[B, D] of non-empty rows."""
        real_BL = items_BL >= 0
        x_BLD = self.arrays["items.weight"][np.maximum(items_BL, 0)]
        x_BLD *= np.float32(np.sqrt(self.width))
        x_BLD *= real_BL[:, :, None]
        vectors: NDArray[np.float32] = self.encoder.forward(self.arrays, x_BLD, real_BL, self._sizes, 0.0, True)
        return vectors[:, -1]
