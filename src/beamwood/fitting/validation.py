"""Validation: the metrics by which a fit chooses weights and settings, by the same protocol as the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.data.queries import Queries
from beamwood.errors import InputError, nearest
from beamwood.evaluation.metrics import METRICS
from beamwood.evaluation.protocol import evaluate_both, evaluate_views
from beamwood.evaluation.results import VIEWS, PerQuery

__all__ = ["CUT", "MEASURED", "Choice", "Measure", "Monitor", "Validation", "check_monitor", "measures_by_name"]

CUT = 20
"""The k of validation metrics, such as f@20."""
_QUERIES_AT_A_TIME = 1024

MEASURED = tuple(f"{view}/{name}@{CUT}" for view in (*VIEWS, "both") for name in METRICS)
"""The names of all metrics that can be monitored."""


def check_monitor(monitor: str) -> None:
    """Errors: `InputError` on a name that is not in `MEASURED`."""
    if monitor not in MEASURED:
        raise InputError(f"choose.monitor='{monitor}' is not measured{nearest(monitor, MEASURED)}")


@dataclass(frozen=True, slots=True)
class Monitor:
    """The monitored metric by its parts: as "both" of `view` and "f" of `metric` in "both/f@20"."""

    view: str
    metric: str

    @classmethod
    def of(cls, monitor: str) -> Self:
        """The parts of a name. Errors: those of `check_monitor`."""
        check_monitor(monitor)
        view, _, metric = monitor.partition("/")
        return cls(view, metric.partition("@")[0])

    @property
    def views(self) -> tuple[str, ...]:
        """The keys of `VIEWS` over which the metric is the mean."""
        return tuple(VIEWS) if self.view == "both" else (self.view,)

    def at(self, cut: int = CUT) -> str:
        """The name of the metric at a cut, as in `PerQuery.values`."""
        return f"{self.metric}@{cut}"

    def results(self, searcher: Any, queries: Queries, cut: int = CUT) -> list[PerQuery]:
        """The evaluation of the searcher in each view."""
        return [*evaluate_views(searcher, queries, self.views, ks=(cut,), batch_size=_QUERIES_AT_A_TIME).values()]

    def mean(self, results: Sequence[PerQuery]) -> NDArray[np.float64]:
        """float64[Q], the metric of each query with labels, the mean over `results`."""
        values: NDArray[np.float64] = np.mean([each.values[self.at(*each.ks)] for each in results], axis=0)
        return values


class Measure(Protocol):
    """The metrics of a searcher on fixed queries, or on a fixed random part of `num` (None: all).

    `is_cut`: whether these are fewer than without the time limit.
    """

    is_cut: bool

    def __len__(self) -> int: ...

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]: ...


@dataclass(slots=True)
class Choice:
    """A setting chosen after training, for the best weights.

    `choose(searcher, num)` chooses it on `num` validation queries. `num_queries`: all of them, or as many as fit the
    time limit.
    """

    choose: Callable[[Any, int], Any]
    num_queries: int

    def made_for(self, searcher: Any) -> Any:
        """The chosen value."""
        return self.choose(searcher, self.num_queries)


class Validation:
    """The metrics of a searcher on a fixed random sample of at most `num_users` queries.

    Names: "kept/f@20" (seen items kept), "removed/f@20" (seen items removed), "both/f@20" (the mean of both), ...
    """

    is_cut = False

    def __init__(self, queries: Queries, num_users: int, *, seed: int) -> None:
        self.queries = queries.sample(num_users, seed=seed)
        labelled = np.flatnonzero(self.queries.labels.lengths > 0)
        # Shuffled, so that the first queries are a random sample.
        self._rows = np.random.default_rng(seed).permutation(labelled)

    def __len__(self) -> int:
        return len(self._rows)

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]:
        queries = self.queries if num is None else self.queries.take(np.sort(self._rows[:num]))
        found = evaluate_both(searcher, queries, ks=(CUT,), batch_size=_QUERIES_AT_A_TIME)
        return measures_by_name({view: result.means() for view, result in found.items()})


def measures_by_name(views: dict[str, dict[str, float]]) -> dict[str, float]:
    """The metrics of each view under the names of `MEASURED`, and their means over both."""
    both = {name: (value + views["removed"][name]) / 2 for name, value in views["kept"].items()}
    return {
        f"{view}/{name}": value for view, means in (views | {"both": both}).items() for name, value in means.items()
    }
