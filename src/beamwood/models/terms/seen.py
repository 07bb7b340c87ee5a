"""The weight of seen items: added to a leaf for each place of the history that holds it.

Shape legend: B rows, L history length, M nodes a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from beamwood.kernels.terms import Array, Held, Term, TermQuery, added_up
from beamwood.models.terms.step_scale import STEP_SCALE
from beamwood.tree.tree import Shape

__all__ = ["Seen", "add_weight", "set_weight"]


class Seen(Term):
    """`sum over l of weight_l [a_l = n]` on the last level.

    An item is most similar to itself, but whether seen items are wanted again depends on the log. Training learns
    `weights` [L], with steps 20 times as large.
    """

    name: ClassVar[str] = "seen"
    native: ClassVar[str] = "seen"
    sparse: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("weights",)
    by_place: ClassVar[tuple[str, ...]] = ("weights",)
    leaves_only: ClassVar[bool] = True
    joined: ClassVar[bool] = True

    def arrays(self, shape: Shape, history_length: int) -> dict[str, NDArray[Any]]:
        return {"weights": np.zeros(history_length, np.float32)}

    def weights(self, held: Held) -> Held:
        return {"weights": STEP_SCALE * held["weights"]}

    def score(self, held: Held, query: TermQuery) -> Array:
        leaves_BL, nodes_BM = query.leaves, query.nodes
        xp = array_namespace(leaves_BL)
        weights_BL = held["weights"][-leaves_BL.shape[1] :] * (leaves_BL >= 0)
        if nodes_BM is None:
            rows_B1 = xp.arange(len(leaves_BL), device=leaves_BL.device)[:, None] * query.size
            at_BL = rows_B1 + xp.clip(leaves_BL, 0, None)
            sums = added_up(weights_BL.reshape(-1), at_BL.reshape(-1), len(leaves_BL) * query.size)
            return sums.reshape(len(leaves_BL), query.size)
        same_BML = nodes_BM[:, :, None] == leaves_BL[:, None, :]
        return (xp.astype(same_BML, weights_BL.dtype) @ weights_BL[:, :, None])[:, :, 0]

    def seen_again(self, held: Held) -> bool:
        return bool((held["weights"] > 0).any())


def set_weight(held: Mapping[str, NDArray[Any]], weight: float) -> None:
    """Set the weight of every place, in arrays as held in training."""
    held["weights"][:] = weight / STEP_SCALE


def add_weight(held: Mapping[str, NDArray[Any]], weight: float) -> None:
    """Add to the weight of every place."""
    held["weights"][:] += weight / STEP_SCALE
