"""Two fitted retrievers as two stages: the first finds candidates, and the second's score is added to its own."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from beamwood.data.split import Queries, Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.blend import StageWeights, Weights
from beamwood.fitting.choose import check_monitor, drawn
from beamwood.fitting.fitted import fitted_alike, method_of
from beamwood.fitting.options import Fit
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.retrieval.blend import Blend, Part
from beamwood.retrieval.ranked import RankingSearcher
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget, price_of
from beamwood.types import Searcher

__all__ = ["FirstStage", "first_stage", "put_behind", "put_together", "stage_weights", "staged", "two_stage"]

# The share of the time left that choosing weights may take under a limit, and the fewest users for it.
_CHOOSING, _FEWEST = 0.8, 64


def staged(first: Searcher, second: Searcher, weights: Weights, *, num_candidates: int) -> Blend:
    """The first's candidates, scored by the second's score plus `weights.first` times the first's, plus `weights.seen`.

    Empty histories are answered by the first alone, where it has a fallback.
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
    where `ranker` is two stages itself.
    """
    if not retriever.items.ids.equals(ranker.items.ids):
        raise InputError("retriever and ranker were fitted on other items; fit both on the same log")
    if isinstance(ranker.searcher, Blend) and ranker.searcher.is_staged:
        raise InputError("the ranker is two stages itself; give the folder of a ranker or of one retriever")
    same_users = (
        retriever.users is not None and ranker.users is not None and retriever.users.ids.equals(ranker.users.ids)
    )
    weights = Weights(retriever_weight, seen_weight)
    searcher = staged(retriever.searcher, ranker.searcher, weights, num_candidates=num_candidates)
    if searcher.needs.users and not same_users:
        raise InputError("retriever and ranker were fitted on other users; fit both on the same log")
    stages = {"retriever": retriever.metadata, "ranker": ranker.metadata}
    return Retriever(
        searcher=searcher,
        items=retriever.items,
        users=retriever.users,
        histories=retriever.histories,
        rejected=retriever.rejected,
        columns=retriever.columns,
        metadata={name: value for name, value in retriever.metadata.items() if name in ("data", "source", "split")}
        | {
            "method": f"{method_of(retriever)}+{method_of(ranker)}",
            "config": {"num_candidates": num_candidates} | weights.facts(),
            "training": {},
            "stages": stages,
        },
    )


class FirstStage:
    """A fitted retriever behind which others are put; its candidates for validation users are cached.

    All must be fitted on the training part of `split`. `config` None: defaults. Errors: an unknown monitor.
    """

    def __init__(
        self, retriever: Retriever, split: Split, config: StagesConfig | None = None, *, seed: int = 0
    ) -> None:
        self.retriever, self.config, self.seed = retriever, config or StagesConfig(), seed
        choose = self.config.choose
        check_monitor(choose.monitor)
        queries = drawn(split.valid, choose.validation_users, seed=seed)
        queries = queries.take(np.flatnonzero(queries.labels.lengths > 0))
        # Shuffled, so that the first queries are a random sample.
        self.queries = queries.take(np.random.default_rng(seed).permutation(len(queries)))
        self._few: dict[int, StageWeights] = {}
        self._bringing = 0.0
        self._brought: StageWeights | None = None

    def behind(self, second: Retriever, budget: Budget | None = None) -> Retriever:
        """`two_stage` with the best weights, unless the settings give both as 0.

        A limited `budget` uses as many validation users as fit. Errors: those of `two_stage`, and no validation label.
        """
        choose, num_candidates = self.config.choose, self.config.model.num_candidates
        both = two_stage(self.retriever, second, num_candidates=num_candidates)
        if choose.retriever_weight == 0 and choose.seen_weight == 0:
            return both
        weights, metrics = self._best(second, budget or Budget())
        both = two_stage(
            self.retriever,
            second,
            num_candidates=num_candidates,
            retriever_weight=weights.first,
            seen_weight=weights.seen,
        )
        both.metadata["training"] |= weights.facts() | {f"valid/{choose.monitor}": metrics[choose.monitor]}
        return both

    def _best(self, second: Retriever, budget: Budget) -> tuple[Weights, dict[str, float]]:
        """The weights, by as many users as fit the time limit, and their validation metrics."""
        fitted, whole = not isinstance(second.searcher, RankingSearcher), len(self.queries)
        num = whole
        if budget.limited and whole > _FEWEST:
            scoring = self._price(second, budget, fitted=fitted)
            at_once = scoring if self._brought else scoring + self._bringing
            num = max(_FEWEST, int(whole * min(1.0, _CHOOSING * max(budget.left, 0.0) / max(at_once, 1e-9))))
        if self._brought is None:
            self._brought = self._of(num)
        num = min(num, len(self._brought.queries))
        if num < whole:
            budget.leave_out(f"{num} of {whole} validation users choose the weights of a sum")
        return self._brought.best(second.searcher, fitted=fitted, num=num)

    def _price(self, second: Retriever, budget: Budget, *, fitted: bool) -> float:
        """The seconds of choosing with all users, without retrieving their candidates."""

        def bring(num: int) -> None:
            self._few[num] = self._of(num)

        if not self._few:
            self._bringing = price_of(bring, len(self.queries), budget.clock)
        return price_of(
            lambda num: self._few[num].best(second.searcher, fitted=fitted), len(self.queries), budget.clock
        )

    def _of(self, num: int) -> StageWeights:
        return stage_weights(self.retriever, self.queries.take(np.arange(num)), self.config)


def put_behind(
    first: Retriever,
    second: Retriever,
    split: Split,
    config: StagesConfig | None = None,
    *,
    seed: int = 0,
    budget: Budget | None = None,
) -> Retriever:
    """See `FirstStage.behind`."""
    return FirstStage(first, split, config, seed=seed).behind(second, budget)


def first_stage(split: Split, config: StagesConfig) -> Retriever:
    """The retriever of `start.retriever`. Errors: `InputError` without one, and on one of another log or split."""
    if config.start.retriever is None:
        raise InputError("two_stage needs a fitted retriever; give its folder with --retriever")
    return fitted_alike(config.start.retriever, split)


def put_together(split: Split, config: StagesConfig, counting: Mapping[str, Fit], *, seed: int) -> Retriever:
    """`start.ranker`, a folder or a method of `counting`, which is then fitted, behind `start.retriever`.

    Errors: as `put_behind`; `InputError` on folders fitted on another log or split, and on a name that is neither.
    """
    first, ranker = first_stage(split, config), config.start.ranker
    assert ranker is not None
    check_monitor(config.choose.monitor)
    if ranker in counting:
        second = counting[ranker](split)
    elif ranker.isidentifier() and not os.path.exists(ranker):
        raise InputError(
            f"start.ranker={ranker!r} is neither a folder nor a counting method{nearest(ranker, counting)}"
        )
    else:
        second = fitted_alike(ranker, split)
    return put_behind(first, second, split, config, seed=seed)


def stage_weights(first: Retriever, queries: Queries, config: StagesConfig) -> StageWeights:
    """The retriever's candidates for validation queries."""
    choose = config.choose
    return StageWeights(
        first.searcher,
        queries,
        num_candidates=config.model.num_candidates,
        monitor=choose.monitor,
        first_weight=choose.retriever_weight,
        seen_weight=choose.seen_weight,
    )
