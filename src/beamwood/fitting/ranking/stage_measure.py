"""Validation of a ranker behind a retriever, with cached candidates for the validation users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from beamwood.data.split import Queries
from beamwood.fitting.blend import StageWeights
from beamwood.training.budget import Budget, price_of
from beamwood.types import Searcher

__all__ = ["StageMeasure"]

# The share of the time left that searches for validation users may take.
_SHARE = 0.15


class StageMeasure:
    """The best blend of a ranker's scores with the retriever's, on `queries`; see `fitting.choose.Measure`.

    `make` retrieves candidates for queries. Fewer queries are used where they would take too much of `budget`.
    """

    def __init__(
        self,
        retriever: Searcher,
        queries: Queries,
        make: Callable[[Queries], StageWeights],
        *,
        num_candidates: int,
        budget: Budget,
    ) -> None:
        judged = queries.take(np.flatnonzero(queries.labels.lengths > 0))
        k, needs = min(num_candidates, retriever.num_items), retriever.needs
        if budget.limited and len(judged):
            # Two views: seen items kept and removed.
            price = 2 * price_of(
                lambda num: retriever.search(judged.take(np.arange(num)).query(needs), k), len(judged), budget.clock
            )
            room = max(1, int(len(judged) * _SHARE * budget.left / max(price, 1e-9)))
            if room < len(judged):
                budget.leave_out(f"{room} of {len(judged)} validation users choose: to retrieve takes {price:.0f} s")
                judged = queries = judged.take(np.arange(room))
        self.judged, self.make, self.whole = judged, make, make(queries)
        self._few: dict[int, StageWeights] = {}

    def __len__(self) -> int:
        return len(self.judged)

    def __call__(self, searcher: Searcher, num: int | None = None) -> dict[str, float]:
        if num is None:
            return self.whole.best(searcher)[1]
        if num not in self._few:
            self._few[num] = self.make(self.judged.take(np.arange(num)))
        return self._few[num].best(searcher)[1]
