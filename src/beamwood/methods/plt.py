"""PLT: the probability of an item is the product of the probabilities of the steps to it.

Source: Jasinska et al., "Extreme F-measure maximization using sparse probability estimates" (PLT), section 4; as DTR
compares against it: a DIN scorer, the siblings of the path as negatives.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.tree.fit import fit_tree
from beamwood.fitting.tree.settings import TreeConfig
from beamwood.fitting.tree.task import Parts
from beamwood.retrieval.retriever import Retriever
from beamwood.sampling.levels import Siblings

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(TreeConfig):
    """PLT: nothing of its own to set. See `TreeConfig`."""


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train PLT on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: those of `methods.dtr.fit`.
    """
    config = config or Config()
    return fit_tree(
        split,
        config,
        lambda _: Parts(Siblings(), loss="binary", by_path=True),
        method="plt",
        **options,
    )
