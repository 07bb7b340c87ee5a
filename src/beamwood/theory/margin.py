"""The margin of a target in a beam search: whether, where and by how much it is lost.

Shape legend: P pairs of a query and a target, H levels, B queries, L history length.
Source: two-stage bounds, equation 5 and proposition 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kernels.din import DinWeights
from beamwood.kernels.search import DinSearch
from beamwood.retrieval.tree import TreeSearcher
from beamwood.tree import Shape
from beamwood.types import BoolArray, ItemLists

__all__ = ["TargetMargins", "cut_at", "target_margins"]


@dataclass(frozen=True, slots=True)
class TargetMargins:
    """`by_level` float64[P, H]: the ancestor's score minus that of the beam's K-th best candidate of the level.

    +inf where a level has at most K candidates. `margin` float64[P] is the least up to the level of the loss;
    `lost_on` int64[P] the level on which the target falls out of the beam, 0 where it is found; `found` bool[P].
    """

    by_level: NDArray[np.float64]
    margin: NDArray[np.float64]
    lost_on: NDArray[np.int64]
    found: BoolArray


def target_margins(
    searcher: TreeSearcher, histories: ItemLists, labels: ItemLists, *, beam_width: int | None = None
) -> TargetMargins:
    """`g_f(x, y)` of every label y of every query x, at the searcher's beam width or another.

    A level's candidates are the children of what the beam held one level above, and the target's own ancestor, which
    is among them until it is lost. `g_f >= 0` says the same as "y is retrieved", but for ties: an ancestor whose score
    equals the K-th best has margin 0 and may lose to a lower node. Errors: labels of another number of rows.
    """
    if len(histories) != len(labels):
        raise InputError(f"{len(histories)} histories and {len(labels)} rows of labels; give one row of labels each")
    tree, shape = searcher.tree, searcher.tree.shape
    width = beam_width or searcher.beam_width
    leaves_BL = tree.leaves_of(histories.padded(searcher.weights.history_length))
    rows, target_P = labels.rows, tree.leaf_of_item[labels.items].astype(np.int64)
    by_level = np.full((len(rows), shape.depth), np.inf)
    lost_on = np.zeros(len(rows), np.int64)
    for level in range(1, shape.depth + 1):
        weights, above = cut_at(searcher, level)
        history = np.ascontiguousarray(shape.ancestors(leaves_BL, level), np.int32)
        search = DinSearch(weights, above, by_path=searcher.by_path)
        beam = search.beam(history, beam_width=width, k=min(width, above.capacity), live=tree.live_counts[: level + 1])
        ancestors = shape.ancestors(target_P, level).astype(np.int32)
        own = search.score(history[rows], ancestors[:, None])[:, 0].astype(float)
        held = (beam.leaves[rows] == ancestors[:, None]).any(axis=1)
        full = (beam.leaves >= 0).sum(axis=1) >= width
        last = np.where(full, beam.scores[:, min(width, above.capacity) - 1].astype(float), -np.inf)[rows]
        by_level[:, level - 1] = own - last
        lost_on = np.where((lost_on == 0) & ~held, level, lost_on)
    until = np.arange(1, shape.depth + 1)[None, :] <= np.where(lost_on == 0, shape.depth, lost_on)[:, None]
    margin = np.where(until, by_level, np.inf).min(axis=1)
    return TargetMargins(by_level, margin, lost_on, lost_on == 0)


def cut_at(searcher: TreeSearcher, level: int) -> tuple[DinWeights, Shape]:
    """The scorer and the shape of a tree that ends on `level`."""
    shape = searcher.tree.shape
    above = Shape(shape.root_fanout, shape.branching, level)
    weights = searcher.weights
    return (
        DinWeights(
            nodes=weights.nodes[: above.num_nodes],
            attention_in=weights.attention_in,
            attention_out=weights.attention_out,
            windows=weights.windows,
            layers=weights.layers,
        ),
        above,
    )
