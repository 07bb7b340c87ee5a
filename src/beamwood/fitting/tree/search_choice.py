"""The choice of the search way of a fitted tree: the cheapest that validation users cannot tell from the full beam.

Shape legend: Q queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.queries import Queries
from beamwood.fitting.validation import Monitor
from beamwood.kernels.light import Way
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.searchers.ways import Ways
from beamwood.steps import step
from beamwood.training.budget import Budget
from beamwood.types import Hits, Query, SearchOptions

__all__ = ["KEPT", "KEPT_LEVEL", "SearchChoice", "FixedWay", "candidate_ways", "choose_ways"]

KEPT = 0.005
"""The share of the full beam's metric that a cheaper way may lose in the mean."""
KEPT_LEVEL = 0.015
"""The share that it may lose at the lower end of its confidence interval, which is wider than `KEPT` for few queries.
"""

# The normal quantile of a one-sided confidence of 90 %.
_QUANTILE = 1.2816
# Fewer queries than this cannot resolve such small shares.
_FEWEST = 30
# Queries between two checks of a time limit.
_BLOCK = 32


@dataclass(frozen=True)
class SearchChoice:
    """The chosen way of searching, and the validation results of all `ways`, in the order of the ladder.

    `nodes`: those that the scorer scored; `metric`: the mean; `lowest`: the lower bound of its change against the full
    beam, as a share of the full beam's metric.
    """

    ways: Ways
    monitor: str
    queries: int
    nodes: tuple[float, ...]
    metric: tuple[float, ...]
    lowest: tuple[float, ...]

    @property
    def best_steered(self) -> float:
        """The best metric of the ways steered by a light head, over the full beam's; 0 where there is none."""
        steered = [metric for way, metric in zip(self.ways.ladder, self.metric, strict=True) if way.kind != "beam"]
        return max(steered, default=0.0) / max(self.metric[-1], 1e-12)

    def of_beams(self) -> SearchChoice:
        """The choice among the ways that need no light head."""
        ladder = self.ways.ladder
        places = [place for place, way in enumerate(ladder) if way.kind == "beam"]
        chosen = next(at for at, place in enumerate(places) if place >= self.ways.chosen)
        ways = Ways(tuple(ladder[place] for place in places), chosen)
        nodes, metric, lowest = (
            tuple(each[place] for place in places) for each in (self.nodes, self.metric, self.lowest)
        )
        return replace(self, ways=ways, nodes=nodes, metric=metric, lowest=lowest)

    def facts(self) -> dict[str, Any]:
        """The record in an artefact: the chosen way, and the curve of all."""
        curve = [
            asdict(way) | {"nodes": round(nodes, 1), "metric": round(metric, 6), "lowest": round(lowest, 5)}
            for way, nodes, metric, lowest in zip(self.ways.ladder, self.nodes, self.metric, self.lowest, strict=True)
        ]
        judged = {"monitor": self.monitor, "queries": self.queries}
        rule = {"may_lose": KEPT, "may_lose_level": KEPT_LEVEL}
        return asdict(self.ways.default) | {"chosen": self.ways.chosen} | judged | rule | {"curve": curve}


