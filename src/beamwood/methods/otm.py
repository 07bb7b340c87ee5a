"""OTM: trained on the nodes that a beam search compares, with labels that follow the model's own best children.

Source: Zhuo et al., "Learning Optimal Tree Models under Beam Search" (OTM), section 4.
"""

from __future__ import annotations

from typing import Unpack

from pydantic import Field

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.tree.fit import fit_tree
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.task import Parts
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.levels import BeamCandidates

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(TreeConfig):
    """OTM; the paper: a binary tree that JTM learned (tree=FOLDER), targets 1, num_candidates 300. See `TreeConfig`."""

    num_candidates: int = Field(
        300, ge=2, description="nodes compared a level: the children of a beam of this many over the branching"
    )


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train OTM on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: those of `methods.dtr.fit`.
    """
    config = config or Config()
    return fit_tree(
        split,
        config,
        lambda tree: Parts(
            BeamCandidates(max(1, config.num_candidates // tree.shape.branching)), loss="binary", labels="pseudo"
        ),
        method="otm",
        **options,
    )
