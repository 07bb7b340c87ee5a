"""The Caser encoder as plain arrays; the twin of `models.caser`.

Shape legend: B rows, L history length, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from beamwood.kernels.arrays import linear_shapes, shape_of
from beamwood.kernels.sequence import PlainEncoder
from beamwood.types import FloatArray, IndexArray

__all__ = ["CaserEncoder"]


class CaserEncoder(PlainEncoder):
    """Vertical and horizontal convolutions over the latest L items."""

    name: ClassVar[str] = "caser"
    whole_window: ClassVar[bool] = True

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        super().__init__(arrays)
        self.length = self.arrays["vertical.weight"].shape[1]

    def shapes(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
        """See `PlainEncoder`."""
        num_vertical, length = shape_of(arrays, "vertical.weight", 2)
        shapes, outputs = linear_shapes("vertical", length, num_vertical), num_vertical * self.width
        for height in range(1, length + 1):
            filters = shape_of(arrays, f"horizontal.{height - 1}.weight", 2)[0]
            shapes |= linear_shapes(f"horizontal.{height - 1}", height * self.width, filters)
            outputs += filters
        return shapes | linear_shapes("output", outputs, self.width)

    def _encode(self, items_BL: IndexArray) -> FloatArray:
        x = self.embedded(items_BL)
        rows = len(x)
        parts = [self.linear(x.transpose(0, 2, 1), "vertical").reshape(rows, -1)]
        for height in range(1, self.length + 1):
            windows = sliding_window_view(x, height, axis=1).transpose(0, 1, 3, 2)
            windows = windows.reshape(rows, self.length - height + 1, -1)
            parts.append(np.maximum(self.linear(windows, f"horizontal.{height - 1}"), 0).max(axis=1))
        return self.linear(np.concatenate(parts, axis=1), "output")
