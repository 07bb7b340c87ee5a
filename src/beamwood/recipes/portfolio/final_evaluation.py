"""The evaluation of a search's choice on the test users, once, at the end."""

from __future__ import annotations

from typing import Any

from beamwood.data.queries import Queries
from beamwood.evaluation.protocol import evaluate_both
from beamwood.recipes.portfolio.table import figures_of
from beamwood.recipes.portfolio.trials import Trials
from beamwood.recipes.portfolio.validation import num_validation_users
from beamwood.types import Searcher

__all__ = ["FinalEvaluation"]

# The share of the limit; where an evaluation takes longer, there are fewer test users, but at least this many.
_RESERVED, _FEWEST = 0.1, 200


class FinalEvaluation:
    """Evaluates the choice among `trials` on the test users, as many as there may be validation users."""

    def __init__(self, trials: Trials, test: Queries) -> None:
        self._trials, self._test, self._budget = trials, test, trials.budget
        self._most = min(len(test), num_validation_users(trials.wanted.time_limit))

    @property
    def reserve(self) -> float:
        """The seconds to reserve for it."""
        return min(self._seconds(), _RESERVED * self._budget.limit)

    def figures(self, searcher: Searcher) -> dict[str, Any]:
        """The metrics in both views, on fewer users if time is short."""
        seconds, left = self._seconds(), max(self._budget.left, 0.0)
        num = self._most if seconds <= left else max(_FEWEST, int(self._most * left / seconds))
        test = self._test.sample(num, seed=self._trials.wanted.seed)
        return figures_of(evaluate_both(searcher, test, ks=(self._trials.validation.cut,), batch_size=1024))

    def _seconds(self) -> float:
        """The estimated seconds with the best candidate so far, in both views."""
        best, validation = self._trials.best, self._trials.validation
        if best is None:
            return 0.0
        views = len(validation.measured.views)
        return self._trials.evaluation_seconds(best.name) * 2 / views * self._most / len(validation)
