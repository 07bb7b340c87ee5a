"""The validation of a ranker behind a retriever, with cached candidates of the validation users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from beamwood.data.queries import Queries
from beamwood.fitting.blend import BlendWeights, StageCandidates
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.types import Searcher

__all__ = ["StageMeasure"]

# The share of the time left that searches for validation users may take.
_SHARE = 0.15


class StageMeasure:
    """The metrics of a ranker's best blend with the retriever, on `queries`; a `fitting.validation.Measure`.

    The first `num` queries are a random sample, drawn with `seed`.

    `retrieve`: retrieves the candidates of queries. Fewer queries are used where they would take too much of `budget`.
    """

    def __init__(
        self,
        retriever: Searcher,
        queries: Queries,
        retrieve: Callable[[Queries], StageCandidates],
        *,
        num_candidates: int,
        budget: Budget,
        seed: int,
    ) -> None:
        labelled, self.is_cut = queries.labelled(), False
        self._order = np.random.default_rng(seed).permutation(len(labelled))
        k, needs = min(num_candidates, retriever.num_items), retriever.needs
        if budget.limited and len(labelled):
            # Two views: seen items kept and removed.
            seconds = 2 * estimated_seconds(
                lambda num: retriever.search(labelled.take(self._order[:num]).query(needs), k),
                len(labelled),
                budget.clock,
            )
            num = budget.affordable(len(labelled), seconds, share=_SHARE, fewest=1)
            self.is_cut = num < len(labelled)
            if self.is_cut:
                budget.leave_out(
                    f"validation uses {num} of {len(labelled)} users: retrieving for all takes {seconds:.0f} s"
                )
                kept = self._order[:num]
                labelled = queries = labelled.take(np.sort(kept))
                # The same order among those that are kept.
                self._order = np.argsort(np.argsort(kept))
        self.labelled, self.whole = labelled, retrieve(queries)

    def __len__(self) -> int:
        return len(self.labelled)

    def __call__(self, searcher: Searcher, num: int | None = None) -> dict[str, float]:
        return self._of(num).best(searcher)[1]

    def choose(self, searcher: Searcher, num: int) -> BlendWeights:
        """The weights of the blend that is best on the first `num` queries."""
        return self._of(num).best(searcher)[0]

    def _of(self, num: int | None) -> StageCandidates:
        """The candidates of the first `num` queries."""
        return self.whole if num is None or num >= len(self) else self.whole.take(np.sort(self._order[:num]))
