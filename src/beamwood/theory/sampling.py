"""Sampling distributions over tree nodes and in a batch, and their distance from the softmax that they approximate.

Shape legend: B rows, n nodes of a level, N items, C items of a batch. A "level list" has one array [B, n] a level,
level 1 first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from beamwood.errors import InputError
from beamwood.kernels.links import log_softmax
from beamwood.tree import Shape
from beamwood.types import FloatArray, IndexArray

__all__ = [
    "kl_divergence",
    "largest_child_share",
    "path_bias_bound",
    "path_kl_bound",
    "path_log_q",
    "resampling_bias_bound",
]


def path_log_q(shape: Shape, scores: Sequence[FloatArray]) -> list[FloatArray]:
    """Level list of log q: the product of softmaxes over siblings along the path, which sums to 1 on every level.

    `scores`: level list of the scores o, -inf for a node without items. Where exp(o) of each parent is proportional
    to the sum over its children, q is the softmax of the level. Source: DTR, equations 22-23, proposition 4, theorem 3.
    Errors: arrays that do not fit the shape.
    """
    rows = len(scores[0]) if len(scores) else 0
    sizes = [(rows, shape.level_size(level)) for level in range(1, shape.depth + 1)]
    if [level.shape for level in scores] != sizes[: len(scores)]:
        raise InputError(
            "the arrays of scores do not fit the tree's shape; give one array [rows, nodes] a level, level 1 first"
        )
    result: list[FloatArray] = []
    for values in scores:
        parents = result[-1] if result else np.zeros((len(values), 1))
        families = values.astype(float).reshape(len(values), parents.shape[1], -1)
        result.append((parents[:, :, None] + log_softmax(families)).reshape(len(values), -1))
    return result


def largest_child_share(scores: Sequence[FloatArray]) -> list[FloatArray]:
    """Level list of lambda: the share of its largest child in the sum of exp(o) over a node's children.

    It is 1 for a node with one child that holds items, close to 1 where one child dominates, and nan below a node
    without items. The last level has no children and no entry. Source: DTR, equation 27. Errors: levels that do not
    fit each other.
    """
    result: list[FloatArray] = []
    for parents, values in pairwise(scores):
        if parents.ndim != 2 or values.shape[:1] != parents.shape[:1] or values.size % max(1, parents.size):
            raise InputError(
                f"scores of shapes {parents.shape} and {values.shape} are not levels of one tree; give one array "
                "[rows, nodes] a level, level 1 first"
            )
        families = values.astype(float).reshape(*parents.shape, -1)
        top = families.max(axis=2, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            result.append(1 / np.exp(families - top).sum(axis=2))
    return result


def path_bias_bound(epsilon: float, level: int) -> float:
    """An upper bound of the difference between q of a node and the level's softmax: (j - 1) epsilon / (1 - epsilon).

    Level j counts from 1, the first below the root. It requires exp(o) of each parent to be proportional to the largest
    of its children, and every `largest_child_share` above the level to exceed 1 - epsilon. Source: DTR, proposition 5,
    equation 28. Errors: `epsilon` outside [0, 1), a level below 1.
    """
    if not 0 <= epsilon < 1 or level < 1:
        raise InputError(f"epsilon={epsilon} must be in [0, 1) and level={level} at least 1")
    return (level - 1) * epsilon / (1 - epsilon)


def path_kl_bound(epsilon: float, level: int, num_nodes: int, largest: float) -> float:
    """An upper bound of KL(q || softmax) of a level in nats under the conditions of `path_bias_bound`.

    log(1 + bias n exp(2 B)) for n nodes whose scores are at most B in magnitude. Source: DTR, corollary 1, equation 29.
    Errors: as there, no node, `largest` below 0.
    """
    if num_nodes < 1 or not largest >= 0:
        raise InputError(f"num_nodes={num_nodes} must be at least 1 and largest={largest} at least 0")
    bias = path_bias_bound(epsilon, level)
    if bias == 0:
        return 0.0
    # log(1 + e^x) for any x
    return float(np.logaddexp(0.0, np.log(bias) + np.log(num_nodes) + 2 * largest))


def kl_divergence(log_p_Bn: FloatArray, log_q_Bn: FloatArray) -> FloatArray:
    """[B] sum of p (log p - log q) in nats; inf where q is 0 and p is not. Errors: arrays of different shapes."""
    if log_p_Bn.shape != log_q_Bn.shape or log_p_Bn.ndim != 2:
        raise InputError(f"log p has shape {log_p_Bn.shape} and log q {log_q_Bn.shape}; give two arrays [rows, nodes]")
    p = np.exp(log_p_Bn)
    with np.errstate(invalid="ignore"):
        terms = np.where(p > 0, p * (log_p_Bn - log_q_Bn), 0.0)
    result: FloatArray = terms.sum(axis=1)
    return result


def resampling_bias_bound(
    scores_N: FloatArray, popularity_N: FloatArray, batch_C: IndexArray, num_draws: int
) -> FloatArray:
    """[N]: how far the mean gradient by a user's scores may exceed that of the full softmax, for BIR's weighted form.

        e^s (Z_Bp sum_B e^s p - Z_B^2) / (m Z^3) + 2 max_B |p - p'| Z_Bp Z_B / (m (Z^2 + Z_Bp sum_B e^s p))

    Z and Z_B are the sums of e^s over catalogue and batch, Z_Bp is that of e^s / p over the batch, m the draws. What
    falls faster than 1 / m is left out. `batch_C`: the items that are drawn from, without the positive; the theorem
    takes their sum for that of the catalogue's other items. Source: XIR, theorem 3.2, where the gradient of a score by
    itself is 1. Errors: an empty batch or no draw, items outside the catalogue, or one of the batch with popularity 0.
    """
    if len(batch_C) == 0 or num_draws < 1:
        raise InputError(f"a batch of {len(batch_C)} items and {num_draws} draws; give 1 or more of both")
    if scores_N.shape != popularity_N.shape or np.min(batch_C) < 0 or np.max(batch_C) >= len(scores_N):
        raise InputError(
            f"{len(scores_N)} scores, {len(popularity_N)} popularities, and a batch of items {np.min(batch_C)} to "
            f"{np.max(batch_C)}; give one of both for each item, and items among them"
        )
    if not (popularity_N[batch_C] > 0).all():
        raise InputError("an item of the batch has popularity 0, so it is never drawn; give each a share above 0")
    top = scores_N.max()
    e_N = np.exp(scores_N.astype(float) - top)
    e_C, p_C = e_N[batch_C], popularity_N[batch_C]
    z, z_b, z_bp, weighted = e_N.sum(), e_C.sum(), (e_C / p_C).sum(), (e_C * p_C).sum()
    of_variance = e_N * (weighted * z_bp - z_b**2) / (num_draws * z**3)
    of_gap = 2 * (p_C.max() - p_C.min()) * z_bp * z_b / (num_draws * (z**2 + weighted * z_bp))
    result: FloatArray = of_variance + of_gap
    return result
