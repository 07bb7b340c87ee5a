"""What was measured of one searcher or of several, summed up: views, tails, intervals and paired tests.

Seeds of bootstraps are fixed, so that a summary of the same values is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beamwood.evaluation.metrics import TailRule
from beamwood.evaluation.protocol import VIEWS, PerQuery, Searches, evaluate_both
from beamwood.evaluation.significance import bootstrap_interval, compare
from beamwood.evaluation.tail import tail_queries

if TYPE_CHECKING:
    from beamwood.data.split import Split

__all__ = ["as_document", "compared", "measure_tail"]


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
    return queries.rule, len(queries), views


def as_document(views: Mapping[str, PerQuery], *, seed: int = 0) -> dict[str, Any]:
    """Means, bootstrap intervals and protocol of both views, for JSON."""
    document = {}
    for view, result in views.items():
        rng = np.random.default_rng(seed)
        intervals = {name: bootstrap_interval(column, rng) for name, column in result.values.items()}
        bounds = {name: [interval.low, interval.high] for name, interval in intervals.items()}
        document[view] = result.as_dict() | {"interval_95": bounds}
    return document


def compared(
    results: Mapping[str, Mapping[str, PerQuery]], baseline: str, metric: str, *, seed: int = 0
) -> dict[str, list[dict[str, Any]]]:
    """Paired tests of `baseline` against the others in both views, adjusted after Holm."""
    tests = {}
    for view in VIEWS:
        values = {name: views[view].values[metric] for name, views in results.items()}
        tests[view] = [c.as_dict() for c in compare(values, baseline, np.random.default_rng(seed))]
    return tests
