"""The DIN scorer and its search in numpy: the reference for every faster implementation.

Shape legend: B rows, M nodes a row, L history length, D width, A attention hidden width, T windows, K results.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.kernels.arrays import sound
from beamwood.kernels.din import DinWeights, Layer
from beamwood.kernels.terms import TermQuery
from beamwood.tree.tree import Shape
from beamwood.types import FloatArray, IndexArray

__all__ = [
    "ExcludedLeaves",
    "LiveCounts",
    "SearchResult",
    "banned_row",
    "beam_search",
    "exact_search",
    "score_given",
    "score_level",
    "score_level_plain",
]

Float32 = NDArray[np.float32]
LiveCounts = tuple[NDArray[np.int32], ...]
"""How many leaves that may be returned lie below each node: int32[nodes of the level], by level."""
ExcludedLeaves = tuple[NDArray[np.int64], NDArray[np.int32]]
"""The leaves that each row must not return: indptr int64[B + 1], and leaves int32, sorted within a row."""


class SearchResult(NamedTuple):
    """`leaves` int32[B, K] best first, -1 where there is none; `scores` float32[B, K]; `scored` int64[B]."""

    leaves: NDArray[np.int32]
    scores: Float32
    scored: NDArray[np.int64]


def act(layer: Layer, x: FloatArray) -> FloatArray:
    """PReLU with the layer's slopes, on the last axis."""
    return np.where(x > 0, x, x * layer.slope.astype(x.dtype, copy=False))


def dense(layer: Layer, x: FloatArray) -> FloatArray:
    """`act(weight x + bias)` on the last axis, in the precision of x."""
    weight, bias = layer.weight.astype(x.dtype, copy=False), layer.bias.astype(x.dtype, copy=False)
    return act(layer, x @ weight.T + bias)


def score_level_plain(
    weights: DinWeights, shape: Shape, level: int, leaves_BL: IndexArray, nodes_BM: IndexArray
) -> FloatArray:
    """Scores [B, M] literally by the equations: every pair's `[a; a * w; w]` is built.

    In float64, and slow. `leaves_BL` of the history, `nodes_BM` of the level; -1 absent.
    """
    table, offset = weights.nodes.astype(np.float64), shape.level_offset(level)
    history_BL = shape.ancestors(leaves_BL, level)
    a = table[offset + np.maximum(history_BL, 0)][:, None, :, :]
    w = table[offset + np.maximum(nodes_BM, 0)][:, :, None, :]
    a, w = np.broadcast_arrays(a, w)
    pair = np.concatenate([a, a * w, w], axis=-1)
    weight_BML = dense(weights.attention_out, dense(weights.attention_in, pair))[..., 0]
    weight_BML = np.where((history_BL >= 0)[:, None, :], weight_BML, 0)
    bounds = np.concatenate([[0], np.cumsum(weights.windows)])
    z = [
        np.einsum("bml,bmld->bmd", weight_BML[:, :, start:stop], a[:, :, start:stop])
        for start, stop in itertools.pairwise(bounds)
    ]
    x = np.concatenate([*z, w[:, :, 0]], axis=-1)
    for layer in weights.layers:
        x = dense(layer, x)
    scores = x[..., 0] + added_by_terms(weights, shape, level, leaves_BL, np.maximum(nodes_BM, 0), np.float64)
    return np.where(nodes_BM >= 0, scores, -np.inf)


def added_by_terms(
    weights: DinWeights, shape: Shape, level: int, leaves_BL: IndexArray, nodes_BM: IndexArray, dtype: Any = np.float32
) -> FloatArray:
    """[B, M], the sum of the scorer's terms."""
    query, added = TermQuery(shape, level, leaves_BL, nodes_BM), np.zeros(nodes_BM.shape, dtype)
    for part in weights.terms.values():
        if level == shape.depth or not part.term.leaves_only:
            added = added + part.of_type(dtype).score(query)
    return added


