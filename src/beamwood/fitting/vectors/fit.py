"""How every method of vectors is trained, and what answers in the end: a blend of its searcher with what was seen."""

from __future__ import annotations

import functools
from typing import Any, Unpack

import numpy as np

from beamwood.data.split import Split
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.blend import choice_of_seen
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.run import SearchedTask, train
from beamwood.fitting.vectors.settings import VectorConfig
from beamwood.retrieval.blend import Blend, Part
from beamwood.retrieval.candidates import bring
from beamwood.retrieval.index import INDEXES, Index
from beamwood.retrieval.popularity import PopularitySearcher
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.vectors import VectorSearcher

__all__ = ["fit_vectors"]


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
    """`train`, and the retriever of the best weights, which then get their `choose.seen_weight`.

    Validation searches exactly, the retriever by `index`; None: by that of the settings. `evaluate_start`: see
    `LoopConfig`.
    """
    index = index or INDEXES[config.model.index]
    index(np.zeros((1, 2), np.float32))  # says what is missing before the training, not after
    seed = options.get("seed", 0)
    choice = choice_of_seen(split, config.choose, seed, functools.partial(bring, apart=True))
    training = train(task, split, config, method=method, choice=choice, evaluate_start=evaluate_start, **options)
    searcher = task.searcher().indexed(index)
    seen_weight = (config.choose.seen_weight or 0.0) if choice is None else choice.of(searcher)
    training["seen_weight"] = seen_weight
    blend = _answering(searcher, seen_weight, split)
    return build_retriever(blend, split, method=method, config=config, seed=seed, training=training)


def _answering(searcher: VectorSearcher, seen_weight: float, split: Split) -> Blend:
    """The searcher with what was seen, and with the most popular items for an empty history, which has no vector.

    They are counted in all of the log, as the retriever knows its histories; no query of a split is without one.
    """
    if searcher.needs.users and not searcher.needs.or_history:
        return Blend([Part(searcher)], seen_weight=seen_weight)
    counts = np.bincount(split.dataset.histories.items, minlength=searcher.num_items)
    return Blend([Part(searcher, gate="history")], seen_weight=seen_weight, fallback=PopularitySearcher(counts))
