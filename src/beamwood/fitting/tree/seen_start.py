"""The initial weight of seen items in a tree's score: 0, or more where validation users prefer that."""

from __future__ import annotations

from collections.abc import Callable

from beamwood.data.queries import Queries
from beamwood.fitting.validation import Monitor
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.types import Searcher

__all__ = ["best_seen_start"]

# Candidates in logits, tried in this order while they improve. None is negative: training itself learns to lower seen
# items within hundreds of steps, and a negative start gave worse other weights (docs/lab/LOG.md).
_WEIGHTS = (8.0, 16.0, 32.0)
_USERS, _FEWEST, _SHARE = 500, 32, 0.1


def best_seen_start(
    set_weight: Callable[[float], None],
    searcher: Callable[[], Searcher],
    queries: Queries,
    monitor: str,
    *,
    seed: int,
    budget: Budget,
) -> float:
    """The initial weight of seen items that is best on validation users, 0 where none is better.

    `set_weight` sets it, and is left with the last one tried. The metric is that of `monitor` with seen items kept, on
    500 validation users, or fewer where these would take more than a tenth of what is left of `budget`. Training for
    minutes is too short to learn such a weight from 0: on session logs a list of seen items, followed by counts, is
    better than a tree trained so.
    """
    kept = Monitor("kept", Monitor.of(monitor).metric)
    labelled = queries.labelled().sample(_USERS, seed=seed)
    if len(labelled) == 0:
        return 0.0

    def measured(weight: float, users: Queries) -> float:
        set_weight(weight)
        return float(kept.mean(kept.results(searcher(), users)).mean())

    if budget.limited:
        labelled = _affordable(labelled, lambda users: measured(0.0, users), budget, seed)
    best, value = 0.0, measured(0.0, labelled)
    for weight in _WEIGHTS:
        tried = measured(weight, labelled)
        if tried <= value:
            break
        best, value = weight, tried
    return best


def _affordable(queries: Queries, measure: Callable[[Queries], float], budget: Budget, seed: int) -> Queries:
    """Random queries on which all weights can be measured within the time limit. Errors: not even two can be."""
    whole = len(queries)
    seconds = estimated_seconds(lambda num: measure(queries.sample(num, seed=seed)), whole, budget.clock)
    num = budget.affordable(whole, seconds * (1 + len(_WEIGHTS)), share=_SHARE, fewest=_FEWEST)
    if num < whole:
        budget.leave_out(f"the initial weight of seen items is chosen on {num} of {whole} validation users")
        queries = queries.sample(num, seed=seed)
    budget.require(seconds / whole * 2 * len(queries))
    return queries
