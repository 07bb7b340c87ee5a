"""The probability that a model gives to the tail: mean over tail items minus mean over all, for each query.

Shape legend: Q queries, B queries of a block, N items.

Source: LPO4Rec, figure 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.evaluation.probabilities import made_by, probabilities
from beamwood.types import BoolArray, Query, Searcher

__all__ = ["TailGap", "tail_gap"]

# Bins of the histogram, and the relative range below which these would have no distinct edges.
_BINS, _NARROWEST = 40, 1e-9


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
            low, high = low - 0.5, high + 0.5
        return np.histogram(self.gaps, bins=_BINS, range=(low, high))


def tail_gap(searcher: Searcher, query: Query, tail_N: BoolArray) -> TailGap:
    """The gap of each row, all items scored: by softmax, or where scores are counts by scores over their sum.

    Memory does not depend on the number of rows. Errors: no row, a tail of another catalogue, no tail item, or nothing
    but tail.
    """
    num_items = searcher.num_items
    if len(query) == 0 or len(tail_N) != num_items:
        raise InputError(
            f"{len(query)} queries, and a tail among {len(tail_N)} of {num_items} items; give queries, and a truth "
            "value for each item"
        )
    num_rare = int(tail_N.sum())
    if not 0 < num_rare < num_items:
        fix = "raise" if num_rare == 0 else "lower"
        raise InputError(f"the tail has {num_rare} of {num_items} items, so there is no gap to others; {fix} --tail")
    parts = [np.empty(0)]
    for likely_BN in probabilities(searcher, query):
        totals = likely_BN.sum(axis=1)
        # A row without scores has a gap of 0.
        parts.append(likely_BN[:, tail_N].sum(axis=1) / num_rare * num_items - (totals > 0))
    return TailGap(np.concatenate(parts), made_by(searcher))
