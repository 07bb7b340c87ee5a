"""OTM: trained on the candidates of a beam search, with pseudo labels from the model's best child of each node.

Source: Zhuo et al., "Learning Optimal Tree Models under Beam Search" (OTM), section 4.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.options import TreeOptions
from beamwood.fitting.tree.papers import DTR_STUDY
from beamwood.fitting.tree.settings import BeamLossSettings
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever
from beamwood.tree import Tree

__all__ = ["METHOD", "Config"]


class Config(TreeConfig):
    """See `TreeConfig`."""

    loss: BeamLossSettings = BeamLossSettings()


def fit(split: Split, config: Config, **options: Unpack[TreeOptions]) -> Retriever:
    """See `fit_tree`."""
    from beamwood.fitting.tree.fit import fit_tree
    from beamwood.fitting.tree.objective import TreeObjective
    from beamwood.losses.levels import LEVEL_LOSSES
    from beamwood.sampling.levels import BeamCandidates

    def objective(tree: Tree) -> TreeObjective:
        width = max(1, config.loss.num_candidates // tree.shape.branching)
        return TreeObjective(BeamCandidates(width), loss=LEVEL_LOSSES["binary"], labels="pseudo")

    return fit_tree(split, config, objective, method="otm", **options)


# DTR's section 6, except for the tree: there it is JTM's, which tree.start=FOLDER gives.
PAPER = {**DTR_STUDY, "loss.num_candidates": 300}

METHOD = Method(
    name="otm",
    summary="trained on the nodes that a beam search compares; a node's label is that of its best child",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
