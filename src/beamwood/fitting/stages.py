"""Two fitted retrievers put together: the first brings candidates, the second's score is added to its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from beamwood.data.split import Queries, Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.blend import StageWeights, Weights
from beamwood.fitting.choose import check_monitor, drawn
from beamwood.fitting.fitted import fitted_alike
from beamwood.fitting.options import Fit
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.retrieval.blend import Blend, Part
from beamwood.retrieval.ranked import RankingSearcher
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget, price_of
from beamwood.types import Searcher

__all__ = ["first_stage", "put_behind", "put_together", "stage_weights", "staged", "two_stage"]

# With a limit, no more of what is left goes to choosing weights, and so many users have a say at least.
_CHOOSING, _FEWEST = 0.8, 64


def staged(first: Searcher, second: Searcher, weights: Weights, *, num_candidates: int) -> Blend:
    """The first's candidates by the second's score plus `weights.first` times the first's, plus `weights.seen`.

    Who has no history is answered as by the first alone, where that has a fallback.
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

    The order is by the ranker's score plus `retriever_weight` times the retriever's, plus `seen_weight` for what was
    seen. Errors: `InputError` where they know other items or users, or `ranker` is two stages.
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
            "method": "two_stage",
            "config": {"num_candidates": num_candidates} | weights.facts(),
            "training": {},
            "stages": stages,
        },
    )


def put_behind(
    first: Retriever,
    second: Retriever,
    split: Split,
    config: StagesConfig | None = None,
    *,
    seed: int = 0,
    budget: Budget | None = None,
) -> Retriever:
    """`two_stage` with the weights that are best on `split.valid`, unless `config` (None: defaults) gives both as 0.

    Both must be fitted on the training part of this split. By a limited `budget` as many validation users have a say
    as there is time for. Errors: as `two_stage`, and without a validation label.
    """
    config, budget = config or StagesConfig(), budget or Budget()
    choose, num_candidates = config.choose, config.model.num_candidates
    both = two_stage(first, second, num_candidates=num_candidates)
    if choose.retriever_weight == 0 and choose.seen_weight == 0:
        return both
    fitted = None if isinstance(second.searcher, RankingSearcher) else second.searcher
    check_monitor(choose.monitor)

    def chosen(queries: Queries) -> tuple[Weights, dict[str, float]]:
        return stage_weights(first, queries, config, fitted).best(second.searcher)

    weights, metrics = chosen(_who_choose(split, choose.validation_users, seed, budget, chosen))
    both = two_stage(
        first, second, num_candidates=num_candidates, retriever_weight=weights.first, seen_weight=weights.seen
    )
    both.metadata["training"] |= weights.facts() | {f"valid/{choose.monitor}": metrics[choose.monitor]}
    return both


def _who_choose(split: Split, num_users: int, seed: int, budget: Budget, choose: Callable[[Queries], Any]) -> Queries:
    """So many validation queries, or as many as a limit has time for."""
    queries = drawn(split.valid, num_users, seed=seed)
    queries = queries.take(np.flatnonzero(queries.labels.lengths > 0))
    if not budget.limited or len(queries) <= _FEWEST:
        return queries
    shuffled = queries.take(np.random.default_rng(seed).permutation(len(queries)))
    whole = price_of(lambda num: choose(shuffled.take(np.arange(num))), len(queries), budget.clock)
    num = max(_FEWEST, int(len(queries) * min(1.0, _CHOOSING * max(budget.left, 0.0) / max(whole, 1e-9))))
    if num >= len(queries):
        return queries
    budget.leave_out(f"{num} of {len(queries)} validation users choose the weights of a sum")
    return shuffled.take(np.arange(num))


def first_stage(split: Split, config: StagesConfig) -> Retriever:
    """What `start.retriever` names. Errors: `InputError` without one, and on one fitted on another log or split."""
    if config.start.retriever is None:
        raise InputError("two_stage needs a fitted retriever; give its folder with --retriever")
    return fitted_alike(config.start.retriever, split)


def put_together(split: Split, config: StagesConfig, counting: Mapping[str, Fit], *, seed: int) -> Retriever:
    """`start.ranker`, a folder or one of `counting`, which is fitted then, behind `start.retriever`.

    Errors: as `put_behind`; `InputError` on folders fitted on another log or split, and on a name that is neither.
    """
    first, ranker = first_stage(split, config), config.start.ranker
    assert ranker is not None
    check_monitor(config.choose.monitor)
    if ranker in counting:
        second = counting[ranker](split)
    elif ranker.isidentifier() and not os.path.exists(ranker):
        raise InputError(
            f"start.ranker={ranker!r} is neither a folder nor a method that counts{nearest(ranker, counting)}"
        )
    else:
        second = fitted_alike(ranker, split)
    return put_behind(first, second, split, config, seed=seed)


def stage_weights(
    first: Retriever, queries: Queries, config: StagesConfig, fitted: Searcher | None = None
) -> StageWeights:
    """The retriever's candidates for validation queries."""
    choose = config.choose
    return StageWeights(
        first.searcher,
        queries,
        num_candidates=config.model.num_candidates,
        monitor=choose.monitor,
        first_weight=choose.retriever_weight,
        seen_weight=choose.seen_weight,
        fitted=fitted,
    )
