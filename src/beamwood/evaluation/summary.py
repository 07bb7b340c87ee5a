"""What was measured of one searcher or of several, summed up: views, tails, intervals, and for whom it is how good.

Seeds of bootstraps are fixed, so that a summary of the same values is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from beamwood.data.split import Split
from beamwood.evaluation.groups import Groups, by_history, by_popularity
from beamwood.evaluation.protocol import Searches, evaluate_both
from beamwood.evaluation.results import PerQuery
from beamwood.evaluation.significance import bootstrap_interval, bootstrap_intervals
from beamwood.evaluation.tail import TailRule, tail_queries
from beamwood.types import FloatArray

__all__ = ["as_document", "for_whom", "measure_tail"]

# Values drawn for all resamples of one interval.
_DRAWS = 2_000_000


def measure_tail(
    searcher: Searches, split: Split, cuts: Sequence[int], rule: TailRule
) -> tuple[str, int, dict[str, PerQuery]]:
    """The rule in words, how many queries have a tail label, and both views of these, judged by those labels alone.

    No view where no query has a tail label.
    """
    rare = rule.tail(split.train)
    if not rare.mask[split.test.labels.items].any():
        return rare.rule, 0, {}
    queries = tail_queries(split.test, rare)
    views = evaluate_both(searcher, queries, ks=cuts, tail=rare)
    return rare.rule, len(queries), views


def as_document(views: Mapping[str, PerQuery]) -> dict[str, Any]:
    """Means, bootstrap intervals and protocol of both views, for JSON."""
    document = {}
    for view, result in views.items():
        intervals = bootstrap_intervals(result.values, np.random.default_rng(0))
        bounds = {name: [interval.low, interval.high] for name, interval in intervals.items()}
        document[view] = result.as_dict() | {"interval_95": bounds}
    return document


def for_whom(results: Mapping[str, Mapping[str, PerQuery]], split: Split, metric: str) -> dict[str, Any]:
    """By view: a metric by length of history, and recall at the least cut by popularity of the label; for JSON.

    `results` by method, then view; all of the same test queries.
    """
    first = next(iter(results.values()))
    popularity = by_popularity(split)
    document = {}
    for view, shown in first.items():
        history = by_history(split, shown.users)
        sizes = np.bincount(history.group_of, minlength=len(history))
        asked = np.zeros(len(popularity), np.int64) if shown.groups is None else shown.groups.labels.sum(axis=0)
        document[view] = {
            "history": {
                "metric": metric,
                "groups": history.as_dicts(sizes, "queries"),
                "methods": {name: _by_query(views[view], metric, history) for name, views in results.items()},
            },
            "popularity": {
                "metric": f"recall@{shown.ks[0]}",
                "groups": popularity.as_dicts(asked, "labels"),
                "methods": {name: _by_label(views[view], len(popularity)) for name, views in results.items()},
            },
        }
    return document


def _by_query(measured: PerQuery, metric: str, groups: Groups) -> list[dict[str, float] | None]:
    """Mean and interval of each group of queries."""
    return [_interval(measured.values[metric][groups.group_of == group]) for group in range(len(groups))]


def _by_label(measured: PerQuery, num_groups: int) -> list[dict[str, float] | None]:
    """Mean and interval of the share of a query's labels of each group that is found."""
    hits = measured.groups
    if hits is None:
        return [None] * num_groups
    asked = [hits.labels[:, group] > 0 for group in range(num_groups)]
    return [_interval(hits.found[rows, group] / hits.labels[rows, group]) for group, rows in enumerate(asked)]


def _interval(values: FloatArray) -> dict[str, float] | None:
    """None of no values."""
    if len(values) == 0:
        return None
    # Of many values fewer resamples say as much.
    resamples = min(2000, max(200, _DRAWS // len(values)))
    interval = bootstrap_interval(values, np.random.default_rng(0), num_resamples=resamples)
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
