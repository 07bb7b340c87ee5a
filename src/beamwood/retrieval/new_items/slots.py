"""Empty leaves of a fitted tree as room for new items: which are free, and their vectors.

Shape legend: M new items.

The searchers of one fitted tree share its arrays. A leaf is written only while no searcher in use has an item on it, so
no search reads a changing leaf. Of a mapped file only written pages are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from beamwood.fork_lock import ForkLock
from beamwood.kernels.din import DinWeights
from beamwood.kernels.mixtures import Mixtures
from beamwood.kernels.search import DinSearch
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.tree.tree import Shape
from beamwood.types import BoolArray, IndexArray

__all__ = ["Slots", "mixed_leaves", "slots_of"]

# A new item gets a leaf whose ancestor this many levels above the parent's is the same as its main parent's, or is
# scored beside the search.
_NEAR = 1
_LOCK = ForkLock()


class Slots:
    """The leaves of `fitted` that held no item, their new content, and who uses them."""

    def __init__(self, fitted: TreeSearcher) -> None:
        self._tree, self._lock = fitted.tree, ForkLock()
        self._empty = fitted.tree.item_of_leaf < 0
        self._written: dict[bytes, list[int]] = {}
        self._held: dict[int, bytes] = {}
        self._users: WeakKeyDictionary[object, BoolArray] = WeakKeyDictionary()
        # The mixtures placed last, and their leaves, which nothing has overwritten since.
        self._latest = Mixtures.of([]), np.empty(0, np.int32)
        self.weights = _writable(fitted.weights)
        self._search = fitted.core if self.weights is fitted.weights else fitted.core.of(self.weights)

    def placed(self, user: object, mixtures: Mixtures, near: BoolArray, far: BoolArray) -> NDArray[np.int32]:
        """int32[M], the leaf of each mixture, written for `user`; -1 where none is free or wanted.

        `near` bool[M] need one near their parents, `far` bool[M] any, the nearest first.
        """
        with self._lock:
            leaves, taken = self._as_before(mixtures, near | far)
            rest = np.flatnonzero((near | far) & (leaves < 0) & (mixtures.lists.lengths > 0))
            keys, there = mixtures.take(rest).keys(), dict[bytes, Iterator[int]]()
            for row, key in zip(rest.tolist(), keys, strict=True):
                # Of equal mixtures each goes on where the one before it stopped.
                written = there.setdefault(key, iter(self._written.get(key, ())))
                same = next((leaf for leaf in written if not taken[leaf]), None)
                if same is not None:
                    leaves[row], taken[same] = same, True
            free = self._empty & ~taken
            for used in self._users.values():
                free &= ~used
            self._choose(leaves, mixtures, free, rest[leaves[rest] < 0], far)
            new = (leaves[rest] >= 0) & ~taken[leaves[rest]]
            self._write(mixtures, rest[new], leaves[rest[new]], [keys[at] for at in np.flatnonzero(new)])
            taken[leaves[leaves >= 0]] = True
            self._users[user] = taken
            self._latest = mixtures, leaves
            return leaves

    def _as_before(self, mixtures: Mixtures, wanted: BoolArray) -> tuple[NDArray[np.int32], BoolArray]:
        """The leaves of those that are as they were the last time, -1 for others; and bool[capacity], these leaves."""
        earlier, placed = self._latest
        leaves, taken = np.full(len(mixtures), -1, np.int32), np.zeros(len(self._empty), bool)
        rows = np.flatnonzero(mixtures.same(earlier) & wanted[: len(earlier)])
        leaves[rows] = placed[rows]
        taken[leaves[leaves >= 0]] = True
        return leaves, taken

    def search(self) -> DinSearch:
        """The search over the written weights."""
        return self._search.after_writing()

    def _choose(
        self, leaves: NDArray[np.int32], mixtures: Mixtures, free: BoolArray, wanted: IndexArray, far: BoolArray
    ) -> None:
        """Give the `wanted` mixtures free leaves, each the nearest to the parent with most of its weight."""
        if len(wanted) == 0:
            return
        shape, counts = self._tree.shape, self._tree.counts_below(free)
        for row, leaf in zip(wanted.tolist(), self._main_leaves(mixtures.take(wanted)).tolist(), strict=True):
            leaf = _nearest(shape, counts, leaf, levels=shape.depth if far[row] else _NEAR)
            leaves[row] = leaf
            for level in range(shape.depth + 1) if leaf >= 0 else ():
                counts[level][leaf // shape.leaves_below(level)] -= 1

    def _main_leaves(self, mixtures: Mixtures) -> NDArray[np.int32]:
        """int32[M], of each mixture the leaf with the largest weight below the parent with most of its weight."""
        shape, of_leaves = self._tree.shape, mixtures.moved(self._tree.leaf_of_item)
        rows, parents = of_leaves.lists.rows, shape.ancestors(of_leaves.lists.items, shape.depth - 1)
        width = np.int64(shape.capacity)
        pairs, place = np.unique(rows * width + parents, return_inverse=True)
        order = np.lexsort((pairs, -np.bincount(place, of_leaves.weights), pairs // width))
        _, first = np.unique(pairs[order] // width, return_index=True)
        below = place == order[first][rows]
        return Mixtures(of_leaves.lists.keeping(below), of_leaves.weights[below]).heaviest()

    def _write(self, mixtures: Mixtures, rows: NDArray[np.int64], leaves: NDArray[np.int32], keys: list[bytes]) -> None:
        """Write the mixtures of these rows, of these `keys`, to the leaves."""
        first = self._tree.shape.level_offset(self._tree.shape.depth)
        mixed = mixed_leaves(self.weights, mixtures.take(rows).moved(self._tree.leaf_of_item), self._tree.shape)
        arrays = self.weights.arrays()
        for name, values in mixed.items():
            arrays[name][first + leaves] = values
        for key, leaf in zip(keys, leaves.tolist(), strict=True):
            before = self._held.pop(leaf, None)
            if before is not None:
                self._written[before].remove(leaf)
                if not self._written[before]:
                    del self._written[before]
            self._held[leaf] = key
            self._written.setdefault(key, []).append(leaf)


_KNOWN: WeakKeyDictionary[TreeSearcher, Slots] = WeakKeyDictionary()


def slots_of(fitted: TreeSearcher) -> Slots:
    """The shared record of a fitted tree's empty leaves."""
    with _LOCK:
        if fitted not in _KNOWN:
            _KNOWN[fitted] = Slots(fitted)
        return _KNOWN[fitted]


