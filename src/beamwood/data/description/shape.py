"""The distribution of history lengths and of item popularity."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["lengths", "popularity"]

_QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
_TOPS = (0.01, 0.1, 0.2, 0.5)
_POINTS = 50


def lengths(counts: NDArray[np.int64]) -> dict[str, Any]:
    """From int64[users] rows a user: quantiles, users with too few rows to hold one out, groups by powers of two."""
    groups = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
    sizes = np.bincount(groups)
    return {
        "mean": float(counts.mean()),
        "quantiles": {f"{share:g}": int(np.quantile(counts, share, method="lower")) for share in _QUANTILES},
        "fewer_than_2": int((counts < 2).sum()),
        "fewer_than_3": int((counts < 3).sum()),
        "share_of_longest": float(counts.max() / counts.sum()),
        "groups": [
            {"low": 2 ** (power - 1) + 1 if power else 1, "high": 2**power, "users": int(size)}
            for power, size in enumerate(sizes)
        ],
    }


def popularity(counts: NDArray[np.int64]) -> dict[str, Any]:
    """From int64[items] rows an item, all above 0: the share of rows of the most frequent items, and the Gini index.

    `gini` is 0 where all items are equally frequent and near 1 where one has all rows.
    """
    falling = np.sort(counts)[::-1]
    number, total = len(falling), int(falling.sum())
    sums = np.concatenate([[0], np.cumsum(falling)])
    ranks = np.arange(number, 0, -1)
    places = np.unique(np.linspace(0, number, min(number, _POINTS) + 1).round().astype(int))
    return {
        "once": int((counts == 1).sum()),
        "most": int(falling[0]),
        "top": {f"{share:g}": float(sums[max(1, round(share * number))] / total) for share in _TOPS},
        "gini": float(((2 * ranks - number - 1) * falling).sum() / (number * total)),
        "curve": [{"items": float(place / number), "rows": float(sums[place] / total)} for place in places],
    }
