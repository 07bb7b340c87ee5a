"""The SASRec encoder as plain arrays, for answers without torch; the twin of `models.sasrec`.

Shape legend: B rows, L history length, D width, E heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import linear_shapes, shape_of
from beamwood.kernels.sequence import PlainEncoder, count_blocks
from beamwood.types import FloatArray, IndexArray

__all__ = ["TransformerEncoder"]


class TransformerEncoder(PlainEncoder):
    """Causal self-attention over the latest L items; a history's vector is the last position's."""

    name: ClassVar[str] = "sasrec"

    def __init__(self, arrays: Mapping[str, NDArray[Any]], *, num_heads: int) -> None:
        super().__init__(arrays)
        if num_heads < 1 or self.width % num_heads:
            raise ArtefactError(f"num_heads={num_heads} does not divide the width {self.width}")
        self.num_heads = num_heads
        self.sizes = {"num_heads": num_heads}
        self.length = len(self.arrays["positions"])
        self.num_blocks = count_blocks(self.arrays)

    def shapes(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
        """See `PlainEncoder`."""
        width = self.width
        length = shape_of(arrays, "positions", 2)[0]
        shapes = {"positions": (length, width), "final_norm.weight": (width,), "final_norm.bias": (width,)}
        for block in range(count_blocks(arrays)):
            prefix = f"blocks.{block}"
            for norm in ("attention_norm", "feed_norm"):
                shapes |= {f"{prefix}.{norm}.weight": (width,), f"{prefix}.{norm}.bias": (width,)}
            for part in ("query", "key", "value", "output"):
                shapes |= linear_shapes(f"{prefix}.{part}", width, width)
            inner = shape_of(arrays, f"{prefix}.inner.weight", 2)[0]
            shapes |= linear_shapes(f"{prefix}.inner", width, inner) | linear_shapes(f"{prefix}.outer", inner, width)
        return shapes

    def _encode(self, items_BL: IndexArray) -> NDArray[np.float32]:
        length, real = items_BL.shape[1], items_BL >= 0
        x: FloatArray = self.embedded(items_BL) + self.arrays["positions"][self.length - length :]
        x = x * real[:, :, None]
        visible = np.tril(np.ones((length, length), bool)) & real[:, None, :]
        for block in range(self.num_blocks):
            last = block == self.num_blocks - 1
            x = self._block(x, visible, f"blocks.{block}", last_only=last)
        return self.norm(x[:, -1], "final_norm")

    def _block(self, x: FloatArray, visible: NDArray[np.bool_], prefix: str, *, last_only: bool) -> FloatArray:
        kept = x[:, -1:] if last_only else x
        normed = self.norm(x, f"{prefix}.attention_norm")
        q = self._heads(self.linear(normed[:, -1:] if last_only else normed, f"{prefix}.query"))
        k = self._heads(self.linear(normed, f"{prefix}.key"))
        v = self._heads(self.linear(normed, f"{prefix}.value"))
        scores = q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(q.shape[-1]))
        mask = visible[:, None, -1:] if last_only else visible[:, None]
        scores = np.where(mask, scores, np.float32(-1e9))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        x = kept + self.linear(mixed.transpose(0, 2, 1, 3).reshape(kept.shape), f"{prefix}.output")
        hidden = np.maximum(self.linear(self.norm(x, f"{prefix}.feed_norm"), f"{prefix}.inner"), 0)
        return np.asarray(x + self.linear(hidden, f"{prefix}.outer"))

    def _heads(self, x: FloatArray) -> FloatArray:
        return x.reshape(*x.shape[:2], self.num_heads, -1).transpose(0, 2, 1, 3)
