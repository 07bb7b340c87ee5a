"""TDM: each node of a level is liked or not, on its own; the tree is learned by k-means of the item vectors.

Source: Zhu et al., "Learning Tree-based Deep Model for Recommender Systems" (TDM), sections 3.2 and 3.4; the settings
that DTR compares against in its section 6.
"""

from __future__ import annotations

from typing import Literal, Unpack

from pydantic import Field

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.tree.fit import fit_tree
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.task import Parts
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.levels import DistinctNegatives

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(TreeConfig):
    """TDM; in the papers a binary tree, targets 1, num_negatives 6, 4 tree updates. See `TreeConfig`."""

    num_negatives: int = Field(
        48,
        ge=1,
        description="different nodes drawn a level, targets among them not counted; the papers: 3 to 6 a target",
    )
    tree_updates: int = Field(1, ge=0, description="how often the tree is learned anew, evenly over the run")
    learner: Literal["softmax", "binary", "kmeans"] = "kmeans"


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train TDM on `split.train`, keeping the weights and the tree that are best on `split.valid`.

    Errors: those of `methods.dtr.fit`.
    """
    config = config or Config()
    return fit_tree(
        split,
        config,
        lambda tree: Parts(DistinctNegatives([config.num_negatives] * tree.shape.depth), loss="binary"),
        method="tdm",
        **options,
    )
