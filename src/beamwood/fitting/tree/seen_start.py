"""The initial weight of seen items in a tree's score: 0, or more where validation users prefer that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from beamwood.data.split import Queries
from beamwood.evaluation.protocol import evaluate
from beamwood.fitting.choose import CUT, drawn
from beamwood.training.budget import Budget, price_of
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
    """The initial weight of seen items at every place, 0 where none is better.

    `set_weight` sets it, and is left with the last one tried. Judged by the metric of `monitor` with seen items kept,
    on 500 validation users, or fewer where these would take more than a tenth of what is left of `budget`. Learning it
    from 0 takes more steps than a training of minutes has: on session logs a list of seen items, then counts, is better
    than such a training.
    """
    name = f"{monitor.split('/')[-1].split('@')[0]}@{CUT}"
    judged = drawn(queries.take(np.flatnonzero(queries.labels.lengths > 0)), _USERS, seed=seed)
    if len(judged) == 0:
        return 0.0

    def measured(weight: float, users: Queries) -> float:
        set_weight(weight)
        values = evaluate(searcher(), users, ks=(CUT,), remove_seen=False, batch_size=1024).values
        return float(values[name].mean())

    if budget.limited:
        judged = _as_many_as_fit(judged, lambda users: measured(0.0, users), budget)
    best, value = 0.0, measured(0.0, judged)
    for weight in _WEIGHTS:
        tried = measured(weight, judged)
        if tried <= value:
            break
        best, value = weight, tried
    return best


def _as_many_as_fit(judged: Queries, measure: Callable[[Queries], float], budget: Budget) -> Queries:
    """The queries with which all weights can be measured in their share of the budget. Errors: not even two fit."""
    whole = len(judged)
    price = price_of(lambda num: measure(judged.take(np.arange(num))), whole, budget.clock)
    room = max(_FEWEST, int(whole * _SHARE * budget.left / max(price * (1 + len(_WEIGHTS)), 1e-9)))
    if room < whole:
        budget.leave_out(f"{room} of {whole} validation users say how seen items start")
        judged = judged.take(np.arange(room))
    budget.require(price / whole * 2 * len(judged))
    return judged
