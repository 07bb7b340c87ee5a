"""The FMLP-Rec encoder as plain arrays; the twin of `models.fmlp`.

Shape legend: B rows, L history length, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels.arrays import linear_shapes, shape_of
from beamwood.kernels.sequence import PlainEncoder, count_blocks
from beamwood.types import FloatArray, IndexArray

__all__ = ["FmlpEncoder"]


class FmlpEncoder(PlainEncoder):
    """Filters in the frequency domain over the latest L items."""

    name: ClassVar[str] = "fmlp"
    whole_window: ClassVar[bool] = True

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(arrays)
        self.length = len(self.arrays["positions"])
        self.num_blocks = count_blocks(self.arrays)

    def shapes(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
        """See `PlainEncoder`."""
        width = self.width
        length = shape_of(arrays, "positions", 2)[0]
        shapes: dict[str, tuple[int, ...]] = {"positions": (length, width)}
        norms = ["norm"]
        for block in range(count_blocks(arrays)):
            prefix = f"blocks.{block}"
            norms += [f"{prefix}.filter_norm", f"{prefix}.feed_norm"]
            inner = shape_of(arrays, f"{prefix}.inner.weight", 2)[0]
            shapes[f"{prefix}.filter"] = (length // 2 + 1, width, 2)
            shapes |= linear_shapes(f"{prefix}.inner", width, inner) | linear_shapes(f"{prefix}.outer", inner, width)
        return shapes | {f"{norm}.{part}": (width,) for norm in norms for part in ("weight", "bias")}

    def _encode(self, items_BL: IndexArray) -> FloatArray:
        x: FloatArray = self.norm(self.embedded(items_BL) + self.arrays["positions"], "norm")
        x = x * (items_BL >= 0)[:, :, None]
        for block in range(self.num_blocks):
            prefix = f"blocks.{block}"
            filters = self.arrays[f"{prefix}.filter"]
            spectrum = np.fft.rfft(x, axis=1, norm="ortho") * (filters[..., 0] + 1j * filters[..., 1])
            filtered = np.fft.irfft(spectrum, n=self.length, axis=1, norm="ortho").astype(np.float32)
            x = self.norm(x + filtered, f"{prefix}.filter_norm")
            hidden = _gelu(self.linear(x, f"{prefix}.inner"))
            x = self.norm(x + self.linear(hidden, f"{prefix}.outer"), f"{prefix}.feed_norm")
        return x[:, -1]


def _gelu(x: FloatArray) -> FloatArray:
    """The tanh form of the Gaussian error linear unit."""
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.asarray(np.float32(0.5) * x * (1 + np.tanh(inner)))
