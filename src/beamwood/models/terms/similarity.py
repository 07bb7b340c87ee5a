"""A fixed similarity of history and node, with more columns than a scorer's embeddings.

Shape legend: B rows, L history length, M nodes a row, V nodes of the tree, R columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from beamwood.kernels.terms import Array, Counted, Held, Term, TermQuery, moved_leaves, rows_of
from beamwood.tree.tree import Shape
from beamwood.types import FloatArray, IndexArray

__all__ = ["WEIGHT", "WEIGHT_BESIDE", "Similarity"]

# The initial weight of the newest place, and its decay with age; chosen on validation users of `amazon_games_sasrec`,
# `ml1m` and `mind_dtr`; with neighbours, on those of the logs that `Neighbours` names.
WEIGHT, WEIGHT_BESIDE, _FADE = 4.0, 2.0, 0.6


@dataclass(frozen=True)
class Similarity(Term):
    """`sum over l of place_l s(a_l) . s(n)`, a_l the ancestors of the history on the level of node n.

    `vectors` [V, R] hold s; training learns only `places` [L]. The similarity is stored rather than learned: in a log
    of many items with few interactions each, a hundred more columns separate items that no training could. It starts at
    `weight .6^age(l)` for a place.
    """

    name: ClassVar[str] = "similarity"
    native: ClassVar[str] = "similarity"
    learned: ClassVar[tuple[str, ...]] = ("places",)
    by_node: ClassVar[tuple[str, ...]] = ("vectors",)
    by_place: ClassVar[tuple[str, ...]] = ("places",)
    likens: ClassVar[bool] = True

    width: int = 0
    weight: float = WEIGHT

    def arrays(self, shape: Shape, history_length: int) -> dict[str, NDArray[Any]]:
        vectors = np.zeros((shape.num_nodes, self.width), np.float32)
        return {"vectors": vectors, "places": np.zeros(history_length, np.float32)}

    def score(self, held: Held, query: TermQuery) -> Array:
        vectors, history_BL = held["vectors"], query.history
        xp = array_namespace(vectors, history_BL)
        places_BL = held["places"][-history_BL.shape[1] :] * (history_BL >= 0)
        near_BLR = rows_of(vectors, xp.clip(history_BL, 0, None) + query.offset)
        query_BR = (places_BL[:, None, :] @ near_BLR)[:, 0]
        if query.nodes is None:
            return query_BR @ query.of_nodes(vectors).T
        return (query.of_nodes(vectors) @ query_BR[:, :, None])[:, :, 0]

    def start(self, held: Mapping[str, NDArray[Any]], counted: Counted) -> None:
        import torch

        set_leaves(held["vectors"], counted.leaf_vectors(self.width), counted.tree.shape)
        ages = torch.arange(len(held["places"]) - 1, -1, -1)
        held["places"][:] = (self.weight * torch.tensor(_FADE) ** ages).numpy()

    def move(self, held: Mapping[str, NDArray[Any]], place: IndexArray, shape: Shape) -> None:
        set_leaves(held["vectors"], moved_leaves(held["vectors"][-shape.capacity :], place), shape)


def set_leaves(vectors_VR: NDArray[np.float32], leaf_vectors_CR: FloatArray, shape: Shape) -> None:
    """Set the vectors of the leaves, and of every node above: the normalised sum of its leaves' vectors."""
    import torch
    from torch.nn.functional import normalize

    leaves = torch.from_numpy(leaf_vectors_CR)
    for level in range(1, shape.depth + 1):
        offset, size = shape.level_offset(level), shape.level_size(level)
        sums = leaves.reshape(size, -1, leaves.shape[1]).sum(dim=1)
        vectors_VR[offset : offset + size] = normalize(sums, dim=1).numpy()
