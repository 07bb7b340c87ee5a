"""The queries with rare labels: the metrics of tail items are measured on these labels alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.evaluation.metrics import Tail

__all__ = ["tail_queries"]


def tail_queries(queries: Queries, rare: Tail) -> Queries:
    """The queries that have a tail label, with their tail labels alone. Errors: none has any."""
    tail = queries.labels.keeping(rare.mask[queries.labels.items])
    rows = np.flatnonzero(tail.lengths > 0)
    if len(rows) == 0:
        raise InputError(f"no query has a tail label ({rare.rule}); raise the share of the tail")
    return replace(queries, labels=tail).take(rows)
