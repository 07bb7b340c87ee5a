"""What a search does for rarely taken items: its metrics on the labels that are tail, and who is shown.

Shape legend: Q queries, N items.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.evaluation.metrics import Tail
from beamwood.evaluation.protocol import LabelledQueries
from beamwood.types import ItemLists

__all__ = ["TailQueries", "tail_queries"]


@dataclass(frozen=True)
class TailQueries:
    """The queries that have a tail label, with those labels alone; `rule` says in words what the tail is."""

    users: NDArray[np.int64]
    histories: ItemLists
    labels: ItemLists
    consumed: ItemLists
    rule: str
    of_queries: int = field(default=0)
    context: pl.DataFrame | None = None

    def __len__(self) -> int:
        return len(self.users)


def tail_queries(queries: LabelledQueries, rare: Tail) -> TailQueries:
    """The part of the queries whose labels are tail items. Errors: none has any."""
    labels = queries.labels
    kept = rare.mask[labels.items]
    lengths = np.bincount(labels.rows[kept], minlength=len(labels))
    tail = ItemLists(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), labels.items[kept])
    rows = np.flatnonzero(lengths > 0)
    if len(rows) == 0:
        raise InputError(f"no query has a tail label ({rare.rule}); raise the share of the tail")
    parts: dict[str, Any] = {name: getattr(queries, name).take(rows) for name in ("histories", "consumed")}
    context = getattr(queries, "context", None)
    return TailQueries(
        queries.users[rows],
        labels=tail.take(rows),
        rule=rare.rule,
        of_queries=len(labels),
        context=None if context is None else context[rows],
        **parts,
    )
