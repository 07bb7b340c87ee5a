"""Tree-based sampling: negatives of every level by walks from the root, with the exact probability of each.

Shape legend: B rows, M paths a row, T positives a row, H levels, U distinct nodes, F children of a node.

A walk at a node goes on to a child by the softmax over the children's scores, so `log q` of a node is the sum of
these along its path; it sums to 1 over a level. Only children of nodes that some walk stands on are scored.
Source: DTR, section 4.3.2, equations 22-23, proposition 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kernels.links import log_softmax
from beamwood.tree.tree import Shape
from beamwood.types import BoolArray, FloatArray, IndexArray

__all__ = ["Paths", "ScoreNodes", "sample_paths"]

# score(level, nodes int64[B, C]) -> [B, C]; nodes None: every node of the level in order.
ScoreNodes = Callable[[int, NDArray[np.int64] | None], FloatArray]


@dataclass(frozen=True, slots=True)
class Paths:
    """Walks and their probabilities; index 0 of the first axis is level 1.

    `nodes` int64[H, B, M]; `log_q`, `scores` float32[H, B, M]. `positive_log_q`, `positive_scores` float32[H, B, T]:
    the same for the positives' ancestors. `scored` int: nodes scored for each row, summed over levels.
    """

    nodes: NDArray[np.int64]
    log_q: NDArray[np.float32]
    scores: NDArray[np.float32]
    positive_log_q: NDArray[np.float32]
    positive_scores: NDArray[np.float32]
    scored: int


def sample_paths(
    score: ScoreNodes,
    shape: Shape,
    live: tuple[NDArray[np.int32], ...],
    uniforms_HBM: FloatArray,
    positives_BT: IndexArray,
) -> Paths:
    """M walks for each row, drawn with `uniforms_HBM` (float64 in [0, 1)), and the own paths of its positive leaves.

    A node without a live leaf (`live[level]`, as `Tree.live_counts`) is never drawn. A walk that meets a positive
    goes on below it; who uses the draws drops those equal to a positive and renormalises by `1 - q_positive`.
    `score` must be that of the current parameters in evaluation mode, or q is not the stated one.
    Raises `InputError` on shapes that do not fit, uniforms outside [0, 1), positives without a live leaf, NaN scores.
    """
    num_rows, num_paths, num_positives = check_arrays(shape, live, uniforms_HBM, positives_BT)
    # Positives are further walks with given steps.
    walks = num_paths + num_positives
    at = np.zeros((num_rows, walks), np.int64)
    log_q = np.zeros((num_rows, walks))
    kept, scored = [], 0
    for level in range(1, shape.depth + 1):
        fanout = shape.fanout(level)
        values, alive, parent = scored_children(score, shape, live[level], level, at)
        scored += values.shape[1] * fanout
        # A dead node, of which all children are, is never visited.
        log_p = log_softmax(np.where(alive, values, -np.inf))
        log_p = np.take_along_axis(log_p, parent[:, :, None], axis=1)
        step = np.empty((num_rows, walks), np.int64)
        step[:, :num_paths] = drawn_children(log_p[:, :num_paths], uniforms_HBM[level - 1])
        step[:, num_paths:] = shape.ancestors(positives_BT, level) % fanout
        at = at * fanout + step
        log_q = log_q + np.take_along_axis(log_p, step[:, :, None], axis=2)[:, :, 0]
        own = np.take_along_axis(values.reshape(num_rows, -1), parent * fanout + step, axis=1)
        kept.append((at, log_q, own))
    nodes, all_log_q, scores = (np.stack(parts) for parts in zip(*kept, strict=True))
    log_q32, scores32 = all_log_q.astype(np.float32), scores.astype(np.float32)
    return Paths(
        nodes[:, :, :num_paths],
        log_q32[:, :, :num_paths],
        scores32[:, :, :num_paths],
        log_q32[:, :, num_paths:],
        scores32[:, :, num_paths:],
        scored,
    )


def scored_children(
    score: ScoreNodes, shape: Shape, live: NDArray[np.int32], level: int, at: NDArray[np.int64]
) -> tuple[FloatArray, BoolArray, NDArray[np.int64]]:
    """Scores [B, U, F] of the children on `level` of the nodes at which the walks stand, `at` int64[B, M + T].

    With them bool[B, U, F], which have a live leaf, and int64[B, M + T], the place of each walk's node among the U. All
    nodes of the level above are taken where scoring these is no more than scoring the children of each walk.
    """
    fanout = shape.fanout(level)
    num_rows, walks = at.shape
    if shape.level_size(level) <= fanout * walks:
        parent, values = at, values_of(score, level, None, (num_rows, shape.level_size(level)))
        alive = np.broadcast_to(live > 0, values.shape)
    else:
        distinct, parent = distinct_nodes(at)
        children = (distinct[:, :, None] * fanout + np.arange(fanout)).reshape(num_rows, -1)
        values, alive = values_of(score, level, children, children.shape), live[children] > 0
    triple = (num_rows, -1, fanout)
    return values.reshape(triple), alive.reshape(triple), parent


def check_arrays(
    shape: Shape, live: tuple[NDArray[np.int32], ...], uniforms_HBM: FloatArray, positives_BT: IndexArray
) -> tuple[int, int, int]:
    """B, M and T, or `InputError` naming the argument that does not fit."""
    if uniforms_HBM.ndim != 3 or uniforms_HBM.shape[0] != shape.depth or uniforms_HBM.shape[2] < 1:
        raise InputError(
            f"uniforms_HBM has shape {uniforms_HBM.shape}; expected ({shape.depth}, rows, 1 or more paths)"
        )
    if uniforms_HBM.size and not (uniforms_HBM.min() >= 0 and uniforms_HBM.max() < 1):
        raise InputError("uniforms_HBM must lie in [0, 1)")
    if positives_BT.ndim != 2 or len(positives_BT) != uniforms_HBM.shape[1]:
        raise InputError(f"positives_BT has shape {positives_BT.shape}; expected ({uniforms_HBM.shape[1]}, positives)")
    if [len(counts) for counts in live] != [shape.level_size(level) for level in range(shape.depth + 1)]:
        raise InputError("live does not fit the shape; use Tree.live_counts")
    inside = (positives_BT >= 0) & (positives_BT < shape.capacity)
    if not inside.all() or not (live[shape.depth][positives_BT] > 0).all():
        raise InputError("positives_BT holds a leaf without an item; positives must be live leaves of the tree")
    return uniforms_HBM.shape[1], uniforms_HBM.shape[2], positives_BT.shape[1]


def values_of(
    score: ScoreNodes, level: int, nodes: NDArray[np.int64] | None, expected: tuple[int, int]
) -> NDArray[np.float64]:
    """Scores in float64, or `InputError` on another shape or NaN."""
    values = np.asarray(score(level, nodes), np.float64)
    if values.shape != expected:
        raise InputError(f"score returned shape {values.shape} on level {level}; expected {expected}")
    if np.isnan(values).any():
        raise InputError(f"score returned NaN on level {level}; the model is not sound")
    return values


def distinct_nodes(at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct entries of each row, ascending, the last one repeated as padding, and where each entry is there."""
    order = np.argsort(at, axis=1, kind="stable")
    ordered = np.take_along_axis(at, order, axis=1)
    new = np.diff(ordered, axis=1, prepend=-1) != 0
    rank = np.cumsum(new, axis=1) - 1
    distinct = np.repeat(ordered[:, -1:], rank[:, -1].max() + 1, axis=1)
    rows = np.broadcast_to(np.arange(len(at))[:, None], at.shape)
    distinct[rows[new], rank[new]] = ordered[new]
    position = np.empty_like(at)
    np.put_along_axis(position, order, rank, axis=1)
    return distinct, position


def drawn_children(log_p: FloatArray, uniforms: FloatArray) -> NDArray[np.int64]:
    """The child whose interval of the cumulated probabilities holds the uniform; never one of probability 0."""
    cumulated = np.cumsum(np.exp(log_p), axis=-1)
    # Scaled by the last sum, not by 1, and kept below it, so that rounding never falls past the last child drawn.
    last = cumulated[..., -1]
    threshold = np.minimum(uniforms * last, np.nextafter(last, 0))
    step: NDArray[np.int64] = (cumulated <= threshold[..., None]).sum(axis=-1)
    return step
