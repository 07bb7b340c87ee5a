"""What a tree's score adds at first for an item that the history holds: 0, or more where validation users like that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from beamwood.data.split import Queries
from beamwood.evaluation.protocol import evaluate
from beamwood.fitting.choose import CUT, drawn
from beamwood.types import Searcher

__all__ = ["best_seen_start"]

# Logits, tried in this order while they get better. None is below 0: against what does not come again the weights learn
# within hundreds of steps, and a start there left other weights behind (benchmarks/results/tree_starts.md).
_WEIGHTS = (8.0, 16.0, 32.0)
_USERS = 500


def best_seen_start(
    set_weight: Callable[[float], None], searcher: Callable[[], Searcher], queries: Queries, monitor: str, *, seed: int
) -> float:
    """One number for every place's weight of what was seen to start from, 0 where none is better.

    `set_weight` sets it, and is left with the last that was tried.

    It is judged by the metric of `monitor` with seen items kept, on 500 validation users. Learned from 0, it
    takes more steps than a training of minutes has: on session logs a list of what was seen, and then what counting
    says, is better than such a training.
    """
    name = f"{monitor.split('/')[-1].split('@')[0]}@{CUT}"
    judged = drawn(queries.take(np.flatnonzero(queries.labels.lengths > 0)), _USERS, seed=seed)
    if len(judged) == 0:
        return 0.0

    def measured(weight: float) -> float:
        set_weight(weight)
        values = evaluate(searcher(), judged, ks=(CUT,), remove_seen=False, batch_size=1024).values
        return float(values[name].mean())

    best, value = 0.0, measured(0.0)
    for weight in _WEIGHTS:
        tried = measured(weight)
        if tried <= value:
            break
        best, value = weight, tried
    return best
