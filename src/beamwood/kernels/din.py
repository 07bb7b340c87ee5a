"""The plain arrays of a trained DIN scorer: what a search needs, without torch.

Shape legend: V nodes on levels 1..H, D embedding width, A attention hidden width, T windows, L history length.

For a user with history nodes a_1..a_L (oldest first, each item's ancestor on the level of node n) and w = node(n):

    weight_l = act(attention_out . act(attention_in [a_l; a_l * w; w] + attention_bias) + attention_out_bias)
    z_t      = sum of weight_l a_l over window t                      (an absent history entry contributes 0)
    f(u, n)  = MLP([z_1; ...; z_T; w])                                act(x) = x if x > 0 else slope * x

Batch statistics are folded into weights and biases at export, so every layer is affine, then PReLU. Where a scorer has
a `Similarity`, `f(u, n) += sum of place_l s(a_l) . s(n)`, s a wider vector of each node that no training changes, and
on the last level `+= sum of repeat_l [a_l = n]`: whether what was had is wanted again. Where it has `Neighbours`,
`f(u, n) += gain log(1 + sum of place_l lift(a_l, n))`, of the few n that each a_l has a lift for.
Source: DTR, section 3.2.2, equations 1-5; the similarity and the neighbours are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_integers

__all__ = ["MAX_HISTORY", "DinWeights", "Layer", "Neighbours", "Similarity"]

# Far above any use; below it a search's memory for one user stays small.
MAX_HISTORY = 2**16

Float32 = NDArray[np.float32]

_OF_SIMILARITY = ("vectors", "places", "repeats")
_OF_NEIGHBOURS = ("nodes", "lifts", "places", "gain")


@dataclass(frozen=True, slots=True)
class Layer:
    """`act(weight x + bias)`: weight float32[out, in], bias float32[out], slope float32[out] (1: no activation)."""

    weight: Float32
    bias: Float32
    slope: Float32


@dataclass(frozen=True, slots=True)
class Similarity:
    """`vectors` float32[V, R] of the nodes; `places` float32[L], what each place of the history weighs; `repeats`
    float32[L], what a leaf gets for each place of the history that holds it."""

    vectors: Float32
    places: Float32
    repeats: Float32


@dataclass(frozen=True, slots=True)
class Neighbours:
    """`nodes` int32[V, K], of each node some others of its level, -1 none; `lifts` float32[V, K], theirs; `places`
    float32[L], what each place of the history weighs, neither below 0; `gain` float32[1]."""

    nodes: NDArray[np.int32]
    lifts: Float32
    places: Float32
    gain: Float32


@dataclass(frozen=True, slots=True)
class DinWeights:
    """A DIN scorer as arrays; checked when built, every array float32, contiguous and finite.

    `nodes` [V, D], level-major, level 1 first. `attention_in` Layer [A, 3 D] on `[a; a * w; w]`;
    `attention_out` Layer [1, A]. `windows` int64[T], lengths from the oldest window to the newest, sum L.
    `layers`: the MLP, first input width (T + 1) D, last output width 1. `similarity`, `neighbours`: None for a
    plain DIN.
    Raises `ArtefactError` naming the array whose shape, type or values do not fit.
    """

    nodes: Float32
    attention_in: Layer
    attention_out: Layer
    windows: NDArray[np.int64]
    layers: tuple[Layer, ...]
    similarity: Similarity | None = None
    neighbours: Neighbours | None = None

    def __post_init__(self) -> None:
        if self.nodes.ndim != 2 or self.nodes.shape[1] == 0:
            raise ArtefactError(f"nodes has shape {self.nodes.shape}; expected (nodes, width)")
        width = self.nodes.shape[1]
        if self.windows.ndim != 1 or len(self.windows) == 0 or self.windows.min() < 1:
            raise ArtefactError(f"windows={self.windows.tolist()}; expected one length of 1 or more a window")
        # Each length first: their sum may pass int64.
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
        if self.similarity is not None:
            vectors = self.similarity.vectors
            if vectors.ndim != 2 or len(vectors) != len(self.nodes):
                raise ArtefactError(
                    f"similarity.vectors has shape {vectors.shape}; expected ({len(self.nodes)}, columns)"
                )
            for name, array in (("places", self.similarity.places), ("repeats", self.similarity.repeats)):
                if array.shape != (self.history_length,):
                    raise ArtefactError(f"similarity.{name} has shape {array.shape}; expected ({self.history_length},)")
        if self.neighbours is not None:
            self._check_neighbours(self.neighbours)
        for name, array in self.arrays().items():
            if name in ("windows", "neighbours.nodes"):
                continue
            if array.size == 0:
                raise ArtefactError(f"{name} is empty")
            if array.dtype != np.float32 or not array.flags.c_contiguous:
                raise ArtefactError(f"{name} is {array.dtype}; expected contiguous float32")
            if not np.isfinite(array).all():
                raise ArtefactError(f"{name} holds NaN or infinity; the model was not saved from a sound training")

    def _check_neighbours(self, neighbours: Neighbours) -> None:
        nodes, lifts, places = neighbours.nodes, neighbours.lifts, neighbours.places
        if nodes.ndim != 2 or len(nodes) != len(self.nodes):
            raise ArtefactError(f"neighbours.nodes has shape {nodes.shape}; expected ({len(self.nodes)}, neighbours)")
        if nodes.dtype != np.int32 or not nodes.flags.c_contiguous or (nodes < -1).any():
            raise ArtefactError(f"neighbours.nodes is {nodes.dtype}; expected contiguous int32 of -1 or more")
        if lifts.shape != nodes.shape:
            raise ArtefactError(f"neighbours.lifts has shape {lifts.shape}; expected {nodes.shape}")
        if places.shape != (self.history_length,):
            raise ArtefactError(f"neighbours.places has shape {places.shape}; expected ({self.history_length},)")
        if neighbours.gain.shape != (1,):
            raise ArtefactError(f"neighbours.gain has shape {neighbours.gain.shape}; expected (1,)")
        for name, array in (("lifts", lifts), ("places", places)):
            if (array < 0).any():
                raise ArtefactError(
                    f"neighbours.{name} holds values below 0; the model was not saved as it was trained"
                )

    @property
    def width(self) -> int:
        """D, the width of a node's embedding."""
        return int(self.nodes.shape[1])

    @property
    def history_length(self) -> int:
        """L, the number of history entries the windows cover."""
        return int(self.windows.sum())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by a flat name, the form in which an artefact holds them."""
        named: dict[str, NDArray[Any]] = {"nodes": self.nodes, "windows": self.windows}
        parts = {"attention_in": self.attention_in, "attention_out": self.attention_out}
        parts |= {f"layers.{index}": layer for index, layer in enumerate(self.layers)}
        for name, layer in parts.items():
            named |= {f"{name}.weight": layer.weight, f"{name}.bias": layer.bias, f"{name}.slope": layer.slope}
        if self.similarity is not None:
            named |= {f"similarity.{name}": getattr(self.similarity, name) for name in _OF_SIMILARITY}
        if self.neighbours is not None:
            named |= {f"neighbours.{name}": getattr(self.neighbours, name) for name in _OF_NEIGHBOURS}
        return named

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> DinWeights:
        """The inverse of `arrays`; a missing name is an `ArtefactError`."""

        def layer(name: str) -> Layer:
            return Layer(arrays[f"{name}.weight"], arrays[f"{name}.bias"], arrays[f"{name}.slope"])

        check_integers(arrays, {"windows": (np.int64, np.int32)})
        try:
            similarity, neighbours = None, None
            if any(f"similarity.{name}" in arrays for name in _OF_SIMILARITY):
                similarity = Similarity(*(arrays[f"similarity.{name}"] for name in _OF_SIMILARITY))
            if any(f"neighbours.{name}" in arrays for name in _OF_NEIGHBOURS):
                neighbours = Neighbours(*(arrays[f"neighbours.{name}"] for name in _OF_NEIGHBOURS))
            count = sum(name.startswith("layers.") and name.endswith(".weight") for name in arrays)
            return cls(
                nodes=arrays["nodes"],
                attention_in=layer("attention_in"),
                attention_out=layer("attention_out"),
                windows=arrays["windows"].astype(np.int64),
                layers=tuple(layer(f"layers.{index}") for index in range(count)),
                similarity=similarity,
                neighbours=neighbours,
            )
        except KeyError as missing:
            raise ArtefactError(
                f"the scorer's arrays lack {missing}; the artefact is incomplete, save it again"
            ) from None


def check_layer(name: str, layer: Layer, inputs: int, outputs: int | None = None) -> None:
    """Raise `ArtefactError` unless `layer` maps `inputs` values to `outputs` (any number where None)."""
    outputs = len(layer.bias) if outputs is None else outputs
    if layer.weight.shape != (outputs, inputs):
        raise ArtefactError(f"{name}.weight has shape {layer.weight.shape}; expected {(outputs, inputs)}")
    for part, array in (("bias", layer.bias), ("slope", layer.slope)):
        if array.shape != (outputs,):
            raise ArtefactError(f"{name}.{part} has shape {array.shape}; expected {(outputs,)}")
