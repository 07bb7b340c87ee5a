"""New items without a leaf, scored individually by a tree's scorer beside its search.

Shape legend: B rows, L history length, O extra leaves, U leaves of the histories, C leaves of the tree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamwood.kernels.arrays import values_unread
from beamwood.kernels.din import DinWeights
from beamwood.kernels.lists import from_padded_rows, padded_rows
from beamwood.kernels.mixtures import Mixtures
from beamwood.kernels.reference import log_sigmoid
from beamwood.kernels.search import DinSearch
from beamwood.kernels.terms import TermArrays
from beamwood.ragged import sorted_distinct
from beamwood.retrieval.new_items.slots import mixed_leaves
from beamwood.tree.tree import Shape

__all__ = ["ExtraLeaves"]

Float32 = NDArray[np.float32]


class ExtraLeaves:
    """O leaves C, C + 1, .. beside a tree of C, each a `mixture` of leaves; none is empty.

    They are scored as leaves of a one-level tree together with the histories' leaves: the levels above do not enter a
    leaf's score. Where they do (a score by path), the path is that of the leaf with the largest weight.
    """

    def __init__(self, weights: DinWeights, core: DinSearch, mixtures: Mixtures) -> None:
        # The weights were checked when they were read; a pass over all of them would be for each change.
        with values_unread():
            self._weights = replace(weights, light=None)
        self._core, self._shape = core, core.shape
        self._mixtures, self._heaviest = mixtures, mixtures.heaviest()
        self._first = self._shape.level_offset(self._shape.depth)
        self._own = mixed_leaves(self._weights, mixtures, self._shape)
        self._mix_CO = mixtures.matrix(self._shape.capacity).T.tocsr()

    def score(self, leaves_BL: NDArray[np.int32]) -> Float32:
        """float32[B, O] for histories of leaves, which may be extra ones."""
        capacity, count = self._shape.capacity, len(self._mixtures)
        extra_BL, nearest_BL = leaves_BL >= capacity, leaves_BL.copy()
        nearest_BL[extra_BL] = self._heaviest[leaves_BL[extra_BL] - capacity]
        known_U = sorted_distinct(np.concatenate([nearest_BL[nearest_BL >= 0], self._heaviest]))
        flat_nearest_BL = np.where(nearest_BL < 0, -1, count + np.searchsorted(known_U, nearest_BL)).astype(np.int32)
        flat_BL = np.where(extra_BL, leaves_BL - capacity, flat_nearest_BL).astype(np.int32)
        flat = Shape(count + len(known_U), 2, 1)
        search = DinSearch(self._flat_weights(known_U), flat, table_nodes=0)
        extra_O = np.arange(count, dtype=np.int32)
        scores = search.score(flat_BL, np.tile(extra_O, (len(flat_BL), 1)))
        if not self._core.by_path:
            return scores
        heaviest = np.tile(count + np.searchsorted(known_U, self._heaviest).astype(np.int32), (len(flat_BL), 1))
        path = self._core.score(nearest_BL, np.tile(self._heaviest, (len(flat_BL), 1)))
        # The path holds the last step of the same history: without extra leaves, which have no ancestors.
        return path - log_sigmoid(search.score(flat_nearest_BL, heaviest)) + log_sigmoid(scores)

    def _flat_weights(self, known_U: NDArray[np.int32]) -> DinWeights:
        """The scorer of the extra leaves, followed by known ones."""
        rows = known_U + self._first

        def joined(name: str, array: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([self._own[name], array[rows]])

        terms = {}
        for name, part in self._weights.terms.items():
            by_node = {each: joined(f"{name}.{each}", part.arrays[each]) for each in part.term.by_node}
            if part.term.by_others:
                by_node |= self._lists(by_node["leaves"], by_node["chances"])
            terms[name] = TermArrays(part.term, part.arrays | by_node)
        return replace(self._weights, nodes=joined("nodes", self._weights.nodes), terms=terms)

    def _lists(self, leaves: NDArray[np.int32], chances: Float32) -> dict[str, NDArray[Any]]:
        """The list entries of the extra leaves: for each the mixture of its parts' entries."""
        mixed = sparse.csr_matrix(from_padded_rows(leaves, chances, self._shape.capacity) @ self._mix_CO)
        near, chance = padded_rows(mixed, max(1, int(np.diff(mixed.indptr).max(initial=1))))
        return {"leaves": near, "chances": chance}