def mixed_leaves(weights: DinWeights, leaves: Mixtures, shape: Shape) -> dict[str, NDArray[Any]]:
    """By name as in `DinWeights.arrays`, [M, ..]: the content of leaves that are mixtures of others."""
    first = shape.level_offset(shape.depth)
    rows: dict[str, NDArray[Any]] = {"nodes": leaves.mixed(weights.nodes, first)}
    for term, part in weights.terms.items():
        rows |= {f"{term}.{name}": values for name, values in part.term.mixed(part.arrays, leaves, shape).items()}
    if weights.light is not None:
        rows |= {f"light.{name}": values for name, values in weights.light.mixed(leaves, first).items()}
    return rows


def _nearest(shape: Shape, counts: Sequence[NDArray[np.int32]], leaf: int, *, levels: int) -> int:
    """The free leaf nearest to `leaf` below the ancestor `levels` above its parent; -1 where there is none."""
    for level in range(shape.depth - 1, max(-1, shape.depth - 2 - levels), -1):
        node = leaf // shape.leaves_below(level)
        if counts[level][node] == 0:
            continue
        for below in range(level + 1, shape.depth + 1):
            fanout = shape.fanout(below)
            children = node * fanout + np.flatnonzero(counts[below][node * fanout : (node + 1) * fanout])
            node = int(children[np.abs(children - leaf // shape.leaves_below(below)).argmin()])
        return node
    return -1


def _writable(weights: DinWeights) -> DinWeights:
    """The weights with writable arrays: themselves, or a copy where memory is read-only."""
    try:
        for array in weights.arrays().values():
            array.setflags(write=True)
    except ValueError:
        copied = {name: array.copy() for name, array in weights.arrays().items()}
        return DinWeights.from_arrays(copied, {name: part.term for name, part in weights.terms.items()})
    return weights
