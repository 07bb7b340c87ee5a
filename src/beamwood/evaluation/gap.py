"""The probability that a model gives to the tail: mean over tail items minus mean over all, for each query.

Shape legend: Q queries, B queries of a batch, N items.

Source: LPO4Rec, figure 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks
from beamwood.errors import InputError
from beamwood.types import BoolArray, Query, Searcher

__all__ = ["TailGap", "made_by", "probabilities", "tail_gap"]

_BLOCK_CELLS = 2**22
_BINS = 40
_NARROWEST = 1e-9
# Searchers whose scores are sums of counts; all others' are logits.
_COUNTING = ("popularity", "neighbours")


@dataclass(frozen=True, slots=True)
class TailGap:
    """`gaps` float64[Q] in units of 1 / N: 0 is that of a uniform choice, -1 no probability at all.

    `made_by`: how probabilities were derived from scores.
    """

    gaps: NDArray[np.float64]
    made_by: str

    def as_dict(self) -> dict[str, Any]:
        """Quantiles and a histogram, as JSON can hold them."""
        counts, edges = self._histogram()
        quantiles = np.quantile(self.gaps, [0.05, 0.25, 0.5, 0.75, 0.95])
        return {
            "unit": "1 / number of items",
            "probabilities": self.made_by,
            "queries": len(self.gaps),
            "mean": float(self.gaps.mean()),
            "quantiles": dict(zip(("5%", "25%", "50%", "75%", "95%"), quantiles.tolist(), strict=True)),
            "histogram": {"edges": edges.tolist(), "counts": counts.tolist()},
        }

    def _histogram(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        low, high = float(self.gaps.min()), float(self.gaps.max())
        if high - low < _NARROWEST * max(1.0, abs(low), abs(high)):
            # Too narrow for bins with distinct edges.
            low, high = low - 0.5, high + 0.5
        return np.histogram(self.gaps, bins=_BINS, range=(low, high))


def tail_gap(searcher: Searcher, query: Query, tail_N: BoolArray) -> TailGap:
    """The gap of each row, all items scored: by softmax, or where scores are counts by scores over their sum.

    Memory does not depend on the number of rows. Errors: no tail item, or nothing but tail.
    """
    num_items = len(tail_N)
    num_rare = int(tail_N.sum())
    if not 0 < num_rare < num_items:
        fix = "raise" if num_rare == 0 else "lower"
        raise InputError(f"the tail has {num_rare} of {num_items} items, so there is no gap to others; {fix} --tail")
    parts = [np.empty(0)]
    for likely_BN in probabilities(searcher, query, num_items):
        totals = likely_BN.sum(axis=1)
        # A row without scores is left out of the gap.
        parts.append(likely_BN[:, tail_N].sum(axis=1) / num_rare * num_items - (totals > 0))
    return TailGap(np.concatenate(parts), made_by(searcher))


def made_by(searcher: Searcher) -> str:
    """How `probabilities` are derived from a searcher's scores, in words."""
    return "scores over their sum" if searcher.kind in _COUNTING else "softmax of the scores"


def probabilities(searcher: Searcher, query: Query, num_items: int) -> Iterator[NDArray[np.float64]]:
    """float64[B, N], block by block of the query's rows: the probability of each item; 0 for a row without scores."""
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
