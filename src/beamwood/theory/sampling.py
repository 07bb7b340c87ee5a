"""Sampling distributions over tree nodes, and how far they are from the softmax that they stand in for.

Shape legend: B rows, n nodes of a level. A "level list" has one array [B, n] a level, level 1 first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from beamwood.errors import InputError
from beamwood.tree import Shape
from beamwood.types import FloatArray

__all__ = ["kl_divergence", "level_log_softmax", "path_log_q"]


def level_log_softmax(scores_Bn: FloatArray) -> FloatArray:
    """[B, n] log softmax over a level; -inf where the score is."""
    top = scores_Bn.max(axis=1, keepdims=True)
    result: FloatArray = scores_Bn - top - np.log(np.exp(scores_Bn - top).sum(axis=1, keepdims=True))
    return result


def path_log_q(shape: Shape, scores: Sequence[FloatArray]) -> list[FloatArray]:
    """Level list of log q: the product of softmaxes over siblings along the path, which sums to 1 on every level.

    `scores`: level list of the scores o, -inf for a node without items. Where exp(o) of each parent is proportional
    to the sum over its children, q is the softmax of the level. Source: DTR, equations 22-23, proposition 4, theorem 3.
    """
    if [level.shape[1] for level in scores] != [shape.level_size(level) for level in range(1, shape.depth + 1)][
        : len(scores)
    ]:
        raise InputError("scores does not fit the shape; give one array [rows, nodes] a level, level 1 first")
    result: list[FloatArray] = []
    for values in scores:
        parents = result[-1] if result else np.zeros((len(values), 1))
        families = values.astype(float).reshape(len(values), parents.shape[1], -1)
        top = families.max(axis=2, keepdims=True)
        shifted = families - np.where(np.isfinite(top), top, 0)
        with np.errstate(divide="ignore"):
            log_sum = np.log(np.exp(shifted).sum(axis=2, keepdims=True))
        log_p = shifted - np.where(np.isfinite(log_sum), log_sum, 0)
        result.append((parents[:, :, None] + log_p).reshape(len(values), -1))
    return result


def kl_divergence(log_p_Bn: FloatArray, log_q_Bn: FloatArray) -> FloatArray:
    """[B] sum of p (log p - log q) in nats; inf where q is 0 and p is not."""
    p = np.exp(log_p_Bn)
    with np.errstate(invalid="ignore"):
        terms = np.where(p > 0, p * (log_p_Bn - log_q_Bn), 0.0)
    result: FloatArray = terms.sum(axis=1)
    return result
