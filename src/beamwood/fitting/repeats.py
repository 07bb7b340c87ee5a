"""How a method of vectors is trained, and how much it counts for an item that the history holds it.

Source of the latter: none of the papers. A tree learns it while it trains (models/similarity.py), and what it has not
learned by the end is added then, as here.
"""

from __future__ import annotations

from typing import Any, Protocol, Unpack

import numpy as np

from beamwood.data.split import Queries, Split
from beamwood.evaluation.metrics import metrics_at, relevance
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.choose import CUT, drawn
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.run import SearchedTask, train
from beamwood.fitting.vectors.settings import VectorConfig
from beamwood.retrieval.apart import Apart
from beamwood.retrieval.index import INDEXES, Index
from beamwood.retrieval.retriever import Retriever
from beamwood.types import Query, Searcher

__all__ = ["REPEAT_WEIGHTS", "best_repeat_weight", "fit_vectors"]

REPEAT_WEIGHTS = (0.0, -1.0, 1.0, -2.0, 2.0, -4.0, 4.0, -8.0, 8.0, -16.0, 16.0, -32.0, 32.0, -1024.0)
"""Added to a logit: of equally good ones the first, which changes least. The last leaves out what was had."""

_QUERIES_AT_A_TIME = 1024


class ApartSearcher(Searcher, Protocol):
    """A searcher that can tell what a history holds from all else."""

    def apart(self, query: Query, k: int) -> Apart: ...


def fit_vectors(
    task: SearchedTask[Any],
    split: Split,
    config: VectorConfig,
    *,
    method: str,
    index: type[Index] | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """`train`, and the retriever of the best weights, which then get their `choose.seen_weight`.

    Validation searches exactly, the retriever by `index`; None: by that of the settings.
    """
    index = index or INDEXES[config.model.index]
    index(np.zeros((1, 2), np.float32))  # says what is missing before the training, not after
    training = train(task, split, config, task.searcher, method=method, **options)
    seed, searcher = options.get("seed", 0), task.searcher().indexed(index)
    choose = config.choose
    if choose.seen_weight is None:
        judged = drawn(split.valid, choose.validation_users, seed=seed)
        searcher.repeat_weight = best_repeat_weight(searcher, judged, choose.monitor)
    else:
        searcher.repeat_weight = choose.seen_weight
    training["repeat_weight"] = searcher.repeat_weight
    return build_retriever(searcher, split, method=method, config=config, seed=seed, training=training)


def best_repeat_weight(searcher: ApartSearcher, queries: Queries, monitor: str) -> float:
    """The weight with the best metric of `monitor` where consumed items are left in; 0 without queries with labels.

    `monitor`: one of `validate.MEASURED`, of whatever view.
    """
    name = monitor.split("/")[-1].split("@")[0]
    judged = queries.take(np.flatnonzero(queries.labels.lengths > 0))
    sums = np.zeros(len(REPEAT_WEIGHTS))
    for start in range(0, len(judged), _QUERIES_AT_A_TIME):
        part = judged.take(np.arange(start, min(start + _QUERIES_AT_A_TIME, len(judged))))
        apart, labels = searcher.apart(part.query(searcher.needs), CUT), part.labels.distinct()
        for place, weight in enumerate(REPEAT_WEIGHTS):
            relevant = relevance(apart.joined(weight, CUT).items, labels)
            sums[place] += metrics_at(relevant, labels.lengths, CUT)[name].sum()
    return REPEAT_WEIGHTS[int(sums.argmax())]
