"""The fit of every vector method: training, the index, and the weight of seen items."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Unpack

from beamwood.data.split import Split
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.blend import choice_of_seen
from beamwood.fitting.options import TrainOptions, with_budget
from beamwood.fitting.run import train
from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.settings import SeenConfig
from beamwood.fitting.timed_validation import Later
from beamwood.fitting.vectors.indexing import IndexBuilder, blend_with_seen
from beamwood.fitting.vectors.settings import VectorConfig
from beamwood.retrieval.index import Index
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.candidates import find_candidates
from beamwood.training.budget import Budget

__all__ = ["fit_searched", "fit_vectors"]


def fit_vectors(
    task: SearchedTask[Any],
    split: Split,
    config: VectorConfig,
    *,
    method: str,
    index: type[Index] | None = None,
    evaluate_start: bool = False,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train, index the vectors of the best weights, choose the weight of seen items, and build the retriever.

    Validation searches exactly; the retriever uses `index`, None: that of the settings. `evaluate_start`: see
    `LoopConfig`.
    """
    # Created first, so that a missing extra raises an error before the training.
    builder = IndexBuilder(split, config.index, index=index, seed=options.get("seed", 0))
    return fit_searched(
        task,
        split,
        config,
        method=method,
        later=builder.estimate,
        finish=builder.build,
        evaluate_start=evaluate_start,
        **options,
    )


def fit_searched(
    task: SearchedTask[Any],
    split: Split,
    config: SeenConfig,
    *,
    method: str,
    later: Later | None = None,
    finish: Callable[[Any, Budget], Any] = lambda searcher, budget: searcher,  # noqa: ARG005
    evaluate_start: bool = False,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train, complete the searcher by `finish`, choose the weight of seen items, and build the retriever.

    `finish(searcher, budget)`: the final searcher of the best weights; `later`: estimates its seconds.
    """
    seed, options = options.get("seed", 0), with_budget(options)
    choice = choice_of_seen(split, config.choose, seed, functools.partial(find_candidates, apart=True))
    training = train(
        task, split, config, method=method, choice=choice, later=later, evaluate_start=evaluate_start, **options
    )
    searcher = finish(task.searcher(), Budget.of(options.get("time_limit")))
    seen_weight = (config.choose.seen_weight or 0.0) if choice is None else choice.made_for(searcher)
    training["seen_weight"] = seen_weight
    blend = blend_with_seen(searcher, seen_weight, split)
    return build_retriever(blend, split, method=method, config=config, seed=seed, training=training)
