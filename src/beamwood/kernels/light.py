"""The light head: an inner product of few columns that steers a tree's search; the scorer judges what it lets through.

Shape legend: V nodes of the tree, W columns, F hidden units, L history length, M nodes a row.

For a user with history nodes a_l (on the level of node n) and place weights p_l:

    s = sum over l of p_l h(a_l)        q = s + down relu(up s + up_bias) + down_bias
    score(n) = q . v(n) + b(n) + what the scorer's sparse terms say of n

`h` and `v` are kept as int8 with a scale for each node; q is rounded to units of its largest entry over `UNITS`.
Products are then whole numbers, the same on every machine. The source is ours; none of the papers has such a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from beamwood.errors import ArtefactError, InputError, nearest
from beamwood.kernels.arrays import all_finite, storage
from beamwood.kernels.mixtures import Mixtures
from beamwood.types import IndexArray

__all__ = ["UNITS", "LightHead", "Way", "WayKind", "light_query", "quantised"]

UNITS = 1023
"""The largest entry of a rounded query. Sums of 16,383 columns then stay within 31 bits."""
# The k for which `Way.judged` is defined.
_JUDGED_FOR = 20
Array = Any
WayKind = Literal["steer", "cascade", "beam"]
_INT8 = ("nodes", "history")


@dataclass(frozen=True, slots=True)
class Way:
    """A way of searching a tree.

    "beam": the scorer keeps `beam_width` nodes of each level. "steer": the light head does, and the scorer judges the
    best `judged` leaves. "cascade": the head selects `judged` nodes on each level, the scorer judges them, and
    `beam_width` are kept.
    """

    kind: WayKind
    beam_width: int
    judged: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(WayKind):
            raise InputError(f"kind={self.kind!r} is not a way to search{nearest(str(self.kind), get_args(WayKind))}")
        if self.beam_width < 1:
            raise InputError(f"beam_width={self.beam_width} is below 1")
        if (self.judged < 1) != (self.kind == "beam"):
            raise InputError(f"judged={self.judged} is for steer and cascade, and 1 or more there; beam has none")

    def wide_enough(self, k: int, num_exact: int | None = None) -> Way:
        """The way for k results: `judged` grows with the number of exact ones (`num_exact`, None: all) beyond 20.

        Results after the exact ones are the next best of the judged leaves.
        """
        if k <= min(_JUDGED_FOR, self.beam_width):
            return self
        times = max(1.0, min(k, k if num_exact is None else num_exact) / _JUDGED_FOR)
        judged = 0 if self.kind == "beam" else max(k, int(np.ceil(self.judged * times)))
        return Way(self.kind, max(self.beam_width, k), judged)


@dataclass(frozen=True, slots=True)
class LightHead:
    """The arrays of a light head; checked when built.

    `nodes`, `history` int8[V, W] with `node_scales`, `history_scales` float32[V], and `biases` float32[V]; `places`
    float32[L]; `up` float32[F, W], `up_bias` [F], `down` [W, F], `down_bias` [W]. Raises `ArtefactError` naming an
    invalid array.
    """

    nodes: NDArray[np.int8]
    node_scales: NDArray[np.float32]
    biases: NDArray[np.float32]
    history: NDArray[np.int8]
    history_scales: NDArray[np.float32]
    places: NDArray[np.float32]
    up: NDArray[np.float32]
    up_bias: NDArray[np.float32]
    down: NDArray[np.float32]
    down_bias: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.nodes.ndim != 2 or self.up.ndim != 2 or 0 in self.nodes.shape or 0 in self.up.shape:
            raise ArtefactError(
                f"light.nodes has shape {self.nodes.shape}, light.up {self.up.shape}; expected two axes"
            )
        (size, width), hidden = self.nodes.shape, len(self.up)
        shapes: dict[str, tuple[int, ...]] = {
            "nodes": (size, width),
            "node_scales": (size,),
            "biases": (size,),
            "history": (size, width),
            "history_scales": (size,),
            "places": (len(self.places),),
            "up": (hidden, width),
            "up_bias": (hidden,),
            "down": (width, hidden),
            "down_bias": (width,),
        }
        for name, shape in shapes.items():
            array = getattr(self, name)
            dtype = np.int8 if name in _INT8 else np.float32
            wrong = storage(array, dtype)
            if array.shape != shape or wrong:
                raise ArtefactError(
                    f"light.{name} is {wrong or array.dtype} of shape {array.shape}; expected contiguous, aligned "
                    f"{np.dtype(dtype)} of {shape}"
                )
            if dtype == np.float32 and not all_finite(array):
                raise ArtefactError(f"light.{name} holds NaN or infinity")

    @property
    def width(self) -> int:
        """W."""
        return int(self.nodes.shape[1])

    def fits(self, num_nodes: int, history_length: int) -> None:
        """Raise `ArtefactError` unless it is of a tree with `num_nodes` nodes and of histories of this length."""
        if len(self.nodes) != num_nodes or len(self.places) != history_length:
            raise ArtefactError(
                f"the light head has {len(self.nodes)} nodes and {len(self.places)} places; the scorer "
                f"{num_nodes} and {history_length}"
            )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, as an artefact holds them and the native core takes them in this order."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> LightHead:
        """The inverse of `arrays`. Errors: a missing or foreign name."""
        names = {field.name for field in fields(cls)}
        if wrong := sorted(names ^ arrays.keys()):
            raise ArtefactError(f"light.{wrong[0]} is missing, or no array of a light head")
        return cls(**arrays)

    def mixed(self, leaves: Mixtures, first: int) -> dict[str, NDArray[Any]]:
        """[M, ..] of each array by node: the content of leaves that are mixtures of others; the first leaf is
        `first`.
        """
        held = self.arrays()
        rows: dict[str, NDArray[Any]] = {"biases": leaves.mixed(self.biases, first)}
        alone, all_E = leaves.lists.lengths == 1, leaves.lists.items + first
        like = leaves.heaviest()[alone] + first
        for name, scale in (("nodes", "node_scales"), ("history", "history_scales")):
            units, scales = held[name], held[scale]
            # The mean of dequantised rows; a mixture of a single leaf is copied without rounding again.
            rows[name], rows[scale] = quantised(leaves.summed(units[all_E] * scales[all_E, None]))
            rows[name][alone], rows[scale][alone] = units[like], scales[like]
        return rows

    def scores(self, rows_L: IndexArray, places_L: IndexArray, nodes_M: IndexArray) -> NDArray[Any]:
        """float32[M] of the rows `nodes_M` of its tables, for a history of rows `rows_L` at the places `places_L`."""
        vectors_LW = self.history[rows_L].astype(np.float32)
        weights_L = self.places[places_L] * self.history_scales[rows_L]
        q_W = light_query(self.arrays(), weights_L @ vectors_LW)
        largest = np.abs(q_W).max()
        unit = np.float32(largest / np.float32(UNITS)) if np.isfinite(largest) else np.float32(np.nan)
        units_W = np.rint(q_W / unit).astype(np.int32) if unit > 0 else np.zeros(len(q_W), np.int32)
        products_M = (self.nodes[nodes_M].astype(np.int32) @ units_W).astype(np.float32)
        scores: NDArray[np.float32] = products_M * (unit * self.node_scales[nodes_M]) + self.biases[nodes_M]
        return scores


def light_query(held: Mapping[str, Array], sums: Array) -> Array:
    """`q` of the module's equation for sums of history vectors, [W] or [B, W]; numpy or torch."""
    xp = array_namespace(sums)
    inner = xp.clip(sums @ held["up"].T + held["up_bias"], 0, None)
    return sums + inner @ held["down"].T + held["down_bias"]


def quantised(vectors_VW: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """int8[V, W] and the scale of each row, float32[V], whose product is nearest to the vectors."""
    scales = (np.abs(vectors_VW).max(axis=1) / 127).astype(np.float32)
    safe = np.where(scales > 0, scales, np.float32(1))
    return np.rint(vectors_VW / safe[:, None]).astype(np.int8), scales
