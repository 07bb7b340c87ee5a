"""DIN by brute force: no tree, every item is scored for every query; what a tree of the same scorer approximates.

Source: DTR, section 6.2 (the rival "DIN", there with two outputs, the probability that a user likes an item; here with
one and a sampled softmax over items, as the trees that it is compared with).
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
from beamwood.sampling.levels import UniformByLevel

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(TreeConfig):
    """DIN over all items; the paper: num_negatives 70. See `TreeConfig`, whose settings of a tree have no use here."""

    tree: str = Field("flat", pattern="^flat$", description="flat: no tree")
    num_negatives: int = Field(280, ge=1, description="items drawn: about as many as a tree draws on all its levels")
    tree_updates: int = Field(0, ge=0, le=0, description="there is no tree to update")


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train DIN on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: those of `methods.dtr.fit`.
    """
    config = config or Config()
    return fit_tree(
        split,
        config,
        lambda _: Parts(UniformByLevel([config.num_negatives])),
        method="din",
        **options,
    )
