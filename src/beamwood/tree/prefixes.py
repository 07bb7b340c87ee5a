"""The tree of the prefixes of items' codes, with existing prefixes only.

Shape legend: N items, S codes an item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.ragged import ranges
from beamwood.types import BoolArray, IndexArray

__all__ = ["Prefixes"]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The nodes of each level are its prefixes in ascending order; those of the last, the leaves, are the items.

    Of level s: `words[s]` the last code of each node, `parents[s]` its node of the level before (0 on the first),
    `starts[s]` the first leaf below each, and one more. `item_of_leaf` int32[N]; `nodes_of[s]` int32[N], the node of
    level s above each leaf.
    """

    codes: NDArray[np.int32]
    item_of_leaf: NDArray[np.int32]
    words: tuple[NDArray[np.int32], ...]
    parents: tuple[NDArray[np.int32], ...]
    starts: tuple[NDArray[np.int64], ...]
    nodes_of: tuple[NDArray[np.int32], ...]

    @classmethod
    def of(cls, codes_NS: IndexArray) -> Prefixes:
        """Errors: `ArtefactError` on codes below 0, and on two items with the same codes."""
        codes = np.ascontiguousarray(codes_NS, np.int32)
        if codes.ndim != 2 or 0 in codes.shape or codes.min() < 0:
            raise ArtefactError(f"codes have shape {codes.shape}; give a row of codes of 0 or more for each item")
        order = np.lexsort(codes.T[::-1]).astype(np.int32)
        ascending = codes[order]
        words, parents, starts, nodes_of = [], [], [], []
        fresh, above = np.zeros(len(codes), bool), np.zeros(len(codes), np.int32)
        fresh[0] = True
        for place in range(codes.shape[1]):
            fresh[1:] |= ascending[1:, place] != ascending[:-1, place]
            first = np.flatnonzero(fresh)
            words.append(ascending[first, place])
            parents.append(above[first])
            starts.append(np.append(first, len(codes)).astype(np.int64))
            above = (np.cumsum(fresh) - 1).astype(np.int32)
            nodes_of.append(above)
        if not fresh.all():
            raise ArtefactError("two items have the same codes; give each a code of its own at the end")
        return cls(codes, order, tuple(words), tuple(parents), tuple(starts), tuple(nodes_of))

    @property
    def num_places(self) -> int:
        """S."""
        return len(self.words)

    def leaves(self) -> NDArray[np.int32]:
        """int32[N], the leaf of each item."""
        leaves = np.empty(len(self.item_of_leaf), np.int32)
        leaves[self.item_of_leaf] = np.arange(len(leaves), dtype=np.int32)
        return leaves

    def children(self, place: int, nodes: IndexArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The nodes of level `place` below the given ones of the level before, in order, and the number for each."""
        first = np.searchsorted(self.parents[place], nodes, side="left")
        counts = np.searchsorted(self.parents[place], nodes, side="right") - first
        return ranges(first, counts), counts.astype(np.int64)

    def alive(self, place: int, allowed: BoolArray) -> BoolArray:
        """bool, the nodes of a level with an allowed item below."""
        sums = np.concatenate([[0], np.cumsum(allowed[self.item_of_leaf])])
        left: BoolArray = sums[self.starts[place][1:]] > sums[self.starts[place][:-1]]
        return left