def score_nodes(weights: DinWeights, offset: int, history_L: IndexArray, nodes_M: IndexArray) -> Float32:
    """Scores float32[M] of one user's nodes by the network alone, the user folded into one matrix: one GEMM a user.

    `attention_in [a; a*w; w] = (W_p diag(a) + W_w) w + W_a a`, and windows are summed before the MLP.
    """
    width, hidden = weights.width, len(weights.attention_in.bias)
    present = np.flatnonzero(history_L >= 0)
    w_MD = weights.nodes[offset + nodes_M]
    z_MTD = np.zeros((len(nodes_M), len(weights.windows), width), np.float32)
    if len(present):
        a_LD = weights.nodes[offset + history_L[present]]
        w_a, w_p, w_w = np.split(weights.attention_in.weight, 3, axis=1)
        folded = w_p[None] * a_LD[:, None, :] + w_w[None]
        constant = a_LD @ w_a.T + weights.attention_in.bias
        hidden_MLA = (w_MD @ folded.reshape(-1, width).T).reshape(len(nodes_M), len(present), hidden) + constant
        weight_ML = dense(weights.attention_out, act(weights.attention_in, hidden_MLA))[..., 0]
        window = np.repeat(np.arange(len(weights.windows)), weights.windows)[present]
        starts = np.flatnonzero(np.diff(window, prepend=-1))
        for start, stop in zip(starts, [*starts[1:], len(window)], strict=True):
            z_MTD[:, window[start]] = weight_ML[:, start:stop] @ a_LD[start:stop]
    x: FloatArray = np.concatenate([z_MTD.reshape(len(nodes_M), len(weights.windows) * width), w_MD], axis=1)
    for layer in weights.layers:
        x = dense(layer, x)
    scores: Float32 = x[:, 0].astype(np.float32, copy=False)
    return scores


def score_level(weights: DinWeights, shape: Shape, level: int, leaves_L: IndexArray, nodes_M: IndexArray) -> Float32:
    """Scores float32[M] of nodes of a level for a history given as leaves, including terms."""
    scores = score_nodes(weights, shape.level_offset(level), shape.ancestors(leaves_L, level), nodes_M)
    if len(nodes_M) and weights.terms:
        scores = scores + added_by_terms(weights, shape, level, leaves_L[None], nodes_M[None])[0]
    return sound(scores)


def banned_row(excluded: ExcludedLeaves | None, row: int) -> NDArray[np.int32]:
    """The leaves that a row must not return, sorted; `excluded` as `beam_search` takes it."""
    return np.empty(0, np.int32) if excluded is None else excluded[1][excluded[0][row] : excluded[0][row + 1]]


