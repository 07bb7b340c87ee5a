"""The most popular items of the training data, for everyone: what every method must beat."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from beamwood.data.split import Split
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.settings import MethodConfig
from beamwood.retrieval.popularity import PopularitySearcher
from beamwood.retrieval.retriever import Retriever

__all__ = ["Config", "fit"]


class Config(MethodConfig):
    """Popularity has nothing to choose."""


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Count the training users who took each item; repeats count once."""
    takers = np.bincount(split.train.histories.distinct().items, minlength=split.train.num_items)
    searcher = PopularitySearcher(takers)
    return build_retriever(searcher, split, method="popularity", config=config or Config(), seed=options.get("seed", 0))
