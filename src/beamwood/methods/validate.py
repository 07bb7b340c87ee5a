"""Metrics of a model while it trains, by the exact protocol of the test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from beamwood.data.split import Queries
from beamwood.evaluation.protocol import Search, UserSearch, evaluate

__all__ = ["validation"]


def validation(
    search: Callable[[], Search | UserSearch], queries: Queries, num_users: int, *, seed: int, by_user: bool = False
) -> Callable[[], dict[str, float]]:
    """A function that measures `search()`, the search of the weights as they are then, on a fixed draw of queries.

    Its metrics are named "all/f@20" (consumed items left in), "new/f@20" (taken out) and so on.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(len(queries.users))[:num_users])
    subset = queries.take(rows)

    def measure() -> dict[str, float]:
        now = search()
        metrics: dict[str, float] = {}
        for view in ("all", "new"):
            result = evaluate(now, subset, ks=(20,), exclude_consumed=view == "new", by_user=by_user, batch_size=1024)
            metrics |= {f"{view}/{name}": value for name, value in result.means().items()}
        return metrics

    return measure
