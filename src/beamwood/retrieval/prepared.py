"""Filters of a tree, prepared: what may be shown below each node, counted once for each bitmap that is asked for again.

Shape legend: N items.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.tree.tree import Tree
from beamwood.types import BoolArray

__all__ = ["PreparedFilters"]

Live = tuple[NDArray[np.int32], ...]
_MOST_BYTES = 256 * 2**20


class PreparedFilters:
    """The live counts of a tree by bitmap, those that were asked for last, up to `most_bytes` together.

    A bitmap is known by its identity, so only one that nobody can write to is kept: `allowed.flags.writeable = False`
    says that it will not change. Any other is counted anew for each search. No lock is held, which a fork could break.
    """

    def __init__(self, tree: Tree, *, most_bytes: int = _MOST_BYTES) -> None:
        self.tree, self.most_bytes = tree, most_bytes
        self._kept: dict[int, tuple[BoolArray, Live]] = {}

    def __reduce__(self) -> tuple[type[PreparedFilters], tuple[Tree]]:
        return type(self), (self.tree,)

    def __len__(self) -> int:
        return len(self._kept)

    def live(self, allowed: BoolArray | None) -> Live:
        """By level int32[nodes]: how many of the allowed items, bool[N], lie below each node."""
        if allowed is None:
            return self.tree.live_counts
        if not _is_fixed(allowed):
            return self._counted(allowed)
        # The bitmap is kept too, so that its identity is not given to another meanwhile.
        kept = self._kept.pop(id(allowed), None) or (allowed, self._counted(allowed))
        self._kept[id(allowed)] = kept
        self._give_up()
        return kept[1]

    def _counted(self, allowed: BoolArray) -> Live:
        mask = np.zeros(self.tree.shape.capacity, bool)
        mask[self.tree.leaf_of_item[allowed]] = True
        return self.tree.counts_below(mask)

    def _give_up(self) -> None:
        """Let go of those that were asked for longest ago; the latest stays, however large."""
        size = sum(counts.nbytes for counts in self.tree.live_counts) + self.tree.num_items
        while len(self._kept) > max(1, self.most_bytes // size):
            # Another thread may have been first.
            self._kept.pop(next(iter(self._kept), 0), None)


def _is_fixed(array: BoolArray) -> bool:
    """Can nobody write to it, by whatever view?"""
    held: object = array
    while isinstance(held, np.ndarray):
        if held.flags.writeable:
            return False
        held = held.base
    return True
