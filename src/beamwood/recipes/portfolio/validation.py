"""The validation of a search for the best method: one metric, on the same users for all methods."""

from __future__ import annotations

import numpy as np

from beamwood.data.split import Split
from beamwood.evaluation.cost import Cost, measure_cost
from beamwood.fitting.validation import CUT, Monitor
from beamwood.types import FloatArray, Searcher

__all__ = ["Validation", "without_test_users", "num_validation_users"]

# Validation users for each second of the time limit, within these bounds.
_USERS_PER_SECOND, _MIN_USERS, _MAX_USERS = 20, 200, 10_000
# The seconds that measuring the cost of an answer may take.
_COST_SECONDS = 0.5
# Lists hold at most half of the items: longer ones are nearly the same for all methods.
_ITEMS_PER_PLACE = 2


def num_validation_users(limit: float) -> int:
    """The number of validation users that a search of `limit` seconds can afford."""
    return int(np.clip(_USERS_PER_SECOND * limit, _MIN_USERS, _MAX_USERS))


def without_test_users(split: Split) -> Split:
    """The split without test users, so that no choice can depend on them."""
    none = np.empty(0, np.int64)
    return Split(split.dataset, split.train, split.valid, split.test.take(none), split.name, split.rule, split.options)


class Validation:
    """Measures searchers: by the metric `monitor`, one of `MEASURED`, on at most `most` validation users, and
    the cost of answers.
    """

    def __init__(self, split: Split, monitor: str, most: int, *, seed: int) -> None:
        self.monitor, self.measured = monitor, Monitor.of(monitor)
        self.queries = split.valid.sample(most, seed=seed)
        self.cut = min(CUT, max(1, len(split.dataset.items) // _ITEMS_PER_PLACE))
        self.metric = self.measured.at(self.cut)
        self.named = f"{self.measured.view}/{self.metric}"

    def __len__(self) -> int:
        return len(self.queries)

    def values(self, searcher: Searcher) -> FloatArray:
        """float64[Q], the metric of each user with labels; for "both" the mean over views."""
        return self.measured.mean(self.measured.results(searcher, self.queries, self.cut))

    def cost(self, searcher: Searcher) -> Cost:
        """The cost of an answer for one user."""
        return measure_cost(searcher, self.queries, self.cut, seconds=_COST_SECONDS)
