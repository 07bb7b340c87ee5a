"""How much the retriever's score counts beside the ranker's: the weight that validation users like best.

Shape legend: Q queries, K candidates.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from beamwood.data.split import Queries
from beamwood.errors import InputError
from beamwood.evaluation.metrics import metrics_at, relevance
from beamwood.evaluation.protocol import VIEWS
from beamwood.methods.validate import CUT, named
from beamwood.retrieval.ranked import interpolated, retrieve
from beamwood.retrieval.top_k import join_hits
from beamwood.types import Askers, Hits, IndexArray, Searcher

__all__ = ["Interpolation"]

# Of the retriever's score over its standard deviation among a query's candidates, as a ranker's scores are log-odds.
# The last leaves the retriever's order as it is.
_WEIGHTS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 256.0)
_QUERIES_AT_A_TIME = 1024


class Interpolation:
    """The retriever's candidates for a set of queries, kept, as it does not change while a ranker trains.

    An order is by the ranker's score plus a weight times the retriever's: linear interpolation, which re-rankers of
    text gain by (Wang, Zhuang and Zuccon, "BERT-based Dense Retrievers Require Interpolation with BM25 for Effective
    Passage Retrieval"); the two-stage study has the ranker's score alone. `weight`: one weight; None: the one with the
    best `monitor`, a metric of `validate.MEASURED`, of equal ones the smallest.
    """

    def __init__(
        self, retriever: Searcher, queries: Queries, *, num_candidates: int, monitor: str, weight: float | None
    ) -> None:
        self.queries = queries.take(np.flatnonzero(queries.labels.lengths > 0))
        if len(self.queries) == 0:
            raise InputError(f"none of the {len(queries)} validation queries has a label; nothing can be measured")
        self.labels, self.monitor = self.queries.labels.distinct(), monitor
        self.num_candidates = min(num_candidates, retriever.num_items)
        self.candidates = {view: self._retrieved(retriever, exclude_consumed=view == "new") for view in VIEWS}
        self.weights = (weight,) if weight is not None else _weights(self.candidates["all"])

    def best(self, score: Callable[[Askers, IndexArray], NDArray[np.float32]]) -> tuple[float, dict[str, float]]:
        """The weight for a ranker's `score_askers`, and what validation says of it, named as `validation` does."""
        askers, num_ranked = self.queries.askers, self.num_candidates
        scores = {view: score(askers, hits.items[:, :num_ranked]) for view, hits in self.candidates.items()}
        measured = [(weight, self._measured(scores, weight)) for weight in self.weights]
        return max(measured, key=lambda pair: pair[1][self.monitor])

    def _measured(self, scores: dict[str, NDArray[np.float32]], weight: float) -> dict[str, float]:
        views = {}
        for view, candidates in self.candidates.items():
            relevant = relevance(interpolated(candidates, scores[view], weight, CUT).items, self.labels)
            values = metrics_at(relevant, self.labels.lengths, CUT)
            views[view] = {f"{name}@{CUT}": float(column.mean()) for name, column in values.items()}
        return named(views)

    def _retrieved(self, retriever: Searcher, *, exclude_consumed: bool) -> Hits:
        """What the retriever brings for the queries, in service and so here at least as many as are judged."""
        parts, k = [], min(max(self.num_candidates, CUT), retriever.num_items)
        for start in range(0, len(self.queries), _QUERIES_AT_A_TIME):
            part = self.queries.take(np.arange(start, min(start + _QUERIES_AT_A_TIME, len(self.queries))))
            excluded = part.consumed if exclude_consumed else None
            parts.append(retrieve(retriever, part.askers, k, excluded=excluded))
        return join_hits(parts, k)


def _weights(candidates: Hits) -> tuple[float, ...]:
    """`_WEIGHTS` over the mean standard deviation of a query's candidates' scores; 0 alone where they do not differ."""
    scores_QK = np.where(candidates.items >= 0, candidates.scores.astype(float), np.nan)
    scores_QK = scores_QK[(candidates.items >= 0).any(axis=1)]
    scale = float(np.nanstd(scores_QK, axis=1).mean()) if len(scores_QK) else 0.0
    return tuple(weight / scale for weight in _WEIGHTS) if scale > 0 else (0.0,)
