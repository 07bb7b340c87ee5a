"""The search tree: a permutation of items and arithmetic, no pointers.

The root has R children, every other inner node B; all leaves lie on level H. Level j >= 1 has R * B^(j-1) nodes,
numbered from 0 within the level. The parent of node i is i // B, and the ancestor of leaf l on level j is
l // B^(H-j). Level 0 is the root alone. Each item is at one leaf; an empty leaf (-1) is room for a new item.

Source: DTR, section 3.2.1 (complete B-ary tree, the case R = B); the free root keeps the slack small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError, nearest
from beamwood.types import BoolArray, IndexArray

__all__ = ["MAX_BRANCHING", "Shape", "ShapeName", "Tree", "choose_shape"]

ShapeName = Literal["compact", "complete"]
"""The rules for choosing a shape; see `choose_shape`."""

MAX_BRANCHING = 256
EMPTY = -1
# The share of empty leaves relative to items.
_SLACK = 0.05
# At most the items over this are counted one by one.
_SPARSE = 16
# Leaves whose flags are read together.
_BLOCK = 2**15
# So few children are summed one after another.
_FEW_CHILDREN = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """The arithmetic of a tree: root fan-out R >= 1, branching B in 2..256, depth H >= 1."""

    root_fanout: int
    branching: int
    depth: int

    def __post_init__(self) -> None:
        if not 2 <= self.branching <= MAX_BRANCHING:
            raise InputError(f"branching={self.branching} is outside 2..{MAX_BRANCHING}")
        if self.root_fanout < 1:
            raise InputError(f"root_fanout={self.root_fanout} is below 1")
        # Deeper trees have more leaves than int32 can number; the power would take forever to compute.
        if not 1 <= self.depth <= 31:
            raise InputError(f"depth={self.depth} is outside 1..31")
        if self.capacity > np.iinfo(np.int32).max // 4:
            raise InputError(f"a tree of {self.capacity} leaves is too large; lower depth or branching")

    @property
    def capacity(self) -> int:
        """Number of leaves, live and empty: R * B^(H-1)."""
        return self.root_fanout * int(self.branching ** (self.depth - 1))

    @property
    def num_nodes(self) -> int:
        """Number of nodes on levels 1..H; the root is never scored and has no number."""
        return self.level_offset(self.depth + 1)

    def level_size(self, level: int) -> int:
        """Number of nodes on a level; 1 on level 0."""
        return 1 if level == 0 else self.root_fanout * int(self.branching ** (level - 1))

    def fanout(self, level: int) -> int:
        """Number of children on `level` >= 1 of each node of the level above: R on level 1, B below."""
        return self.root_fanout if level == 1 else self.branching

    def level_offset(self, level: int) -> int:
        """Number of nodes on levels 1..level-1: where the level starts in a level-major node table."""
        return self.root_fanout * int(self.branching ** (level - 1) - 1) // (self.branching - 1)

    def leaves_below(self, level: int) -> int:
        """Number of leaves, live and empty, below each node of a level (the node itself on level H)."""
        return self.capacity if level == 0 else int(self.branching ** (self.depth - level))

    def ancestors(self, leaves: IndexArray, level: int) -> IndexArray:
        """The ancestor on `level` of each leaf, same shape; -1 stays -1."""
        # Floor division keeps -1 at -1, so that padding needs no mask.
        return leaves // self.leaves_below(level)


@dataclass(frozen=True)
class Tree:
    """An immutable tree over N items; learning returns a new one.

    `item_of_leaf` int32[capacity]: the item at each leaf, -1 where empty; each item of 0..N-1 occurs exactly once.
    Raises `InputError` when an item is missing, occurs twice or the length is not the shape's capacity.
    """

    shape: Shape
    item_of_leaf: NDArray[np.int32]

    def __post_init__(self) -> None:
        item_of_leaf = np.ascontiguousarray(self.item_of_leaf, dtype=np.int32).copy()
        if item_of_leaf.shape != (self.shape.capacity,):
            raise InputError(
                f"item_of_leaf has shape {item_of_leaf.shape}; a tree of {self.shape} needs ({self.shape.capacity},)"
            )
        live = item_of_leaf[item_of_leaf != EMPTY]
        if len(live) == 0:
            raise InputError("item_of_leaf holds no item; a tree needs at least one")
        inside = live.min() >= 0 and live.max() < len(live)
        if not inside or np.bincount(live).max() > 1:
            raise InputError(f"item_of_leaf must hold each item of 0..{len(live) - 1} exactly once and -1 elsewhere")
        item_of_leaf.setflags(write=False)
        object.__setattr__(self, "item_of_leaf", item_of_leaf)

    @classmethod
    def of_order(cls, order: IndexArray, shape: Shape | ShapeName = "compact", *, branching: int = 2) -> Tree:
        """The tree whose leaves hold the items in `order` (a permutation of 0..N-1), spread evenly.

        Sibling subtrees differ by at most one live leaf. `branching`: of a shape given by name.
        """
        order = np.asarray(order)
        shape = choose_shape(len(order), branching, shape)
        if len(order) > shape.capacity:
            raise InputError(f"{len(order)} items do not fit into {shape.capacity} leaves; raise depth")
        item_of_leaf = np.full(shape.capacity, EMPTY, np.int32)
        item_of_leaf[spread_leaves(len(order), shape.capacity)] = order
        return cls(shape, item_of_leaf)

    def with_items(self, leaves_M: IndexArray) -> Tree:
        """The same tree with items N, N + 1, .. on these empty leaves; -1 for one without a leaf."""
        leaves = np.asarray(leaves_M, np.int32)
        placed, item_of_leaf = leaves >= 0, self.item_of_leaf.copy()
        assert (item_of_leaf[leaves[placed]] == EMPTY).all(), "a new item goes to an empty leaf"
        item_of_leaf[leaves[placed]] = self.num_items + np.flatnonzero(placed)
        counts = [count.copy() for count in self.live_counts]
        self._add(counts, leaves[placed], 1)
        # Bypasses the constructor, which requires a leaf for every item.
        made = object.__new__(Tree)
        of_item = np.concatenate([self.leaf_of_item, leaves])
        named = {"shape": self.shape, "item_of_leaf": item_of_leaf, "leaf_of_item": of_item}
        made.__dict__.update(named | {"live_counts": tuple(counts)})
        return made

    @property
    def num_items(self) -> int:
        return len(self.leaf_of_item)

    @cached_property
    def leaf_of_item(self) -> NDArray[np.int32]:
        """int32[N], the leaf of each item."""
        leaves = np.flatnonzero(self.item_of_leaf != EMPTY).astype(np.int32)
        leaf_of_item = np.empty(len(leaves), np.int32)
        leaf_of_item[self.item_of_leaf[leaves]] = leaves
        leaf_of_item.setflags(write=False)
        return leaf_of_item

    @cached_property
    def live_counts(self) -> tuple[NDArray[np.int32], ...]:
        """For each level 0..H an int32 array: the number of items below each node."""
        return self.counts_below(self.item_of_leaf != EMPTY)

    def live_nodes(self, level: int) -> NDArray[np.int64] | None:
        """The nodes of a level with an item below, ascending; None where all have one. Kept for further calls."""
        if level not in self._live_nodes:
            counts = self.live_counts[level]
            self._live_nodes[level] = None if counts.all() else np.flatnonzero(counts)
        return self._live_nodes[level]

    @cached_property
    def _live_nodes(self) -> dict[int, NDArray[np.int64] | None]:
        return {}

    def counts_of(self, allowed: BoolArray) -> tuple[NDArray[np.int32], ...]:
        """For each level 0..H the number of `allowed` bool[N] items below each node; items beside the leaves are left
        out.

        Few items are counted one by one, few others taken from `live_counts`: either changes few numbers.
        """
        count = int(np.count_nonzero(allowed))
        few = min(count, len(allowed) - count)
        if few * _SPARSE > len(allowed):
            return self._summed(self._leaves_with(allowed))
        added = few == count
        leaves = self.leaf_of_item[np.flatnonzero(allowed if added else ~allowed)]
        # Pages of zeros take memory only once they are written.
        counts = [np.zeros(each.shape, np.int32) if added else each.copy() for each in self.live_counts]
        self._add(counts, leaves[leaves >= 0], 1 if added else -1)
        return tuple(counts)

    def _leaves_with(self, allowed: BoolArray) -> NDArray[np.int32]:
        """int32[capacity], 1 for a leaf with an allowed item.

        Leaf by leaf, as reads out of sequence are cheaper than writes; in blocks, as numpy widens the indices.
        """
        # An empty leaf has the index -1, which is that of the last element.
        flags, found = np.append(allowed, False), np.empty(self.shape.capacity, np.int32)
        for start in range(0, len(found), _BLOCK):
            found[start : start + _BLOCK] = flags.take(self.item_of_leaf[start : start + _BLOCK], mode="wrap")
        return found

    def _add(self, counts: Sequence[NDArray[np.int32]], leaves: NDArray[np.int32], number: int) -> None:
        """Add a number to the counts of all nodes above some leaves, and of the leaves."""
        for level, count in enumerate(counts):
            np.add.at(count, self.shape.ancestors(leaves, level), np.int32(number))

    def counts_below(self, leaf_mask: BoolArray) -> tuple[NDArray[np.int32], ...]:
        """For each level 0..H the number of set leaves below each node; `leaf_mask` bool[capacity]."""
        return self._summed(leaf_mask.astype(np.int32))

    def _summed(self, leaves: NDArray[np.int32]) -> tuple[NDArray[np.int32], ...]:
        """The counts of each level 0..H by those of the leaves."""
        counts = [leaves]
        for _ in range(self.shape.depth - 1):
            children = counts[-1].reshape(-1, self.shape.branching)
            # Several times as fast as a sum along so short an axis.
            few = self.shape.branching <= _FEW_CHILDREN
            counts.append(reduce(np.add, children.T) if few else np.einsum("ij->i", children))
        counts.append(counts[-1].sum(keepdims=True, dtype=np.int32))
        return tuple(reversed(counts))

    def leaves_of(self, items: IndexArray) -> NDArray[np.int32]:
        """The leaf of each item, same shape; -1 stays -1."""
        return np.where(items < 0, np.int32(EMPTY), self.leaf_of_item[items])


def spread_leaves(num_items: int, capacity: int) -> NDArray[np.int64]:
    """int64[num_items]: ascending leaves, one an item, such that blocks of equal length differ by at most one."""
    return np.arange(num_items, dtype=np.int64) * capacity // num_items


def choose_shape(num_items: int, branching: int = 2, shape: Shape | ShapeName = "compact") -> Shape:
    """A shape for `num_items` >= 1 items, of `branching` in 2..256; a given `Shape` is returned unchanged.

    "compact": the deepest whose empty leaves are at most 5 % of the items, or the one with the fewest; with more than
    `branching` items it has at least two levels. "complete": every node has `branching` children, also the root, in as
    few levels as hold the items (the papers: DTR, section 3.2.1). Errors: no item, `branching` outside 2..256, an
    unknown shape.
    """
    if isinstance(shape, Shape):
        return shape
    if num_items < 1:
        raise InputError(f"num_items={num_items} is below 1")
    if not 2 <= branching <= MAX_BRANCHING:
        raise InputError(f"branching={branching} is outside 2..{MAX_BRANCHING}")
    if shape not in get_args(ShapeName):
        raise InputError(f"shape={shape!r} is unknown{nearest(shape, get_args(ShapeName))}")
    return complete_shape(num_items, branching) if shape == "complete" else compact_shape(num_items, branching)


def complete_shape(num_items: int, branching: int) -> Shape:
    """The complete tree of the fewest levels that holds the items."""
    depth = 1
    while branching**depth < num_items:
        depth += 1
    return Shape(branching, branching, depth)


def compact_shape(num_items: int, branching: int) -> Shape:
    """The deepest shape whose empty leaves are at most `_SLACK` of the items, or the one with the fewest."""
    shapes = []
    depth = 1
    while True:
        fanout = -(-num_items // branching ** (depth - 1))
        shapes.append(Shape(fanout, branching, depth))
        if fanout <= branching:
            break
        depth += 1
    candidates = shapes[1:] or shapes
    tight = [shape for shape in candidates if shape.capacity <= num_items * (1 + _SLACK)]
    if tight:
        return tight[-1]
    return min(candidates, key=lambda shape: (shape.capacity, -shape.depth))
