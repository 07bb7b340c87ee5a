"""What a search does for rarely taken items: its metrics on the labels that are tail, and who is shown.

Shape legend: Q queries, N items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.evaluation.metrics import Tail

__all__ = ["TailQueries", "tail_queries"]


@dataclass(frozen=True)
class TailQueries(Queries):
    """The queries that have a tail label, with those labels alone; `rule` says in words what the tail is."""

    rule: str = ""
    of_queries: int = 0


def tail_queries(queries: Queries, rare: Tail) -> TailQueries:
    """The part of the queries whose labels are tail items. Errors: none has any."""
    labels = queries.labels
    tail = labels.keeping(rare.mask[labels.items])
    rows = np.flatnonzero(tail.lengths > 0)
    if len(rows) == 0:
        raise InputError(f"no query has a tail label ({rare.rule}); raise the share of the tail")
    part = queries.take(rows)
    return TailQueries(
        part.users, part.histories, tail.take(rows), part.seen, part.context, rare.rule, of_queries=len(labels)
    )
