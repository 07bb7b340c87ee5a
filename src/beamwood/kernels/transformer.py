"""The SASRec encoder as plain arrays, for answers without torch; the twin of `models.sasrec`.

Shape legend: B rows, L history length, D width, E heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.types import FloatArray, IndexArray

__all__ = ["TransformerEncoder"]

_BLOCK_ROWS = 64
_EPSILON = 1e-5


class TransformerEncoder:
    """Causal self-attention over the latest L items; a history's vector is the last position's.

    `arrays`: the names of `models.sasrec.SasRec`'s parameters. Raises `ArtefactError` where one is missing.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], *, num_heads: int) -> None:
        self.arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        self.num_heads = num_heads
        self.num_blocks = len({name.split(".")[1] for name in arrays if name.startswith("blocks.")})
        for name in ("items.weight", "positions", "final_norm.weight", "final_norm.bias"):
            if name not in self.arrays:
                raise ArtefactError(f"the encoder's array '{name}' is missing; the artefact is incomplete")

    @property
    def length(self) -> int:
        """L: how many of the latest items count."""
        return len(self.arrays["positions"])

    @property
    def vectors(self) -> NDArray[np.float32]:
        """float32[N, D], the items' vectors."""
        return self.arrays["items.weight"]

    def encode(self, items_BL: IndexArray) -> NDArray[np.float32]:
        """float32[B, D] for item indices with -1 padding on the left; an empty history gives zeros."""
        result = np.zeros((len(items_BL), self.vectors.shape[1]), np.float32)
        for start in range(0, len(items_BL), _BLOCK_ROWS):
            rows = items_BL[start : start + _BLOCK_ROWS]
            # Columns that are padding in all rows change nothing.
            used = int((rows >= 0).any(axis=0).sum())
            if used:
                result[start : start + _BLOCK_ROWS] = self._encode(rows[:, rows.shape[1] - used :])
        result[(items_BL < 0).all(axis=1)] = 0
        return result

    def _encode(self, items_BL: IndexArray) -> NDArray[np.float32]:
        arrays, length = self.arrays, items_BL.shape[1]
        real = items_BL >= 0
        x = self.vectors[np.maximum(items_BL, 0)] * np.float32(np.sqrt(self.vectors.shape[1]))
        x = (x + arrays["positions"][self.length - length :]) * real[:, :, None]
        visible = np.tril(np.ones((length, length), bool)) & real[:, None, :]
        for block in range(self.num_blocks):
            last = block == self.num_blocks - 1
            x = self._block(x, visible, f"blocks.{block}.", last_only=last)
        return normalised(x[:, -1], arrays["final_norm.weight"], arrays["final_norm.bias"])

    def _block(self, x: FloatArray, visible: NDArray[np.bool_], prefix: str, *, last_only: bool) -> FloatArray:
        a = {name[len(prefix) :]: array for name, array in self.arrays.items() if name.startswith(prefix)}
        kept = x[:, -1:] if last_only else x
        normed = normalised(x, a["attention_norm.weight"], a["attention_norm.bias"])
        q = self._heads((normed[:, -1:] if last_only else normed) @ a["query.weight"].T + a["query.bias"])
        k = self._heads(normed @ a["key.weight"].T + a["key.bias"])
        v = self._heads(normed @ a["value.weight"].T + a["value.bias"])
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(q.shape[-1]))
        mask = visible[:, None, -1:] if last_only else visible[:, None]
        scores = np.where(mask, scores, np.float32(-1e9))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(kept.shape)
        x = kept + mixed @ a["output.weight"].T + a["output.bias"]
        normed = normalised(x, a["feed_norm.weight"], a["feed_norm.bias"])
        hidden = np.maximum(normed @ a["inner.weight"].T + a["inner.bias"], 0)
        return np.asarray(x + hidden @ a["outer.weight"].T + a["outer.bias"])

    def _heads(self, x: FloatArray) -> FloatArray:
        return x.reshape(*x.shape[:2], self.num_heads, -1).transpose(0, 2, 1, 3)


def normalised(x: FloatArray, weight: FloatArray, bias: FloatArray) -> NDArray[np.float32]:
    """Layer normalisation over the last axis."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    result: NDArray[np.float32] = centred / np.sqrt(variance + np.float32(_EPSILON)) * weight + bias
    return result
