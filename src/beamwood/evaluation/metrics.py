"""Metrics of ranked lists against sets of labels, one value a query, and of the lists as a whole.

Shape legend: B queries of a batch, K places of a ranked list, N items, k the cut, k <= K.

A query has the set of labels G (|G| >= 1) and a list with places 1..k. Of these, rel_r = 1 where place r holds an
item of G that no earlier place held. Hits h are the sum of rel_r for r <= k:

    precision@k = h / k              recall@k = h / |G|           f@k = 2 h / (k + |G|)
    hit_rate@k  = 1 if h > 0         mrr@k = 1 / min{r: rel_r}, 0 without a hit
    ndcg@k      = sum_r rel_r / log2(r + 1), divided by sum_{r <= min(k, |G|)} 1 / log2(r + 1)

f is the harmonic mean of precision and recall of one query, averaged afterwards. A list shorter than k and a place
that repeats an item lose that place; k stays the divisor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.ragged import repeats
from beamwood.types import BoolArray, IndexArray, ItemLists, among

__all__ = [
    "METRICS",
    "add_exposure",
    "coverage",
    "gini",
    "metrics_at",
    "relevance",
    "share_of",
]

METRICS = ("precision", "recall", "f", "hit_rate", "ndcg", "mrr")


def relevance(items_BK: IndexArray, labels: ItemLists) -> BoolArray:
    """bool[B, K], true where a place first holds an item of the row's labels (which need not be distinct).

    Errors: labels of another number of rows.
    """
    if len(labels) != len(items_BK):
        raise InputError(f"labels have {len(labels)} rows for {len(items_BK)} ranked lists; give one row each")
    return among(items_BK, labels) & ~repeats(items_BK)


def metrics_at(relevant_BK: BoolArray, num_labels: IndexArray, k: int) -> dict[str, NDArray[np.float64]]:
    """float64[B] for each name of `METRICS` at the cut k, by the module's equations.

    `relevant_BK` as of `relevance`; `num_labels` int[B], the number of distinct labels, each at least 1. Errors: k
    outside 1..K, a query without labels.
    """
    if not 1 <= k <= relevant_BK.shape[1]:
        raise InputError(f"k={k} is outside 1..{relevant_BK.shape[1]}, the places of the ranked lists")
    if np.any(num_labels < 1):
        raise InputError("a query without labels has no recall; leave such queries out and count them")
    relevant = relevant_BK[:, :k]
    hits = relevant.sum(axis=1).astype(np.float64)
    gains = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate([[0.0], np.cumsum(gains)])[np.minimum(num_labels, k)]
    any_hit = hits > 0
    return {
        "precision": hits / k,
        "recall": hits / num_labels,
        "f": 2.0 * hits / (k + num_labels),
        "hit_rate": any_hit.astype(np.float64),
        "ndcg": relevant @ gains / ideal,
        "mrr": np.where(any_hit, 1.0 / (1.0 + relevant.argmax(axis=1)), 0.0),
    }


def add_exposure(exposure_N: NDArray[np.int64], items_BK: IndexArray) -> None:
    """Add to int64[N], in place, the number of lists that contain each item, without empty places and repeats.

    The cost does not depend on N.
    """
    np.add.at(exposure_N, items_BK[(items_BK >= 0) & ~repeats(items_BK)], 1)


def coverage(exposure_N: IndexArray) -> float:
    """The share of the catalogue in at least one list."""
    return float(np.count_nonzero(exposure_N) / len(exposure_N))


def gini(exposure_N: IndexArray) -> float:
    """The Gini index of exposure: 0 for equal exposure, towards 1 for a single item; 0 where nothing was shown."""
    ordered = np.sort(np.asarray(exposure_N, float))
    total = ordered.sum()
    if total == 0:
        return 0.0
    n = len(ordered)
    return float((2 * np.arange(1, n + 1) - n - 1) @ ordered / (n * total))


def share_of(exposure_N: IndexArray, mask_N: BoolArray) -> float:
    """The share of all shown places with items of the mask; 0 where nothing was shown."""
    total = int(exposure_N.sum())
    return float(exposure_N[mask_N].sum() / total) if total else 0.0