def candidate_ways(beam_width: int, *, steered: bool) -> tuple[Way, ...]:
    """The candidate ways for a tree with this full beam width, the full beam last."""
    third, half, most = (max(1, beam_width * part // 6) for part in (2, 3, 4))
    ways = [Way("beam", width) for width in (third, most, beam_width)]
    if steered:
        steer = [(2, 80), (2, 120), (2, 200), (7, 400)]
        # For a beam of 150: 70 and 100 judged on a level for 50 kept, 140 for 75, 200 for 100.
        cascade = [(third, 7 * beam_width // 15), (third, 2 * third), (half, 14 * beam_width // 15), (most, 2 * most)]
        ways = [
            *(Way("steer", times * beam_width, judged) for times, judged in steer),
            *(Way("cascade", width, max(width, judged)) for width, judged in cascade),
            *ways,
        ]
    return tuple(dict.fromkeys(ways))


def choose_ways(
    searcher: TreeSearcher, queries: Queries, monitor: str, budget: Budget | None = None, *, first: int | None = None
) -> SearchChoice:
    """Evaluate each way on `queries` with labels, and choose the cheapest acceptable one, else the full beam.

    Losses are shares of the full beam's metric. The mean of a way may lose `KEPT`, and the lower end of a paired
    interval `KEPT_LEVEL`. A limited `budget` uses as many of the first queries as fit. All ways are evaluated on the
    `first` queries (None: all). While a way cheaper than the chosen one is undecided, the number of queries is doubled
    for these ways and the full beam.
    """
    budget = budget or Budget()
    tried = candidate_ways(searcher.beam_width, steered=searcher.weights.light is not None)
    found = _Trials(searcher, queries, monitor, tried, [_WayResults() for _ in tried])
    with step("choosing how the tree is searched"):
        found.search(range(len(tried)), min(first or len(queries), len(queries)), budget)
        while not budget.limited and len(found) < len(queries) and (unclear := _unclear(found)):
            found.search([*unclear, len(tried) - 1], min(2 * len(found), len(queries)), budget)
    order, changes = _by_cost(found), found.changes()
    enough = len(found) >= _FEWEST
    kept = [place for place, at in enumerate(order) if enough and _is_kept(*changes[at])]
    ways = Ways(tuple(tried[at] for at in order), kept[0] if kept else len(order) - 1)
    full = float(found.ways[-1].values.mean())
    return SearchChoice(
        ways,
        monitor,
        len(found),
        tuple(found.ways[at].nodes for at in order),
        tuple(full * (1 + changes[at][0]) for at in order),
        tuple(changes[at][1] if enough or at == len(tried) - 1 else -1.0 for at in order),
    )


def _by_cost(found: _Trials) -> list[int]:
    """The positions of the ways by cost, the full beam last.

    Ways no cheaper than the full beam are dropped; of equally dear ones the wider light beam comes last.
    """
    nodes = [way.nodes for way in found.ways]
    cheaper = [at for at in range(len(nodes) - 1) if nodes[at] < nodes[-1]]
    return [*sorted(cheaper, key=lambda at: (nodes[at], found.tried[at].beam_width)), len(nodes) - 1]


def _unclear(found: _Trials) -> list[int]:
    """The ways that are cheaper than the first acceptable one, and that further queries may still make acceptable."""
    changes = found.changes()
    cheaper = takewhile(lambda at: not _is_kept(*changes[at]), _by_cost(found)[:-1])
    return [at for at in cheaper if 2 * changes[at][0] - changes[at][1] >= -KEPT]


def _change(values_Q: NDArray[np.float64], full_Q: NDArray[np.float64]) -> tuple[float, float]:
    """The mean change against the full beam and the lower end of its interval, as shares of the full beam's mean."""
    change_Q = values_Q - full_Q
    error = float(change_Q.std(ddof=1)) / len(change_Q) ** 0.5 if len(change_Q) > 1 else np.inf
    # Where the full beam finds nothing, nothing can be lost.
    mean, full = float(change_Q.mean()), max(float(full_Q.mean()), 1e-12)
    return mean / full, (mean - _QUANTILE * error) / full


def _is_kept(mean: float, lowest: float) -> bool:
    """Whether a way with that change is acceptable."""
    return mean >= -KEPT and lowest >= -KEPT_LEVEL


@dataclass(frozen=True)
class FixedWay:
    """A searcher of a tree in a fixed way."""

    searcher: TreeSearcher
    way: Way

    @property
    def needs(self) -> Any:
        return self.searcher.needs

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `types.Searcher`."""
        return self.searcher.searched(query, k, options, self.way.wide_enough(k))


@dataclass
class _WayResults:
    """The results of one way for the first queries: their metrics, and the mean number of scored nodes."""

    values: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    nodes: float = 0.0

    def add(self, values: NDArray[np.float64], nodes: float) -> None:
        """Append the results of further queries."""
        old, new = len(self.values), len(values)
        self.nodes = (old * self.nodes + new * nodes) / max(1, old + new)
        self.values = np.concatenate([self.values, values])


@dataclass
class _Trials:
    """The results of all ways, the full beam last; it has searched for every query for which another way has."""

    searcher: TreeSearcher
    queries: Queries
    monitor: str
    tried: Sequence[Way]
    ways: list[_WayResults]

    def __len__(self) -> int:
        return len(self.ways[-1].values)

    def search(self, places: Sequence[int], until: int, budget: Budget) -> None:
        """Search in these ways for the queries before `until`: at least for a block, for more while there is time."""
        size, longest, stop = _BLOCK if budget.limited else until, 0.0, len(self)
        while stop < until and (stop == 0 or budget.left >= longest):
            began, stop = budget.seconds, min(stop + size, until)
            for way, tried in ((self.ways[at], self.tried[at]) for at in places):
                rows = np.arange(len(way.values), stop)
                way.add(*_values(self.searcher, self.queries.take(rows), tried, self.monitor))
            longest = max(longest, budget.seconds - began)

    def changes(self) -> list[tuple[float, float]]:
        """`_change` of each way against the full beam, on the queries for which it has results."""
        full_Q = self.ways[-1].values
        return [_change(values_Q, full_Q[: len(values_Q)]) for values_Q in (way.values for way in self.ways)]


def _values(searcher: TreeSearcher, queries: Queries, way: Way, monitor: str) -> tuple[NDArray[np.float64], float]:
    """Each query's metric, for "both" the mean over views, and the mean number of nodes scored for a query."""
    measured = Monitor.of(monitor)
    results = measured.results(FixedWay(searcher, way), queries)
    return measured.mean(results), float(np.mean([result.scored for result in results]))
