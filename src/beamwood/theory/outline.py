"""An outline of a tree for reading: what is below each of its upper nodes, and which labels a beam loses there.

Shape legend: N items, P pairs of a query and a label.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from beamwood.tree import Tree
from beamwood.types import IndexArray

__all__ = ["CategoryShare", "Node", "tree_outline"]

MOST_NODES = 3000
_CATEGORIES, _EXAMPLES = 3, 5


@dataclass(frozen=True, slots=True)
class CategoryShare:
    """A category, and the share of a node's items that have it."""

    name: str
    share: float


@dataclass(frozen=True, slots=True)
class Node:
    """One node: `items` below it and their `share` of all interactions, their most frequent `categories` and most
    popular `examples`; `labels` of the queries below it, and how many of them a beam loses at this node.

    `below`: the indices of its children in the outline, empty for a leaf and at the end of the outline.
    """

    level: int
    number: int
    items: int
    share: float
    labels: int
    lost: int
    categories: tuple[CategoryShare, ...]
    examples: tuple[str, ...]
    below: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON-compatible values."""
        return asdict(self)


def tree_outline(
    tree: Tree,
    names: pl.Series,
    counts_N: IndexArray,
    categories: pl.Series | None,
    label_items: IndexArray,
    lost_on: IndexArray,
    *,
    most: int = MOST_NODES,
) -> list[Node]:
    """The root and as many whole levels below it as have at most `most` nodes in all, without nodes that hold no item.

    `names` (texts) and `counts_N` of the N items, `categories` lists of text or None; `label_items` int[P], and
    `lost_on` int[P], the level on which each is lost, 0 where it is found.
    """
    sizes = [int(np.count_nonzero(live)) for live in tree.live_counts]
    depth = max((level for level in range(len(sizes)) if sum(sizes[: level + 1]) <= most), default=0)
    levels = [_level(tree, level, names, counts_N, categories, label_items, lost_on) for level in range(depth + 1)]
    nodes: list[Node] = []
    start = 0
    for level, own in enumerate(levels):
        start += len(own)
        children: dict[int, list[int]] = {}
        if level + 1 < len(levels):
            for place, child in enumerate(levels[level + 1]):
                parent = 0 if level == 0 else child["number"] // tree.shape.branching
                children.setdefault(parent, []).append(start + place)
        nodes += [Node(**each, below=tuple(children.get(each["number"], ()))) for each in own]
    return nodes


def _level(
    tree: Tree,
    level: int,
    names: pl.Series,
    counts_N: IndexArray,
    categories: pl.Series | None,
    label_items: IndexArray,
    lost_on: IndexArray,
) -> list[dict[str, Any]]:
    """The facts of each node of a level that holds an item, in node order."""
    node_N = np.asarray(tree.shape.ancestors(tree.leaf_of_item.astype(np.int64), level))
    size = tree.shape.level_size(level)
    taken, labels = np.bincount(node_N, counts_N, minlength=size), np.bincount(node_N[label_items], minlength=size)
    lost = np.bincount(node_N[label_items[lost_on == level]], minlength=size) if level else np.zeros(size, np.int64)
    order = np.lexsort((np.arange(len(node_N)), -np.asarray(counts_N), node_N))
    firsts = np.searchsorted(node_N[order], np.arange(size + 1))
    frequent, total = _frequent(node_N, categories), max(1, counts_N.sum())
    return [
        {
            "level": level,
            "number": number,
            "items": int(live),
            "share": float(taken[number] / total),
            "labels": int(labels[number]),
            "lost": int(lost[number]),
            "categories": tuple(CategoryShare(name, count / int(live)) for name, count in frequent.get(number, ())),
            "examples": tuple(
                names[int(item)] for item in order[firsts[number] : min(firsts[number] + _EXAMPLES, firsts[number + 1])]
            ),
        }
        for number, live in enumerate(tree.live_counts[level].tolist())
        if live
    ]


def _frequent(node_N: IndexArray, categories: pl.Series | None) -> dict[int, list[tuple[str, int]]]:
    """The most frequent categories below each node with their counts; ties by name."""
    if categories is None:
        return {}
    pairs = pl.DataFrame({"node": node_N, "category": categories}).explode("category").drop_nulls()
    counted = pairs.filter(pl.col("category") != "").group_by("node", "category").len()
    counted = counted.sort(["node", "len", "category"], descending=[False, True, False])
    most = counted.group_by("node", maintain_order=True).head(_CATEGORIES)
    found: dict[int, list[tuple[str, int]]] = {}
    for node, category, count in most.iter_rows():
        found.setdefault(node, []).append((category, count))
    return found
