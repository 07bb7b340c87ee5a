"""The plain arrays of a trained DIN scorer: what a search needs, without torch.

Shape legend: V nodes on levels 1..H, D embedding width, A attention hidden width, T windows, L history length.

For a user with history nodes a_1..a_L (oldest first, each item's ancestor on the level of node n) and w = node(n):

    weight_l = act(attention_out . act(attention_in [a_l; a_l * w; w] + attention_bias) + attention_out_bias)
    z_t      = sum of weight_l a_l over window t                      (an absent history entry contributes 0)
    f(u, n)  = MLP([z_1; ...; z_T; w])                                act(x) = x if x > 0 else slope * x

Batch statistics are folded into weights and biases at export, so every layer is affine, then PReLU. To f(u, n) is added
what each of the scorer's terms says of the node (`kernels.terms`).
Source: DTR, section 3.2.2, equations 1-5; the terms are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import all_finite, check_integers, storage
from beamwood.kernels.light import LightHead
from beamwood.kernels.terms import Term, TermArrays

__all__ = ["MAX_HISTORY", "DinWeights", "Layer"]

# Far above any use; it bounds the memory of a search for one user.
MAX_HISTORY = 2**16

Float32 = NDArray[np.float32]
_LIGHT = "light."


@dataclass(frozen=True, slots=True)
class Layer:
    """`act(weight x + bias)`: weight float32[out, in], bias float32[out], slope float32[out] (1: no activation)."""

    weight: Float32
    bias: Float32
    slope: Float32


@dataclass(frozen=True, slots=True)
class DinWeights:
    """A DIN scorer as arrays; checked when built, every array float32, contiguous and finite.

    `nodes` [V, D], level-major, level 1 first. `attention_in` Layer [A, 3 D] on `[a; a * w; w]`; `attention_out` Layer
    [1, A]. `windows` int64[T], lengths from the oldest window to the newest, sum L. `layers`: the MLP, first input
    width (T + 1) D, last output width 1. `terms`: added to its score, by name in the order of the sum; none for a plain
    DIN. `light`: the head that steers its search, if any. Raises `ArtefactError` naming the array with an invalid
    shape, type or value.
    """

    nodes: Float32
    attention_in: Layer
    attention_out: Layer
    windows: NDArray[np.int64]
    layers: tuple[Layer, ...]
    terms: dict[str, TermArrays] = field(default_factory=dict)
    light: LightHead | None = None

    def __post_init__(self) -> None:
        if self.nodes.ndim != 2 or self.nodes.shape[1] == 0:
            raise ArtefactError(f"nodes has shape {self.nodes.shape}; expected (nodes, width)")
        width = self.nodes.shape[1]
        if wrong := storage(self.windows, np.int64):
            raise ArtefactError(f"windows is {wrong}; expected contiguous, aligned int64")
        if self.windows.ndim != 1 or len(self.windows) == 0 or self.windows.min() < 1:
            raise ArtefactError(f"windows={self.windows.tolist()}; expected one length of 1 or more a window")
        # Each length first, as their sum may overflow int64.
        if self.windows.max() > MAX_HISTORY or self.windows.sum() > MAX_HISTORY:
            raise ArtefactError(
                f"windows cover more than {MAX_HISTORY} history entries; no scorer is trained on so many"
            )
        check_layer("attention_in", self.attention_in, 3 * width)
        check_layer("attention_out", self.attention_out, len(self.attention_in.bias), 1)
        inputs = (len(self.windows) + 1) * width
        for index, layer in enumerate(self.layers):
            last = index == len(self.layers) - 1
            check_layer(f"layers.{index}", layer, inputs, 1 if last else None)
            inputs = len(layer.bias)
        if not self.layers:
            raise ArtefactError("layers is empty; expected at least one")
        for name, array in self._network().items():
            if name == "windows":
                continue
            if array.size == 0:
                raise ArtefactError(f"{name} is empty")
            if wrong := storage(array, np.float32):
                raise ArtefactError(f"{name} is {wrong}; expected contiguous, aligned float32")
            if not all_finite(array):
                raise ArtefactError(f"{name} holds NaN or infinity; the model was not saved from a sound training")
        for part in self.terms.values():
            part.term.check(part.arrays, len(self.nodes), self.history_length)
        if self.light is not None:
            self.light.fits(len(self.nodes), self.history_length)

    @property
    def width(self) -> int:
        """D, the width of a node's embedding."""
        return int(self.nodes.shape[1])

    @property
    def history_length(self) -> int:
        """L, the number of history entries the windows cover."""
        return int(self.windows.sum())

    def _network(self) -> dict[str, NDArray[Any]]:
        """The arrays without those of terms, by a flat name."""
        named: dict[str, NDArray[Any]] = {"nodes": self.nodes, "windows": self.windows}
        parts = {"attention_in": self.attention_in, "attention_out": self.attention_out}
        parts |= {f"layers.{index}": layer for index, layer in enumerate(self.layers)}
        for name, layer in parts.items():
            named |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias, f"{name}.slope": layer.slope}
        return named

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by a flat name, the form in which an artefact holds them."""
        named = self._network()
        for term, part in self.terms.items():
            named |= {f"{term}.{name}": array for name, array in part.arrays.items()}
        if self.light is not None:
            named |= {f"{_LIGHT}{name}": array for name, array in self.light.arrays().items()}
        return named

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], terms: Mapping[str, Term]) -> DinWeights:
        """The inverse of `arrays`, of a scorer with these terms; a missing or foreign name is an `ArtefactError`."""

        def layer(name: str) -> Layer:
            return Layer(arrays[f"{name}.weight"], arrays[f"{name}.bias"], arrays[f"{name}.slope"])

        check_integers(arrays, {"windows": (np.int64, np.int32)})
        light = {name.removeprefix(_LIGHT): array for name, array in arrays.items() if name.startswith(_LIGHT)}
        try:
            count = sum(name.startswith("layers.") and name.endswith(".weight") for name in arrays)
            weights = cls(
                nodes=arrays["nodes"],
                attention_in=layer("attention_in"),
                attention_out=layer("attention_out"),
                windows=arrays["windows"].astype(np.int64),
                layers=tuple(layer(f"layers.{index}") for index in range(count)),
                terms={
                    name: TermArrays(term, {kept: arrays[f"{name}.{kept}"] for kept in term.kept()})
                    for name, term in terms.items()
                },
                light=LightHead.from_arrays(light) if light else None,
            )
        except KeyError as missing:
            raise ArtefactError(
                f"the scorer's arrays lack {missing}; the artefact is incomplete, save it again"
            ) from None
        if foreign := sorted(arrays.keys() - weights.arrays().keys()):
            raise ArtefactError(
                f"'{foreign[0]}' is an array neither of the scorer nor of its terms ({', '.join(terms)})"
            )
        return weights


def check_layer(name: str, layer: Layer, inputs: int, outputs: int | None = None) -> None:
    """Raise `ArtefactError` unless `layer` maps `inputs` values to `outputs` (any number where None)."""
    outputs = len(layer.bias) if outputs is None else outputs
    if layer.weight.shape != (outputs, inputs):
        raise ArtefactError(f"{name}.weight has shape {layer.weight.shape}; expected {(outputs, inputs)}")
    for part, array in (("bias", layer.bias), ("slope", layer.slope)):
        if array.shape != (outputs,):
            raise ArtefactError(f"{name}.{part} has shape {array.shape}; expected {(outputs,)}")
