"""Links: the meaning of a node's score, shared by losses, searches and diagnostics.

Shape legend: B rows, n nodes of a level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from beamwood.types import FloatArray

__all__ = ["LINKS", "Link", "log_softmax"]


def log_softmax(scores: FloatArray) -> FloatArray:
    """[.., n] log softmax over the last axis; -inf where the score is, also in a row of -inf alone."""
    top = scores.max(axis=-1, keepdims=True)
    shifted = scores - np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    result: FloatArray = shifted - np.where(np.isfinite(log_sum), log_sum, 0)
    return result


def log_sigmoids(scores_Bn: FloatArray) -> FloatArray:
    """[B, n] log sigmoid of each score."""
    result: FloatArray = -np.logaddexp(0, -scores_Bn)
    return result


def identity(scores_Bn: FloatArray) -> FloatArray:
    """[B, n] scores that are log-probabilities already."""
    return scores_Bn


@dataclass(frozen=True, slots=True)
class Link:
    """The meaning of a node's score.

    `probability` in words, None where scores only order; `log_probabilities` [B, n] of a level's scores, -inf for nodes
    without items. `sum_to_one`: probabilities sum to 1 over a level, as needed to draw walks from the root.
    `independent`: each node is classified by itself, so the offset of a level's scores matters. `along_path`: a leaf's
    score is a sum of log sigmoid over the nodes of its path. `unit`: of a difference of two scores.
    """

    name: str
    probability: str | None
    log_probabilities: Callable[[FloatArray], FloatArray] | None = None
    sum_to_one: bool = False
    independent: bool = False
    along_path: bool = False
    unit: str = "logits"


LINKS = {
    link.name: link
    for link in (
        Link("softmax", "softmax of the level", log_softmax, sum_to_one=True),
        Link("sigmoid", "sigmoid of the node", log_sigmoids, independent=True),
        Link("path", "product along the path", identity, independent=True, along_path=True, unit="nats"),
        Link("order", None),
    )
}
"""A saved folder names one of these."""
