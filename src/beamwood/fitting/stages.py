"""Two fitted models as two stages: the first finds candidates, and both scores are added to order them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.blend import BlendWeights, StageCandidates
from beamwood.fitting.fitted import load_fitted, method_of
from beamwood.fitting.options import Fit
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.fitting.validation import check_monitor
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.ranked import RankingSearcher
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.types import Searcher

__all__ = [
    "FirstStage",
    "blend_of_stages",
    "combine_fitted",
    "first_stage",
    "put_behind",
    "stage_candidates",
    "two_stage",
]

# The share of the time left that choosing weights may take under a limit, and the fewest queries for it.
_SHARE, _FEWEST = 0.8, 64
# The share of a limit that counting behind a fitted model may take.
_COUNTING = 0.5


def blend_of_stages(first: Searcher, second: Searcher, weights: BlendWeights, *, num_candidates: int) -> Blend:
    """The blend of two stages.

    The first's candidates are ordered by the second's score plus `weights.first` times the first's, plus `weights.seen`
    for seen items. Empty histories are answered by the first's fallback, where it has one.
    """
    own = first if isinstance(first, Blend) else Blend([Part(first)])
    parts = [Part(first, weights.first, gate=own.parts[0].gate), Part(second)]
    return Blend(parts, seen_weight=weights.seen, num_candidates=num_candidates, fallback=own.fallback)


def two_stage(
    retriever: Retriever,
    ranker: Retriever,
    *,
    num_candidates: int = 100,
    retriever_weight: float = 0.0,
    seen_weight: float = 0.0,
) -> Retriever:
    """Put a fitted ranker, or another fitted retriever, behind a fitted retriever of the same items.

    Candidates are ordered by the ranker's score plus `retriever_weight` times the retriever's, plus `seen_weight` for
    seen items. The method is named as a sum, such as "dtr+ease". Errors: `InputError` on different items or users, or
    where `ranker` has two stages itself.
    """
    if not retriever.items.ids.equals(ranker.items.ids):
        raise InputError("retriever and ranker were fitted on other items; fit both on the same log")
    if isinstance(ranker.searcher, Blend) and ranker.searcher.is_staged:
        raise InputError("the ranker has two stages itself; give the folder of a ranker or of one retriever")
    same_users = (
        retriever.users is not None and ranker.users is not None and retriever.users.ids.equals(ranker.users.ids)
    )
    weights = BlendWeights(retriever_weight, seen_weight)
    searcher = blend_of_stages(retriever.searcher, ranker.searcher, weights, num_candidates=num_candidates)
    if searcher.needs.users and not same_users:
        raise InputError("retriever and ranker were fitted on other users; fit both on the same log")
    stages = {"retriever": retriever.metadata, "ranker": ranker.metadata}
    return replace(
        retriever,
        searcher=searcher,
        metadata={name: value for name, value in retriever.metadata.items() if name in ("data", "source", "split")}
        | {
            "method": f"{method_of(retriever)}+{method_of(ranker)}",
            "config": {"num_candidates": num_candidates} | weights.facts(),
            "training": {},
            "stages": stages,
        },
    )


class FirstStage:
    """A fitted retriever as the first stage of blends; its candidates for validation users are retrieved once.

    All models must be fitted on the training part of `split`. `config` None: defaults. Errors: an unknown monitor.
    """

    def __init__(
        self, retriever: Retriever, split: Split, config: StagesConfig | None = None, *, seed: int = 0
    ) -> None:
        self.retriever, self.config, self.seed = retriever, config or StagesConfig(), seed
        choose = self.config.choose
        check_monitor(choose.monitor)
        queries = split.valid.sample(choose.validation_users, seed=seed).labelled()
        # Shuffled, so that the first queries are a random sample.
        self.queries = queries.take(np.random.default_rng(seed).permutation(len(queries)))
        self._candidates: StageCandidates | None = None
        # Of the few queries on which times are measured, by their number, and the estimated seconds for all queries.
        self._timed: dict[int, StageCandidates] = {}
        self._retrieve_seconds = 0.0

    def behind(self, second: Retriever, budget: Budget | None = None) -> Retriever:
        """`two_stage` with the best weights, unless the settings give both as 0.

        A limited `budget` uses as many validation users as fit. Errors: those of `two_stage`, and no validation label.
        """
        choose = self.config.choose
        put = partial(two_stage, self.retriever, second, num_candidates=self.config.model.num_candidates)
        both = put()
        if choose.retriever_weight == 0 and choose.seen_weight == 0:
            return both
        weights, metrics = self._best(second, budget or Budget())
        both = put(retriever_weight=weights.first, seen_weight=weights.seen)
        both.metadata["training"] |= weights.facts() | {f"valid/{choose.monitor}": metrics[choose.monitor]}
        return both

    def _best(self, second: Retriever, budget: Budget) -> tuple[BlendWeights, dict[str, float]]:
        """The weights that are best on as many users as fit the time limit, and their validation metrics."""
        fitted, num_all = not isinstance(second.searcher, RankingSearcher), len(self.queries)
        num = num_all
        if budget.limited and num_all > _FEWEST:
            seconds = self._choice_seconds(second, budget, fitted=fitted)
            if self._candidates is None:
                seconds += self._retrieve_seconds
            num = budget.affordable(num_all, seconds, share=_SHARE, fewest=_FEWEST)
        if self._candidates is None:
            self._candidates = self._retrieve(num)
        num = min(num, len(self._candidates.queries))
        if num < num_all:
            budget.leave_out(f"the weights of a sum are chosen on {num} of {num_all} validation users")
        return self._candidates.best(second.searcher, fitted=fitted, num=num)

    def _choice_seconds(self, second: Retriever, budget: Budget, *, fitted: bool) -> float:
        """The estimated seconds of the choice on all queries, without retrieving candidates."""

        def retrieve(num: int) -> None:
            self._timed[num] = self._retrieve(num)

        def choose(num: int) -> None:
            self._timed[num].best(second.searcher, fitted=fitted)

        if not self._timed:
            self._retrieve_seconds = estimated_seconds(retrieve, len(self.queries), budget.clock)
        return estimated_seconds(choose, len(self.queries), budget.clock)

    def _retrieve(self, num: int) -> StageCandidates:
        return stage_candidates(self.retriever, self.queries.take(np.arange(num)), self.config)


def put_behind(
    first: Retriever,
    second: Retriever,
    split: Split,
    config: StagesConfig | None = None,
    *,
    seed: int = 0,
    budget: Budget | None = None,
) -> Retriever:
    """`FirstStage.behind` for a single second stage."""
    return FirstStage(first, split, config, seed=seed).behind(second, budget)


def first_stage(split: Split, config: StagesConfig) -> Retriever:
    """The fitted retriever in `start.retriever`. Errors: `InputError` on another log or split."""
    assert config.start.retriever is not None
    return load_fitted(config.start.retriever, split)


def combine_fitted(
    split: Split, config: StagesConfig, counting: Mapping[str, Fit], *, seed: int, budget: Budget
) -> Retriever:
    """`start.ranker` put behind `start.retriever`: a fitted folder, or one of the methods `counting`, fitted here.

    What `budget` leaves no time for is listed in `training.left_out`. Errors: as `put_behind`; `InputError` on folders
    fitted on another log or split, and on a name that is neither.
    """
    first, ranker = first_stage(split, config), config.start.ranker
    assert ranker is not None
    check_monitor(config.choose.monitor)
    if ranker in counting:
        second = counting[ranker](split, time_limit=budget.share(_COUNTING, ranker))
    elif ranker.isidentifier() and not os.path.exists(ranker):
        raise InputError(
            f"start.ranker={ranker!r} is neither a folder nor a counting method{nearest(ranker, counting)}"
        )
    else:
        second = load_fitted(ranker, split)
    both = put_behind(first, second, split, config, seed=seed, budget=budget)
    both.metadata["training"] |= budget.notes()
    return both


def stage_candidates(first: Retriever, queries: Queries, config: StagesConfig) -> StageCandidates:
    """The retriever's candidates for validation queries, and the settings by which weights are chosen."""
    choose = config.choose
    return StageCandidates(
        first.searcher,
        queries,
        num_candidates=config.model.num_candidates,
        monitor=choose.monitor,
        first_weight=choose.retriever_weight,
        seen_weight=choose.seen_weight,
    )
