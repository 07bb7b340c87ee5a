"""Searches steered by the light head, in numpy: the reference of native/search/steer.cpp.

Shape legend: B rows, L history length, H levels, M most nodes of a level, K results.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kernels.arrays import sound
from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import Way
from beamwood.kernels.reference import (
    ExcludedLeaves,
    LiveCounts,
    SearchResult,
    banned_row,
    best_first,
    open_children,
    score_level,
)
from beamwood.kernels.terms import TermQuery
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = ["Visited", "light_scores", "steered_search", "visit"]

Float32 = NDArray[np.float32]


class Visited(NamedTuple):
    """What a beam looked at: `nodes` int32[B, H, M], -1 beyond the last; `scores` float32 of the scorer; `weights`
    float32, the logarithm of how many nodes of its level each stands for."""

    nodes: NDArray[np.int32]
    scores: Float32
    weights: Float32


def light_scores(weights: DinWeights, shape: Shape, level: int, leaves_L: IndexArray, nodes_M: IndexArray) -> Float32:
    """float32[M]: the light head's scores of nodes of a level, including the sparse terms."""
    assert weights.light is not None
    offset, places = shape.level_offset(level), np.flatnonzero(leaves_L >= 0)
    rows = offset + shape.ancestors(leaves_L[places], level)
    scores: Float32 = weights.light.scores(rows, places, offset + nodes_M)
    query, added = TermQuery(shape, level, leaves_L[None], nodes_M[None]), np.zeros(len(nodes_M), np.float32)
    for part in weights.terms.values():
        if part.term.sparse and (level == shape.depth or not part.term.leaves_only):
            added = added + part.score(query)[0]
    return sound(np.asarray(scores + added, np.float32))


def steered_search(
    weights: DinWeights,
    shape: Shape,
    history_BL: IndexArray,
    way: Way,
    *,
    k: int,
    live: LiveCounts,
    excluded: ExcludedLeaves | None = None,
    again: bool = False,
) -> SearchResult:
    """The k best leaves that a steered search finds for each row; arguments as for `reference.beam_search`.

    The head cuts a level to `way.beam_width` nodes and the leaves to `way.judged`, or each level to the latter where
    the scorer judges every level. At least as many are judged as kept. `again`: the history's own leaves are candidates
    too, whatever the beam reached.
    """
    leaves = np.full((len(history_BL), k), -1, np.int32)
    scores = np.full((len(history_BL), k), -np.inf, np.float32)
    scored = np.zeros(len(history_BL), np.int64)
    for row, history_L in enumerate(history_BL):
        banned = banned_row(excluded, row)
        nodes: IndexArray = np.zeros(1, np.int64)
        for level in range(1, shape.depth + 1):
            final = level == shape.depth
            nodes = open_children(shape, level, nodes, live[level], banned)
            if final and again:
                seen = np.setdiff1d(history_L[history_L >= 0], banned)
                nodes = np.union1d(nodes, seen[live[level][seen] > 0])
            if not final and len(nodes) <= way.beam_width:
                continue
            if not final and way.kind == "steer":
                nodes = _cut(weights, shape, level, history_L, nodes, way.beam_width)
                continue
            kept = k if final else way.beam_width
            nodes = _cut(weights, shape, level, history_L, nodes, max(way.judged, kept))
            values = score_level(weights, shape, level, history_L, nodes)
            scored[row] += len(nodes)
            best = best_first(values, nodes, kept)
            if final:
                leaves[row, : len(best)], scores[row, : len(best)] = nodes[best], values[best]
            nodes = np.sort(nodes[best])
    return SearchResult(leaves, scores, scored)


def visit(
    weights: DinWeights,
    shape: Shape,
    history_BL: IndexArray,
    *,
    beam_width: int,
    steered: bool,
    most: int,
    offsets: NDArray[np.float64],
    live: LiveCounts,
) -> Visited:
    """The candidates of a beam of `beam_width` nodes on each level, by the scorer or, `steered`, by the light head.

    Of more than `most` nodes, half are the best. The others are spread evenly over the rest, in the order of nodes,
    from the row's `offsets` float64[B] in [0, 1) on. Errors: offsets out of range, or another number of them.
    """
    if most < 2 or offsets.shape != (len(history_BL),) or ((offsets < 0) | (offsets >= 1)).any():
        raise InputError(f"most={most} must be 2 or more, and offsets one number in [0, 1) for each history")
    size = (len(history_BL), shape.depth, most)
    visited = Visited(np.full(size, -1, np.int32), np.full(size, -np.inf, np.float32), np.zeros(size, np.float32))
    score = light_scores if steered else score_level
    for row, history_L in enumerate(history_BL):
        nodes: IndexArray = np.zeros(1, np.int64)
        for level in range(1, shape.depth + 1):
            nodes = open_children(shape, level, nodes, live[level], np.empty(0, np.int32))
            values = score(weights, shape, level, history_L, nodes)
            order = best_first(values, nodes, len(nodes))
            best = len(nodes) if len(nodes) <= most else most // 2
            spread = min(len(nodes), most) - best
            rest, stands_for = np.sort(order[best:]), (len(nodes) - best) / max(spread, 1)
            # Rounded, an offset just below 1 would be 1.
            picked = rest[np.minimum((np.arange(spread) + offsets[row]) * stands_for, len(rest) - 1).astype(np.int64)]
            at, count = np.concatenate([order[:best], picked]), best + spread
            visited.nodes[row, level - 1, :count] = nodes[at]
            own = score_level(weights, shape, level, history_L, nodes[at]) if steered else values[at]
            visited.scores[row, level - 1, :count] = own
            if spread:
                visited.weights[row, level - 1, best:count] = np.log(stands_for)
            nodes = np.sort(nodes[order[:beam_width]])
    return visited


def _cut(
    weights: DinWeights, shape: Shape, level: int, leaves_L: IndexArray, nodes_M: IndexArray, most: int
) -> NDArray[np.int64]:
    """The `most` best nodes by the light head, ascending."""
    if len(nodes_M) <= most:
        return np.asarray(nodes_M, np.int64)
    values = light_scores(weights, shape, level, leaves_L, nodes_M)
    kept: NDArray[np.int64] = np.sort(nodes_M[best_first(values, nodes_M, most)])
    return kept
