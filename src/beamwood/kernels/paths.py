"""Tree-based sampling: negatives of every level by walks from the root, with the exact probability of each.

Shape legend: B rows, M paths a row, T targets a row, H levels, U distinct nodes, F children of a node.

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

    `nodes` int64[H, B, M]; `log_q` float32[H, B, M]. `log_q_targets` float32[H, B, T]: that of the targets' ancestors.
    """

    nodes: NDArray[np.int64]
    log_q: NDArray[np.float32]
    log_q_targets: NDArray[np.float32]


def sample_paths(
    score: ScoreNodes,
    shape: Shape,
    live: tuple[NDArray[np.int32], ...],
    uniforms_HBM: FloatArray,
    targets_BT: IndexArray,
) -> Paths:
    """M walks for each row, drawn with `uniforms_HBM` (float64 in [0, 1)), and the own paths of its target leaves.

    A node without a live leaf (`live[level]`, as `Tree.live_counts`) is never drawn. A walk that meets a target
    goes on below it; who uses the draws drops those equal to a target and renormalises by `1 - q_target`.
    `score` must be that of the current parameters in evaluation mode, or q is not the stated one.
    Raises `InputError` on shapes that do not fit, uniforms outside [0, 1), targets without a live leaf, NaN scores.
    """
    num_rows, num_paths, num_targets = check_arrays(shape, live, uniforms_HBM, targets_BT)
    # Targets are further walks with given steps.
    walks = num_paths + num_targets
    at = np.zeros((num_rows, walks), np.int64)
    log_q = np.zeros((num_rows, walks))
    kept = []
    for level in range(1, shape.depth + 1):
        fanout = shape.fanout(level)
        values, alive, parent = scored_children(score, shape, live[level], level, at)
        # A dead node, of which all children are, is never visited.
        log_p = log_softmax(np.where(alive, values, -np.inf))
        log_p = np.take_along_axis(log_p, parent[:, :, None], axis=1)
        step = np.empty((num_rows, walks), np.int64)
        step[:, :num_paths] = drawn_children(log_p[:, :num_paths], uniforms_HBM[level - 1])
        step[:, num_paths:] = shape.ancestors(targets_BT, level) % fanout
        at = at * fanout + step
        log_q = log_q + np.take_along_axis(log_p, step[:, :, None], axis=2)[:, :, 0]
        kept.append((at, log_q))
    nodes, all_log_q = (np.stack(parts) for parts in zip(*kept, strict=True))
    log_q32 = all_log_q.astype(np.float32)
    return Paths(nodes[:, :, :num_paths], log_q32[:, :, :num_paths], log_q32[:, :, num_paths:])


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
    shape: Shape, live: tuple[NDArray[np.int32], ...], uniforms_HBM: FloatArray, targets_BT: IndexArray
) -> tuple[int, int, int]:
    """B, M and T, or `InputError` naming the argument that does not fit."""
    if uniforms_HBM.ndim != 3 or uniforms_HBM.shape[0] != shape.depth or uniforms_HBM.shape[2] < 1:
        raise InputError(
            f"uniforms_HBM has shape {uniforms_HBM.shape}; expected ({shape.depth}, rows, 1 or more paths)"
        )
    if uniforms_HBM.size and not (uniforms_HBM.min() >= 0 and uniforms_HBM.max() < 1):
        raise InputError("uniforms_HBM must lie in [0, 1)")
    if targets_BT.ndim != 2 or len(targets_BT) != uniforms_HBM.shape[1]:
        raise InputError(f"targets_BT has shape {targets_BT.shape}; expected ({uniforms_HBM.shape[1]}, targets)")
    if [len(counts) for counts in live] != [shape.level_size(level) for level in range(shape.depth + 1)]:
        raise InputError("live does not fit the shape; use Tree.live_counts")
    inside = (targets_BT >= 0) & (targets_BT < shape.capacity)
    if not inside.all() or not (live[shape.depth][targets_BT] > 0).all():
        raise InputError("targets_BT holds a leaf without an item; targets must be live leaves of the tree")
    return uniforms_HBM.shape[1], uniforms_HBM.shape[2], targets_BT.shape[1]


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
