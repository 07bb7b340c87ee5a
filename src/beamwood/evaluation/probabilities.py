"""The probabilities of items that a searcher's scores stand for.

Shape legend: B queries of a block, N items.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks
from beamwood.types import Query, Searcher

__all__ = ["made_by", "probabilities"]

# Scores held at a time (32 MiB).
_BLOCK_CELLS = 2**22
# Searchers whose scores are sums of counts; all others' are logits.
_COUNTING = ("popularity", "neighbours")


def made_by(searcher: Searcher) -> str:
    """How `probabilities` are derived from a searcher's scores, in words."""
    return "scores over their sum" if searcher.kind in _COUNTING else "softmax of the scores"


def probabilities(searcher: Searcher, query: Query) -> Iterator[NDArray[np.float64]]:
    """float64[B, N], block by block of the query's rows: the probability of each item; 0 for a row without scores."""
    num_items = searcher.num_items
    for rows in blocks(len(query), _BLOCK_CELLS // num_items):
        every = np.broadcast_to(np.arange(num_items), (len(rows), num_items))
        scores = searcher.score(query.take(rows), every).astype(np.float64)
        if searcher.kind in _COUNTING:
            # Filler scores, which only order items without a score, are negative.
            scores = np.maximum(scores, 0)
        else:
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        totals = scores.sum(axis=1, keepdims=True)
        yield np.divide(scores, totals, out=np.zeros_like(scores), where=totals > 0)
