"""The most popular items of the training data, the same for every user."""

from __future__ import annotations

import numpy as np

from beamwood.data.split import Split
from beamwood.fitting.counting import interactions
from beamwood.fitting.settings import MethodConfig
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.training.budget import Budget

__all__ = ["METHOD", "Config"]


class Config(MethodConfig):
    """Popularity has no settings."""


def build(split: Split, config: Config, seed: int, budget: Budget) -> PopularitySearcher:
    """Count the training users who took each item, or sum their weights; repeats count once."""
    del config, seed, budget
    train = split.train
    taken = interactions(train.histories, train.num_items, weights=train.weights)
    return PopularitySearcher(np.asarray(taken.sum(axis=0)).ravel())


METHOD = Method(
    name="popularity",
    summary="the most popular items, the same for every user",
    Config=Config,
    build=build,
    needs=Needs(weighs=True),
)
