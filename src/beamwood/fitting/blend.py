"""The choice of a blend's weights on validation users: of the first part's score, and of seen items.

Shape legend: Q queries, K candidates, C candidates and seen items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.evaluation.metrics import METRICS, metrics_at, relevance
from beamwood.evaluation.results import VIEWS
from beamwood.fitting.settings import SeenChoiceSettings
from beamwood.fitting.validation import CUT, Choice, Monitor, measures_by_name
from beamwood.retrieval.searchers.blend import Part
from beamwood.retrieval.searchers.candidates import Candidates, add_seen, find_candidates, num_exact
from beamwood.retrieval.stored import MOST
from beamwood.types import Hits, IndexArray, ItemLists, Query, QueryNeeds, Searcher, SearchOptions

__all__ = ["SEEN_WEIGHTS", "BlendWeights", "StageCandidates", "best_seen_weight", "choice_of_seen"]

SEEN_WEIGHTS = (0.0, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0, -8.0, 8.0, -16.0, 16.0, -32.0, 32.0, -1024.0)
"""The weights tried for seen items, added to a logit; ties go to the first. The last one excludes seen items."""

# The weights tried for the first part's score, in units of its standard deviation among a query's candidates, as a
# ranker's scores are log-odds. The last one keeps the first part's order.
_FIRST_WEIGHTS = (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 256.0)
_QUERIES_AT_A_TIME = 256


@dataclass(frozen=True, slots=True)
class BlendWeights:
    """The weights of the first stage's score and of seen items in a blend of two stages."""

    first: float
    seen: float

    def facts(self) -> dict[str, float]:
        """Both weights by their names in a training record."""
        return {"retriever_weight": self.first, "seen_weight": self.seen}


def best_seen_weight(
    find: Callable[[Query, int], Candidates], needs: QueryNeeds, queries: Queries, monitor: str
) -> float:
    """The weight in `SEEN_WEIGHTS` with the best metric of `monitor` in the view of seen items kept; 0 without labels.

    `find(query, k)` returns unseen candidates, and seen items apart from them. `monitor`: one of `choose.MEASURED`, of
    any view. This weight is in none of the papers. Trees learn such weights in training, and only add to them.
    """
    metric, sums = Monitor.of(monitor).metric, np.zeros(len(SEEN_WEIGHTS))
    labelled = queries.labelled()
    for part in map(labelled.take, blocks(len(labelled), _QUERIES_AT_A_TIME)):
        found, labels = find(part.query(needs), CUT), part.labels.distinct()
        scores_QC = found.scores_BC(CUT)
        for place, weight in enumerate(SEEN_WEIGHTS):
            sums[place] += _sums(found.best(scores_QC, weight, CUT), labels)[metric]
    return SEEN_WEIGHTS[int(sums.argmax())]


def choice_of_seen(
    split: Split, choose: SeenChoiceSettings, seed: int, find: Callable[[Any, Query, int], Candidates]
) -> Choice | None:
    """The choice of the weight of seen items on validation users, None where the settings give it.

    `find`: the candidates of a searcher, as in `best_seen_weight`.
    """
    if choose.seen_weight is not None:
        return None
    queries = split.valid.sample(choose.validation_users, seed=seed)

    def best(searcher: Any, num: int) -> float:
        some = queries.sample(num, seed=seed)
        return best_seen_weight(lambda query, k: find(searcher, query, k), searcher.needs, some, choose.monitor)

    return Choice(best, len(queries))


@dataclass(frozen=True, slots=True)
class _Block:
    """Some of the queries with their candidates: `found` for each view, and "apart" from seen items.

    `apart_is_removed`: the candidates "apart" exclude the same items as "removed", so that one search serves both.
    """

    query: Query
    part: Queries
    labels: ItemLists
    found: dict[str, Candidates]
    apart_is_removed: bool

    def take(self, rows: IndexArray) -> _Block:
        """The given rows."""
        found = {name: each.take(rows) for name, each in self.found.items()}
        return _Block(self.query.take(rows), self.part.take(rows), self.labels.take(rows), found, self.apart_is_removed)


