"""The GRU4Rec encoder as plain arrays; the twin of `models.gru4rec`.

Shape legend: B rows, L history length, D width, H hidden units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import linear_shapes, shape_of
from beamwood.kernels.sequence import PlainEncoder, sigmoid
from beamwood.types import FloatArray, IndexArray

__all__ = ["GruEncoder"]


class GruEncoder(PlainEncoder):
    """Gated recurrent units over the latest L items."""

    name: ClassVar[str] = "gru4rec"

    def __init__(self, arrays: Mapping[str, NDArray[Any]], *, length: int) -> None:
        super().__init__(arrays)
        if length < 1:
            raise ArtefactError(f"length={length} is below 1")
        self.length = length
        self.sizes = {"length": length}

    def shapes(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[int, ...]]:
        """See `PlainEncoder`."""
        hidden = shape_of(arrays, "gru.weight_hh_l0", 2)[1]
        inputs = {"gru.weight_ih_l0": (3 * hidden, self.width), "gru.bias_ih_l0": (3 * hidden,)}
        states = {"gru.weight_hh_l0": (3 * hidden, hidden), "gru.bias_hh_l0": (3 * hidden,)}
        return inputs | states | linear_shapes("output", hidden, self.width)

    def _encode(self, items_BL: IndexArray) -> FloatArray:
        a = self.arrays
        inputs = self.embedded(items_BL) @ a["gru.weight_ih_l0"].T + a["gru.bias_ih_l0"]
        hidden = a["gru.weight_hh_l0"].shape[1]
        state = np.zeros((len(items_BL), hidden), np.float32)
        for place in range(items_BL.shape[1]):
            x, h = inputs[:, place], state @ a["gru.weight_hh_l0"].T + a["gru.bias_hh_l0"]
            gates = sigmoid(x[:, : 2 * hidden] + h[:, : 2 * hidden])
            reset, keep = gates[:, :hidden], gates[:, hidden:]
            new = np.tanh(x[:, 2 * hidden :] + reset * h[:, 2 * hidden :])
            # The recurrence starts at a row's first item.
            state = np.where(items_BL[:, place, None] >= 0, (1 - keep) * new + keep * state, state)
        return self.linear(state, "output")
