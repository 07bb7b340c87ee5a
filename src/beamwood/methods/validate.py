"""Metrics of a model while it trains, by the exact protocol of the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from beamwood.data.split import Queries
from beamwood.evaluation.protocol import evaluate, search_of

__all__ = ["drawn", "validation"]


def drawn(queries: Queries, num_users: int, *, seed: int) -> Queries:
    """At most `num_users` of the queries, in their order."""
    return queries.take(np.sort(np.random.default_rng(seed).permutation(len(queries.users))[:num_users]))


def validation(
    searcher: Callable[[], Any], queries: Queries, num_users: int, *, seed: int
) -> Callable[[], dict[str, float]]:
    """A function that measures `searcher()`, that of the weights as they are then, on a fixed draw of queries.

    Its metrics are named "all/f@20" (consumed items left in), "new/f@20" (taken out) and so on.
    """
    subset = drawn(queries, num_users, seed=seed)

    def measure() -> dict[str, float]:
        asked = search_of(searcher())
        metrics: dict[str, float] = {}
        for view in ("all", "new"):
            result = evaluate(**asked, queries=subset, ks=(20,), exclude_consumed=view == "new", batch_size=1024)
            metrics |= {f"{view}/{name}": value for name, value in result.means().items()}
        return metrics

    return measure