class StageCandidates:
    """The first stage's candidates for a set of queries, for which `best` chooses the weights of a second stage.

    The candidates do not depend on the second stage, so they are retrieved once. They are ordered by the second's score
    plus a weight times the first's: linear interpolation, as in text retrieval (Wang, Zhuang and Zuccon, "BERT-based
    Dense Retrievers Require Interpolation with BM25 for Effective Passage Retrieval"). The two-stage study uses the
    ranker's score alone. `first_weight` and `seen_weight` None: chosen. First the weight of the first's score with the
    best `monitor`, a metric of `choose.MEASURED`, ties to the smallest. Then the weight of seen items, of
    `SEEN_WEIGHTS`, by the same metric with seen items kept: a ranker whose negatives are unseen items is not trained on
    seen ones.
    """

    def __init__(
        self,
        first: Searcher,
        queries: Queries,
        *,
        num_candidates: int,
        monitor: str,
        first_weight: float | None,
        seen_weight: float | None,
    ) -> None:
        labelled = queries.labelled()
        if len(labelled) == 0:
            raise InputError(f"none of the {len(queries)} validation queries has a label; nothing can be measured")
        self.first, self.queries, self.monitor = first, labelled, monitor
        self.num_candidates = min(num_candidates, first.num_items)
        parts = map(labelled.take, blocks(len(labelled), _QUERIES_AT_A_TIME))
        self.blocks = [self._retrieve(part, apart=seen_weight != 0) for part in parts]
        self.first_weight, self.seen_weight = first_weight, seen_weight

    def take(self, rows: IndexArray) -> StageCandidates:
        """Those of some of its queries; `rows` are ascending."""
        some, lengths = copy(self), np.array([len(block.part) for block in self.blocks])
        stops = np.cumsum(lengths)
        of_blocks = zip(self.blocks, np.split(rows, np.searchsorted(rows, stops[:-1])), stops - lengths, strict=True)
        some.queries = self.queries.take(rows)
        some.blocks = [block.take(part - start) for block, part, start in of_blocks if len(part)]
        return some

    def best(
        self, second: Searcher, *, fitted: bool = False, num: int | None = None
    ) -> tuple[BlendWeights, dict[str, float]]:
        """Both weights for the scores of `second`, and the blend's metrics, named as in `choose.Validation`.

        `fitted`: `second` is a fitted model whose scores have any scale: weights are then in units of the standard
        deviation of its scores among a query's candidates, else of log-odds. `num`: use about the first `num` queries;
        None: all.
        """
        blocks = self._first_blocks(num)
        scores, unit = [self._scores(block, second) for block in blocks], 1.0
        if fitted:
            # Scores of seen items may lie far from the others.
            of_hits = [
                own["removed"][:, : self._hits(each, "removed").shape[1]]
                for each, own in zip(blocks, scores, strict=True)
            ]
            unit = _spread(np.concatenate(of_hits)) or 1.0
        means = _Means(self, blocks, scores)
        seen_weights = self.seen_weights(unit)
        seen = seen_weights[0]
        tried = [
            (weight, {view: means.of(view, BlendWeights(weight, seen)) for view in VIEWS})
            for weight in self.first_weights(unit)
        ]
        weight, views = max(tried, key=lambda pair: measures_by_name(pair[1])[self.monitor])
        name = Monitor.of(self.monitor).at(CUT)
        for other in seen_weights[1:]:
            # The weight of seen items has no effect where they are removed.
            kept = means.of("kept", BlendWeights(weight, other))
            if kept[name] > views["kept"][name]:
                seen, views = other, views | {"kept": kept}
        return BlendWeights(weight, seen), measures_by_name(views)

    def first_weights(self, unit: float = 1.0) -> tuple[float, ...]:
        """The weights of the first stage's score that are tried, in `unit`s of the second's scores."""
        if self.first_weight is not None:
            return (self.first_weight,)
        return _in_units(np.concatenate([block.found["removed"].hits.scores for block in self.blocks]), unit)

    def seen_weights(self, unit: float = 1.0) -> tuple[float, ...]:
        """The weights of seen items that are tried, in the same units."""
        tried = tuple(float(np.clip(unit * one, -MOST, MOST)) for one in SEEN_WEIGHTS)
        return tried if self.seen_weight is None else (self.seen_weight,)

    def _first_blocks(self, num: int | None) -> list[_Block]:
        """The blocks of the first `num` queries."""
        blocks, held = [], 0
        for block in self.blocks:
            if num is not None and held >= num:
                break
            blocks.append(block)
            held += len(block.part)
        return blocks

    def _retrieve(self, part: Queries, *, apart: bool) -> _Block:
        """The first stage's candidates for some queries: `num_candidates`, and at least as many as are evaluated."""
        first, query = self.first, part.query(self.first.needs)
        k = min(max(self.num_candidates, CUT), first.num_items)
        kept = SearchOptions(num_exact=num_exact(k, CUT))
        options = replace(kept, excluded=part.seen)
        found = {
            "kept": find_candidates(first, query, k, kept, apart=False),
            "removed": find_candidates(first, query, k, options, apart=False),
        }
        same = apart and _same_items(part.seen, part.histories)
        if same:
            found["apart"] = add_seen(first, query, found["removed"].hits)
        elif apart:
            found["apart"] = find_candidates(first, query, k, kept, apart=True)
        return _Block(query, part, part.labels.distinct(), found, same)

    def _hits(self, block: _Block, name: str) -> NDArray[np.int32]:
        return block.found[name].hits.items[:, : self.num_candidates]

    def _scores(self, block: _Block, second: Searcher) -> dict[str, NDArray[np.float32]]:
        """float32[Q, C] by view, the second's scores of the candidates and seen items."""
        query = block.part.query(second.needs)
        names = [name for name in block.found if name != "removed" or not block.apart_is_removed]
        scores = {name: block.found[name].scores_by(second, query, self.num_candidates) for name in names}
        if block.apart_is_removed:
            # The hits come first, then the seen items.
            scores["removed"] = scores["apart"][:, : self._hits(block, "removed").shape[1]]
        return scores


