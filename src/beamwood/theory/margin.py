"""The margin of a target in a beam search: whether, where and by how much it is lost.

Shape legend: P pairs of a query and a target, H levels, B queries, L history length.
Source: two-stage bounds, equation 5 and proposition 4.3.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.errors import InputError
from beamwood.kernels.light import Way
from beamwood.ragged import indptr_of
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.tree import Tree
from beamwood.types import BoolArray, ItemLists, pairs_in

__all__ = ["MarginReport", "TargetMargins", "margin_report", "target_margins"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, slots=True)
class TargetMargins:
    """`by_level` float64[P, H]: the ancestor's score minus that of the beam's K-th best candidate of the level.

    It is +inf where a level has fewer than K candidates, and -inf where all items below the ancestor are excluded.
    `margin` float64[P] is the minimum over levels, g_f (the leaf included: proposition 4.3 needs it); `lost_on`
    int64[P] is the level on which the target falls out of the beam, 0 if it is found; `found` bool[P].
    """

    by_level: NDArray[np.float64]
    margin: NDArray[np.float64]
    lost_on: NDArray[np.int64]
    found: BoolArray


@dataclass(frozen=True, slots=True)
class MarginReport:
    """Where a beam of `beam_width` that returns `k` items loses targets: `found` and the sum of `lost` make 1.

    It covers the beam alone: a search may return more where the history's items are candidates of their own, and others
    where `way`, the tree's default way of searching, is another one. `found`:
    share of the targets that are returned; `lost`: share lost on each level, level 1 first; the last level includes
    targets ranked below place k. `quantiles` of g_f, "q05" to "q95", over the targets for which it is finite.
    """

    queries: int
    targets: int
    beam_width: int
    k: int
    found: float
    lost: tuple[float, ...]
    quantiles: dict[str, float]
    way: Way

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def margin_report(
    searcher: TreeSearcher,
    histories: ItemLists,
    labels: ItemLists,
    *,
    k: int | None = None,
    excluded: ItemLists | None = None,
) -> MarginReport:
    """A summary of `target_margins`. Errors: as there, and queries without any label."""
    if len(labels.items) == 0:
        raise InputError(f"none of the {len(labels)} queries has a label; nothing can be measured")
    margins = target_margins(searcher, histories, labels, k=k, excluded=excluded)
    known = margins.margin[np.isfinite(margins.margin)]
    shares = np.bincount(margins.lost_on, minlength=searcher.tree.shape.depth + 1) / len(margins.lost_on)
    width = max(searcher.beam_width, k or 1)
    return MarginReport(
        queries=len(labels),
        targets=len(margins.margin),
        beam_width=width,
        k=k or width,
        found=float(shares[0]),
        lost=tuple(shares[1:].tolist()),
        quantiles={f"q{100 * q:02.0f}": float(np.quantile(known, q)) for q in _QUANTILES if len(known)},
        way=searcher.ways.default,
    )


@naming_arguments
def target_margins(
    searcher: TreeSearcher,
    histories: ItemLists,
    labels: ItemLists,
    *,
    beam_width: int | None = None,
    k: int | None = None,
    excluded: ItemLists | None = None,
) -> TargetMargins:
    """`g_f(x, y)` of every label y of every query x in a search for k items, at the searcher's beam width or another.

    A level's candidates are the children of the beam one level above, and the target's own ancestor until it is lost.
    The last level keeps k, by default the beam width. `g_f >= 0` is equivalent to "y is retrieved" except for ties: an
    ancestor whose score equals the K-th best has margin 0 and may lose to a lower node. Errors: labels or excluded
    items with another number of rows, or outside the catalogue; a width or k below 1.
    """
    for name, number in (("beam_width", beam_width), ("k", k)):
        if number is not None and number < 1:
            raise InputError(f"{name}={number} is below 1; leave it out for the width of the searcher")
    for name, lists in (("histories", histories), ("labels", labels), ("excluded items", excluded)):
        if lists is not None and len(lists) != len(histories):
            raise InputError(f"{len(histories)} histories and {len(lists)} rows of {name}; give one row of {name} each")
        if lists is not None and lists.items.max(initial=-1) >= searcher.num_items:
            raise InputError(
                f"{name} hold index {lists.items.max()} of {searcher.num_items} items; give those of the fit"
            )
    tree, shape = searcher.tree, searcher.tree.shape
    width = max(beam_width or searcher.beam_width, k or 1)
    leaves_BL = tree.leaves_of(histories.padded(searcher.weights.history_length))
    targets = ItemLists(labels.indptr, tree.leaf_of_item[labels.items])
    banned = ItemLists.empty(len(histories)) if excluded is None else leaves_of_items(tree, excluded)
    by_level = np.full((len(targets.items), shape.depth), np.inf)
    lost_on = np.zeros(len(targets.items), np.int64)
    for level in range(1, shape.depth + 1):
        kept = width if level < shape.depth else k or width
        by_level[:, level - 1], held = on_level(searcher, level, leaves_BL, targets, banned, width, kept)
        lost_on = np.where((lost_on == 0) & ~held, level, lost_on)
    return TargetMargins(by_level, by_level.min(axis=1), lost_on, lost_on == 0)


def on_level(
    searcher: TreeSearcher,
    level: int,
    leaves_BL: NDArray[np.int32],
    targets: ItemLists,
    banned: ItemLists,
    width: int,
    kept: int,
) -> tuple[NDArray[np.float64], BoolArray]:
    """For each target leaf, its margin on a level that keeps `kept` nodes, and whether these hold its ancestor.

    `banned`: the leaves that each row excludes, ascending.
    """
    tree, core, size = searcher.tree, searcher.core, searcher.tree.shape.level_size(level)
    place, live, lists = min(kept, size), tree.live_counts[: level + 1], (banned.indptr, banned.items)
    beam = core.beam(leaves_BL, beam_width=width, k=place, live=live, excluded=lists)
    rows, ancestors = targets.rows, np.asarray(tree.shape.ancestors(targets.items, level), np.int32)
    own = core.score(leaves_BL[rows], ancestors[:, None], level=level)[:, 0].astype(float)
    full = (beam.leaves >= 0).sum(axis=1) >= kept
    last = np.where(full, beam.scores[:, place - 1].astype(float), -np.inf)[rows]
    # The same node's score from another matrix product may differ in the last bit.
    same = beam.leaves[rows] == ancestors[:, None]
    held = same.any(axis=1)
    own = np.where(held, beam.scores[rows, same.argmax(axis=1)].astype(float), own)
    closed = closed_nodes(tree, banned, level)
    return np.where(pairs_in(rows, ancestors, closed), -np.inf, own - last), held


def leaves_of_items(tree: Tree, lists: ItemLists) -> ItemLists:
    """The leaves of items, each once and ascending within a row."""
    return ItemLists(lists.indptr, tree.leaf_of_item[lists.items]).distinct()


def closed_nodes(tree: Tree, banned: ItemLists, level: int) -> ItemLists:
    """Each row's nodes of a level below which every leaf with an item is banned, ascending."""
    size = tree.shape.level_size(level)
    keys = banned.rows * size + tree.shape.ancestors(banned.items.astype(np.int64), level)
    keys, counts = np.unique(keys, return_counts=True)
    keys = keys[counts == tree.live_counts[level][keys % size]]
    return ItemLists(indptr_of(np.bincount(keys // size, minlength=len(banned))), (keys % size).astype(np.int32))
