"""Validation metrics during training, by the same protocol as the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from beamwood.data.split import Queries
from beamwood.errors import InputError, nearest
from beamwood.evaluation.metrics import METRICS
from beamwood.evaluation.protocol import VIEWS, evaluate

__all__ = ["CUT", "MEASURED", "Choice", "Measure", "Validation", "check_monitor", "drawn", "measures_by_name"]

CUT = 20
"""The cut of validation metrics."""

MEASURED = tuple(f"{view}/{name}@{CUT}" for view in (*VIEWS, "both") for name in METRICS)
"""The metrics by which the best weights can be chosen."""


def check_monitor(monitor: str) -> None:
    """Errors: a name that is not in `MEASURED`."""
    if monitor not in MEASURED:
        raise InputError(f"choose.monitor='{monitor}' is not measured{nearest(monitor, MEASURED)}")


def drawn(queries: Queries, num_users: int, *, seed: int) -> Queries:
    """At most `num_users` of the queries, in their order."""
    return queries.take(np.sort(np.random.default_rng(seed).permutation(len(queries.users))[:num_users]))


class Measure(Protocol):
    """Metrics of a searcher on fixed queries, or on the first `num` of them."""

    def __len__(self) -> int: ...

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]: ...


@dataclass(slots=True)
class Choice:
    """A choice made for the best weights after training: `work(searcher, num)` uses the first `num` queries."""

    work: Callable[[Any, int], Any]
    num: int

    def of(self, searcher: Any) -> Any:
        """The choice for a searcher, by all queries or as many as fit the time limit."""
        return self.work(searcher, self.num)


class Validation:
    """Metrics of a searcher on a fixed draw of at most `num_users` queries.

    They are named "kept/f@20" (seen items kept), "removed/f@20" (seen items removed), "both/f@20" (their mean), ...
    """

    def __init__(self, queries: Queries, num_users: int, *, seed: int) -> None:
        self.queries = drawn(queries, num_users, seed=seed)
        judged = np.flatnonzero(self.queries.labels.lengths > 0)
        # Shuffled, so that the first queries are a random sample.
        self._judged = np.random.default_rng(seed).permutation(judged)

    def __len__(self) -> int:
        return len(self._judged)

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]:
        queries = self.queries if num is None else self.queries.take(np.sort(self._judged[:num]))
        views = {}
        for view in VIEWS:
            result = evaluate(searcher, queries, ks=(CUT,), remove_seen=view == "removed", batch_size=1024)
            views[view] = result.means()
        return measures_by_name(views)


def measures_by_name(views: dict[str, dict[str, float]]) -> dict[str, float]:
    """The metrics of each view under the names of `MEASURED`, and their means over both."""
    both = {name: (value + views["removed"][name]) / 2 for name, value in views["kept"].items()}
    return {
        f"{view}/{name}": value for view, means in (views | {"both": both}).items() for name, value in means.items()
    }