def beam_search(
    weights: DinWeights,
    shape: Shape,
    history_BL: IndexArray,
    *,
    beam_width: int,
    k: int,
    live: LiveCounts,
    excluded: ExcludedLeaves | None = None,
    by_path: bool = False,
) -> SearchResult:
    """Layer-wise beam search for each row (DTR, algorithm 1, equations 6-7).

    `history_BL` leaves of the history, oldest first, -1 padding. `live[j]` int32[nodes of level j]: how many leaves
    that may be returned lie below each node; a node with none is never opened. `excluded` (indptr int64[B + 1],
    leaves int32, sorted within a row): live leaves that this row must not return. A level with at most `beam_width`
    open nodes is not scored, except the last. k <= beam_width. `by_path`: a node's score is the sum of log sigmoid
    over the path to it, and every level is scored. The last level of `live` ends the search.
    """
    leaves = np.full((len(history_BL), k), -1, np.int32)
    scores = np.full((len(history_BL), k), -np.inf, np.float32)
    scored = np.zeros(len(history_BL), np.int64)
    last = len(live) - 1
    for row, history_L in enumerate(history_BL):
        banned = banned_row(excluded, row)
        nodes: IndexArray = np.zeros(1, np.int64)
        sums = np.zeros(1, np.float32)
        for level in range(1, last + 1):
            parents, nodes = nodes, open_children(shape, level, nodes, live[level], banned)
            if level < last and len(nodes) <= beam_width and not by_path:
                continue
            values = score_level(weights, shape, level, history_L, nodes)
            scored[row] += len(nodes)
            if by_path:
                fanout = shape.fanout(level)
                values = sums[np.searchsorted(parents, nodes // fanout)] + log_sigmoid(values)
            best = best_first(values, nodes, k if level == last else beam_width)
            nodes, values = nodes[best], values[best]
            if level == last:
                leaves[row, : len(nodes)], scores[row, : len(nodes)] = nodes, values
            else:
                order = np.argsort(nodes)
                nodes, sums = nodes[order], values[order]
    return SearchResult(leaves, scores, scored)


def score_given(
    weights: DinWeights,
    shape: Shape,
    level: int,
    history_BL: IndexArray,
    nodes_BM: IndexArray,
    *,
    by_path: bool = False,
) -> Float32:
    """Scores float32[B, M] of given nodes of a level, or of the paths to them; -inf where a node is -1."""
    scores = np.full(nodes_BM.shape, -np.inf, np.float32)
    for row, nodes_M in enumerate(nodes_BM):
        given = np.flatnonzero(nodes_M >= 0)
        total = np.zeros(len(given), np.float32)
        for above in range(1 if by_path else level, level + 1):
            nodes = nodes_M[given] // (shape.leaves_below(above) // shape.leaves_below(level))
            values = score_level(weights, shape, above, history_BL[row], nodes)
            total = total + log_sigmoid(values) if by_path else values
        scores[row, given] = total
    return scores


def log_sigmoid(values: FloatArray) -> Float32:
    """`log(1 / (1 + exp(-x)))` in float32."""
    x = values.astype(np.float32)
    result: Float32 = np.minimum(x, np.float32(0)) - np.log1p(np.exp(-np.abs(x)))
    return result


def exact_search(
    weights: DinWeights,
    shape: Shape,
    history_BL: IndexArray,
    k: int,
    *,
    live: LiveCounts,
    excluded: ExcludedLeaves | None = None,
) -> SearchResult:
    """The k best of all live leaves, each scored, for each row; arguments as for `beam_search`."""
    leaves = np.full((len(history_BL), k), -1, np.int32)
    scores = np.full((len(history_BL), k), -np.inf, np.float32)
    scored = np.zeros(len(history_BL), np.int64)
    everywhere = np.flatnonzero(live[shape.depth] > 0)
    for row, history_L in enumerate(history_BL):
        candidates = np.setdiff1d(everywhere, banned_row(excluded, row), assume_unique=True)
        # Blocks of this many leaves bound the memory, a few hundred MiB at the widest scorers.
        parts = [
            score_level(weights, shape, shape.depth, history_L, candidates[part])
            for part in slices(len(candidates), 8192)
        ]
        values = np.concatenate([np.empty(0, np.float32), *parts])
        best = best_first(values, candidates, k)
        leaves[row, : len(best)], scores[row, : len(best)] = candidates[best], values[best]
        scored[row] = len(candidates)
    return SearchResult(leaves, scores, scored)


def open_children(
    shape: Shape, level: int, parents: IndexArray, live: NDArray[np.int32], banned: NDArray[np.int32]
) -> NDArray[np.int64]:
    """The children on `level` of the parents with an allowed leaf below them, ascending."""
    fanout = shape.fanout(level)
    nodes: NDArray[np.int64] = (parents[:, None] * fanout + np.arange(fanout)).ravel()
    counts = live[nodes]
    if len(banned):
        below = shape.leaves_below(level)
        counts = counts - (np.searchsorted(banned, (nodes + 1) * below) - np.searchsorted(banned, nodes * below))
    open_nodes: NDArray[np.int64] = nodes[counts > 0]
    return open_nodes


def best_first(values: FloatArray, nodes: IndexArray, k: int) -> NDArray[np.int64]:
    """Positions of the k largest values, ties by node ascending."""
    if len(values) > k:
        threshold = np.partition(values, len(values) - k)[len(values) - k]
        kept = np.flatnonzero(values >= threshold)
    else:
        kept = np.arange(len(values))
    order = np.lexsort((nodes[kept], -values[kept]))
    return kept[order[:k]]
