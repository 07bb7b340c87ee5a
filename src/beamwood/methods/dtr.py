"""DTR: a tree and a DIN scorer, trained by softmax over the nodes of each level.

With `negatives="uniform"` DTR(U), with `negatives="tree"` DTR(T), with `labels="rectified"` besides DTR(T-RL).
Source: Liu et al., "Learning Deep Tree-based Retriever for Efficient Recommendation" (DTR), sections 4.1-4.4.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Literal, Unpack

from pydantic import Field, model_validator

from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.fitting.fitted import check_alike
from beamwood.fitting.options import TrainOptions, with_less_time
from beamwood.fitting.tree.fit import fit_tree
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.start import fit_estimator
from beamwood.fitting.tree.task import Parts
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.levels import LevelSampler, TreeNegativesByLevel, UniformByLevel
from beamwood.sampling.uniform import adaptive_counts
from beamwood.tree import Tree
from beamwood.types import Estimator, needs_users

__all__ = ["TRAINS", "Config", "fit", "make_parts"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


# The paper's, and walks as they were measured: each scores the children of every node on its way.
_DRAWS, _WALKS = 70, 20


class Config(TreeConfig):
    """DTR; the paper's own: num_negatives 70, binary tree, tree_updates 11 with stride 7. See `TreeConfig`."""

    negatives: Literal["uniform", "tree"] = Field("uniform", description="how the softmax of a level is sampled")
    num_negatives: int | None = Field(None, ge=1, description="draws a level; null: 70, of the tree's walks 20")
    depth_alpha: float = Field(0.0, ge=0, description="adaptive sampling of appendix I; 0 samples levels alike")
    labels: Literal["summed", "rectified", "one-step"] = Field(
        "summed", description="rectified: the paper's equation 14; one-step: the authors' program"
    )
    normalised_labels: bool = Field(False, description="divide rectified labels by their level's mass (definition 3)")
    estimator: str | None = Field(
        None,
        description="rectified labels: the method that is fitted first, or the folder of a fitted one (where it has a "
        "method's name: ./sasrec)",
    )

    @model_validator(mode="after")
    def _together(self) -> Config:
        if self.labels == "summed" and self.estimator is not None:
            raise ValueError("an estimator is for labels=rectified or one-step; leave it out or set labels")
        if self.labels == "summed" and self.normalised_labels:
            raise ValueError("normalised_labels is for labels=rectified")
        if self.labels == "one-step" and self.normalised_labels:
            raise ValueError("normalised_labels is for labels=rectified: one-step labels have no mass of a level")
        if self.negatives == "tree" and self.depth_alpha:
            raise ValueError("depth_alpha is for negatives=uniform: a walk draws as many nodes on every level")
        return self


def make_parts(config: Config, tree: Tree, estimator: Estimator | None) -> Parts:
    """The sampler and the label rule of a configuration."""
    sampler: LevelSampler
    if config.negatives == "tree":
        sampler = TreeNegativesByLevel(config.num_negatives or _WALKS)
    else:
        draws = config.num_negatives or _DRAWS
        sampler = UniformByLevel(adaptive_counts(draws, tree.shape.depth, config.depth_alpha))
    normalised = config.normalised_labels
    return Parts(sampler, loss="softmax", labels=config.labels, estimator=estimator, normalised=normalised)


def fit(
    split: Split,
    config: Config | None = None,
    *,
    estimator: Estimator | Retriever | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """Train DTR on `split.train`, keeping the weights and the tree that are best on `split.valid`.

    `estimator`: for rectified labels, a retriever of the same split, or what scores its items by index
    (`types.Estimator`, as every searcher is); else `config.estimator` names it (by default SASRec, trained first on
    the same data). `time_limit` in seconds covers both, a third of it at most for the estimator. Errors: `InputError`
    where the log is too short to train on, or the estimator is of another split, knows other items, or users alone.
    """
    config = config or Config()
    if isinstance(estimator, Retriever):
        check_alike(estimator, "the estimator", split)
        estimator = estimator.searcher
    if estimator is not None and not isinstance(estimator, Estimator):
        raise InputError(
            f"estimator={estimator!r} is no retriever and scores no items; a method's name or a folder is a setting: "
            "config={'labels': 'rectified', 'estimator': ...}"
        )
    if config.labels == "summed" or estimator is not None:
        return _fit(split, config, estimator, **options)
    run, limit = options.get("run"), options.get("time_limit")
    third: TrainOptions = {**options, "time_limit": None if limit is None else limit / 3}
    # The estimator's own run is inside this one's folder.
    with nullcontext() if run is None else run.held(resume=options.get("resume", False)):
        estimator, seconds = fit_estimator(config.estimator or "sasrec", split, **third)
        return _fit(split, config, estimator, **with_less_time(options, seconds))


def _fit(split: Split, config: Config, estimator: Estimator | None, **options: Unpack[TrainOptions]) -> Retriever:
    if estimator is not None and needs_users(estimator):
        raise InputError("the estimator knows users, not histories alone; give another, such as estimator=sasrec")
    return fit_tree(split, config, lambda tree: make_parts(config, tree, estimator), method="dtr", **options)
