"""What the sequence encoders' plain twins share: their arrays, blocks of rows, and empty histories.

Shape legend: B rows, L history length, D width, N items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.types import FloatArray, IndexArray

__all__ = ["PlainEncoder", "count_blocks", "normalised", "sigmoid"]

_BLOCK_ROWS = 64
_EPSILON = 1e-5


class PlainEncoder(ABC):
    """A history's vector from plain arrays, named as the parameters of the encoder's model.

    `sizes`: what the arrays do not say, the other arguments of `__init__`. Raises `ArtefactError` where an array is
    missing, of another shape than the others demand, or not finite.
    """

    name: ClassVar[str]
    whole_window: ClassVar[bool] = False
    """Does padding have to be there, up to L columns?"""

    length: int
    sizes: dict[str, int]

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.num_items, self.width = shape_of(arrays, "items.weight", 2)
        shapes = {name: (self.num_items, self.width) for name in ("items.weight", "outputs.weight") if name in arrays}
        check_floats(arrays, shapes | self.shapes(arrays))
        self.arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        self.sizes = {}

    @property
    def vectors(self) -> NDArray[np.float32]:
        """float32[N, D], what a history's vector is multiplied with."""
        return self.arrays.get("outputs.weight", self.arrays["items.weight"])

    def encode(self, items_BL: IndexArray) -> NDArray[np.float32]:
        """float32[B, D] for item indices with -1 padding on the left; an empty history gives zeros."""
        result = np.zeros((len(items_BL), self.vectors.shape[1]), np.float32)
        if self.whole_window and items_BL.shape[1] < self.length:
            items_BL = np.pad(items_BL, ((0, 0), (self.length - items_BL.shape[1], 0)), constant_values=-1)
        for start in range(0, len(items_BL), _BLOCK_ROWS):
            rows = items_BL[start : start + _BLOCK_ROWS]
            # Columns that are padding in all rows change nothing.
            used = self.length if self.whole_window else int((rows >= 0).any(axis=0).sum())
            if used:
                result[start : start + _BLOCK_ROWS] = self._encode(rows[:, rows.shape[1] - used :])
        result[(items_BL < 0).all(axis=1)] = 0
        return result

    def embedded(self, items_BL: IndexArray) -> NDArray[np.float32]:
        """float32[B, L, D], the items' vectors at length sqrt(D); zeros at padding."""
        table = self.arrays["items.weight"]
        vectors = table[np.maximum(items_BL, 0)] * np.float32(np.sqrt(table.shape[1]))
        result: NDArray[np.float32] = vectors * (items_BL >= 0)[:, :, None]
        return result

    def linear(self, x: FloatArray, name: str) -> FloatArray:
        """`x W' + b` with the arrays `name.weight` and `name.bias`."""
        result: FloatArray = x @ self.arrays[f"{name}.weight"].T + self.arrays[f"{name}.bias"]
        return result

    def norm(self, x: FloatArray, name: str) -> NDArray[np.float32]:
        """Layer normalisation with the arrays `name.weight` and `name.bias`."""
        return normalised(x, self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"])

    @abstractmethod
    def shapes(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
        """The encoder's own arrays and the shapes that they must have beside each other."""

    @abstractmethod
    def _encode(self, items_BL: IndexArray) -> FloatArray:
        """float32[B, D] of rows that are not all empty."""


def count_blocks(arrays: Mapping[str, NDArray[Any]]) -> int:
    """How many blocks the arrays hold."""
    return len({name.split(".")[1] for name in arrays if name.startswith("blocks.")})


def normalised(x: FloatArray, weight: FloatArray, bias: FloatArray) -> NDArray[np.float32]:
    """Layer normalisation over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    result: NDArray[np.float32] = centred / np.sqrt(variance + np.float32(_EPSILON)) * weight + bias
    return result


def sigmoid(x: FloatArray) -> FloatArray:
    """`1 / (1 + exp(-x))` without overflow."""
    return np.asarray(np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x)))
