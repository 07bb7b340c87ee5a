"""By whom, and by what, a search for the best method judges: validation users, and the same ones for all."""

from __future__ import annotations

import numpy as np

from beamwood.data.split import Split
from beamwood.evaluation.cost import Cost, cost_of
from beamwood.evaluation.protocol import VIEWS, evaluate
from beamwood.fitting.choose import CUT, check_monitor, drawn
from beamwood.types import FloatArray, Searcher

__all__ = ["Judge", "without_test_users", "how_many"]

# So many users judge for each second of the limit, within these bounds.
_A_SECOND, _FEWEST, _MOST = 10, 200, 5000
# Seconds in which an answer's cost is measured.
_COST = 0.5
# Lists of half of the items at most are judged: longer ones hold much the same, whoever makes them.
_OF_ITEMS = 2


def how_many(limit: float) -> int:
    """How many users at most a search of so many seconds has time to ask again and again."""
    return int(np.clip(_A_SECOND * limit, _FEWEST, _MOST))


def without_test_users(split: Split) -> Split:
    """The split without test users: what is chosen cannot depend on them."""
    none = np.empty(0, np.int64)
    return Split(split.dataset, split.train, split.valid, split.test.take(none), split.name, split.rule, split.options)


class Judge:
    """The metric `monitor`, one of `choose.MEASURED`, by validation user, `most` of them, and what answers cost."""

    def __init__(self, split: Split, monitor: str, most: int, *, seed: int) -> None:
        check_monitor(monitor)
        self.monitor, self.queries = monitor, drawn(split.valid, most, seed=seed)
        view, _, metric = monitor.partition("/")
        self.views = [each for each in VIEWS if view in (each, "both")]
        self.cut = min(CUT, max(1, len(split.dataset.items) // _OF_ITEMS))
        self.metric = f"{metric.partition('@')[0]}@{self.cut}"
        self.named = f"{view}/{self.metric}"

    def __len__(self) -> int:
        return len(self.queries)

    def values(self, searcher: Searcher) -> FloatArray:
        """float64[Q], the metric of each user with labels, of both views their mean."""
        found = [
            evaluate(searcher, self.queries, ks=(self.cut,), remove_seen=view == "removed", batch_size=1024)
            for view in self.views
        ]
        values: FloatArray = np.mean([each.values[self.metric] for each in found], axis=0)
        return values

    def cost(self, searcher: Searcher) -> Cost:
        """Of one user's answer."""
        return cost_of(searcher, self.queries, self.cut, seconds=_COST)
