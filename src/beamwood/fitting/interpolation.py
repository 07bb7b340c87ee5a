"""How much the retriever's score, and what was had, count beside the ranker's: what validation users like best.

Shape legend: Q queries, K candidates.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.data.split import Queries
from beamwood.errors import InputError
from beamwood.evaluation.metrics import metrics_at, relevance
from beamwood.evaluation.protocol import VIEWS
from beamwood.fitting.choose import CUT, named
from beamwood.fitting.repeats import REPEAT_WEIGHTS
from beamwood.retrieval.ranked import interpolated, with_repeats
from beamwood.retrieval.stored import MOST
from beamwood.retrieval.top_k import join_hits
from beamwood.types import Hits, Searcher, SearchOptions, among

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
    best `monitor`, a metric of `validate.MEASURED`, of equal ones the smallest. Then `repeat_weight`, added where the
    history holds a candidate, likewise by the same metric with consumed items left in, of `REPEAT_WEIGHTS`: a ranker
    whose negatives are unseen items says nothing of those that were had. What is tried is in units of a log-odds, or
    with `fitted`, whose scores may be anything, of the standard deviation of these among a query's candidates.
    """

    def __init__(
        self,
        retriever: Searcher,
        queries: Queries,
        *,
        num_candidates: int,
        monitor: str,
        weight: float | None,
        repeat_weight: float | None,
        fitted: Searcher | None = None,
    ) -> None:
        self.queries = queries.take(np.flatnonzero(queries.labels.lengths > 0))
        if len(self.queries) == 0:
            raise InputError(f"none of the {len(queries)} validation queries has a label; nothing can be measured")
        self.labels, self.monitor = self.queries.labels.distinct(), monitor
        self.num_candidates = min(num_candidates, retriever.num_items)
        self.candidates = {view: self._retrieved(retriever, exclude_consumed=view == "new") for view in VIEWS}
        self.had = {
            view: among(hits.items[:, : self.num_candidates], self.queries.histories)
            for view, hits in self.candidates.items()
        }
        # What was had may stand far from the others.
        unit, unseen = 1.0, self.candidates["new"]
        if fitted is not None:
            unit = (
                _spread(fitted.score(self.queries.query(fitted.needs), unseen.items[:, : self.num_candidates])) or 1.0
            )
        self.weights = (weight,) if weight is not None else _weights(unseen.scores, unit)
        tried = tuple(float(np.clip(unit * one, -MOST, MOST)) for one in REPEAT_WEIGHTS)
        self.repeat_weights = tried if repeat_weight is None else (repeat_weight,)

    def best(self, ranker: Searcher) -> tuple[dict[str, float], dict[str, float]]:
        """Both weights for the scores of `ranker`, by the names that `TwoStageSearcher` gives them, and what
        validation says of them, named as `validation` does."""
        query, num_ranked = self.queries.query(ranker.needs), self.num_candidates
        scores = {view: ranker.score(query, hits.items[:, :num_ranked]) for view, hits in self.candidates.items()}
        first = self.repeat_weights[0]
        tried = [
            (weight, {view: self._means(view, scores[view], weight, first) for view in VIEWS})
            for weight in self.weights
        ]
        weight, views = max(tried, key=lambda pair: named(pair[1])[self.monitor])
        name, repeat = self.monitor.split("/")[-1], first
        for other in self.repeat_weights[1:]:
            means = self._means("all", scores["all"], weight, other)
            if means[name] > views["all"][name]:
                repeat, views = other, views | {"all": means}
        if repeat != first:
            views |= {"new": self._means("new", scores["new"], weight, repeat)}
        return {"retriever_weight": weight, "repeat_weight": repeat}, named(views)

    def _means(self, view: str, scores_QK: NDArray[np.float32], weight: float, repeat: float) -> dict[str, float]:
        candidates = self.candidates[view]
        found = interpolated(candidates, with_repeats(scores_QK, self.had[view], repeat), weight, CUT)
        values = metrics_at(relevance(found.items, self.labels), self.labels.lengths, CUT)
        return {f"{name}@{CUT}": float(column.mean()) for name, column in values.items()}

    def _retrieved(self, retriever: Searcher, *, exclude_consumed: bool) -> Hits:
        """What the retriever brings for the queries, in service and so here at least as many as are judged."""
        parts, k = [], min(max(self.num_candidates, CUT), retriever.num_items)
        for start in range(0, len(self.queries), _QUERIES_AT_A_TIME):
            part = self.queries.take(np.arange(start, min(start + _QUERIES_AT_A_TIME, len(self.queries))))
            excluded = part.consumed if exclude_consumed else None
            parts.append(retriever.search(part.query(retriever.needs), k, SearchOptions(excluded)))
        return join_hits(parts, k)


def _weights(scores_QK: NDArray[np.float32], unit: float) -> tuple[float, ...]:
    """`_WEIGHTS` in units of a ranker, for candidates' scores; 0 alone where these do not differ."""
    spread = _spread(scores_QK)
    return tuple(min(unit * weight / spread, MOST) for weight in _WEIGHTS) if spread > 0 else (0.0,)


def _spread(scores_QK: NDArray[np.float32]) -> float:
    """The mean standard deviation of a query's scores, those of -inf left out; 0 where there is none."""
    scores_QK = np.where(np.isneginf(scores_QK), np.nan, scores_QK.astype(float))
    scores_QK = scores_QK[~np.isnan(scores_QK).all(axis=1)]
    return float(np.nanstd(scores_QK, axis=1).mean()) if len(scores_QK) else 0.0
