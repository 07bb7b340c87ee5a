"""Calibration: predicted probabilities of items, compared with the frequency at which they are targets.

Shape legend: B queries of a block, N items.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from beamwood.errors import InputError
from beamwood.evaluation.probabilities import made_by, probabilities
from beamwood.types import ItemLists, Query, Searcher

__all__ = ["Calibration", "Range", "calibrate"]

# The exponent of the least bound between ranges, and the ranges of a decade.
_LEAST, _STEPS = -6, 2


@dataclass(frozen=True, slots=True)
class Range:
    """The query-item pairs with a predicted probability between `low` and `high`; means over them."""

    low: float
    high: float
    pairs: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """`ranges` from small to large; `error`: half the sum over ranges of |predicted - observed| mass, in 0..1.

    A prediction is the probability that one target is this item; observed is 1 / |labels| where the item is a label.
    `made_by`: how probabilities were derived from scores.
    """

    queries: int
    made_by: str
    error: float
    ranges: tuple[Range, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def calibrate(searcher: Searcher, query: Query, labels: ItemLists) -> Calibration:
    """The calibration on queries and their distinct `labels`, a row each; all items are scored.

    Errors: no query, another number of rows, a query without labels.
    """
    if not (len(labels) == len(query) > 0 and labels.lengths.min() > 0):
        raise InputError(f"{len(query)} queries and {len(labels)} rows of labels; give one non-empty row a query")
    num_ranges = -_LEAST * _STEPS
    pairs, predicted, observed = np.zeros(num_ranges, np.int64), np.zeros(num_ranges), np.zeros(num_ranges)
    start = 0
    for likely_BN in probabilities(searcher, query):
        part = labels.take(np.arange(start, start + len(likely_BN)))
        start += len(likely_BN)
        observed_BN = np.zeros_like(likely_BN)
        observed_BN[part.rows, part.items] = 1 / part.lengths[part.rows]
        decades = np.log10(np.maximum(likely_BN, 1e-300)) - _LEAST
        place = np.clip(decades * _STEPS, 0, num_ranges - 1).astype(np.int64).ravel()
        pairs += np.bincount(place, minlength=num_ranges)
        predicted += np.bincount(place, likely_BN.ravel(), minlength=num_ranges)
        observed += np.bincount(place, observed_BN.ravel(), minlength=num_ranges)
    edges = [0.0, *(10 ** (_LEAST + step / _STEPS) for step in range(1, num_ranges)), 1.0]
    ranges = tuple(
        Range(edges[i], edges[i + 1], int(pairs[i]), float(predicted[i] / pairs[i]), float(observed[i] / pairs[i]))
        for i in np.flatnonzero(pairs).tolist()
    )
    error = float(np.abs(predicted - observed).sum() / len(query) / 2)
    return Calibration(len(query), made_by(searcher), error, ranges)