@dataclass(frozen=True, slots=True)
class _Means:
    """The mean metrics of a blend over the queries of `blocks`, by weights; `scores`: the second stage's, by block."""

    stages: StageCandidates
    blocks: Sequence[_Block]
    scores: Sequence[dict[str, NDArray[np.float32]]]

    def of(self, view: str, weights: BlendWeights) -> dict[str, float]:
        """The metrics of one view with these weights, by name."""
        name = "apart" if view == "kept" and weights.seen != 0 else view
        first, sums = Part(self.stages.first, weights.first), dict.fromkeys(METRICS, 0.0)
        for block, own in zip(self.blocks, self.scores, strict=True):
            found = block.found[name]
            totals_QC = first.weighted(block.query, found.scores_BC(self.stages.num_candidates)) + own[name]
            values = _sums(found.best(totals_QC, weights.seen, CUT), block.labels)
            sums = {metric: value + values[metric] for metric, value in sums.items()}
        num = sum(len(block.part) for block in self.blocks)
        return {f"{metric}@{CUT}": value / num for metric, value in sums.items()}


def _sums(hits: Hits, labels: ItemLists) -> dict[str, float]:
    """Each metric at `CUT`, summed over the queries."""
    values = metrics_at(relevance(hits.items, labels), labels.lengths, CUT)
    return {name: float(column.sum()) for name, column in values.items()}


def _same_items(seen: ItemLists, histories: ItemLists) -> bool:
    """Whether both hold the same items in each row."""
    one, other = seen.distinct(), histories.distinct()
    return np.array_equal(one.indptr, other.indptr) and np.array_equal(one.items, other.items)


def _in_units(scores_QK: NDArray[np.float32], unit: float) -> tuple[float, ...]:
    """`_FIRST_WEIGHTS` divided by the spread of the scores; only 0 where these are constant."""
    spread = _spread(scores_QK)
    return tuple(min(unit * weight / spread, MOST) for weight in _FIRST_WEIGHTS) if spread > 0 else (0.0,)


def _spread(scores_QK: NDArray[np.float32]) -> float:
    """The mean standard deviation of a query's finite scores; 0 without any."""
    scores_QK = np.where(np.isneginf(scores_QK), np.nan, scores_QK.astype(float))
    scores_QK = scores_QK[~np.isnan(scores_QK).all(axis=1)]
    return float(np.nanstd(scores_QK, axis=1).mean()) if len(scores_QK) else 0.0
