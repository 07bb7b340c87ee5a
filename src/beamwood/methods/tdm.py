"""TDM: independent binary classification of each node; the tree is learned by k-means of the item vectors.

Source: Zhu et al., "Learning Tree-based Deep Model for Recommender Systems" (TDM), sections 3.2 and 3.4; preset
`paper`: the settings that DTR compares against in its section 6.
"""

from __future__ import annotations

from functools import partial
from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.options import TreeOptions
from beamwood.fitting.tree.papers import DTR_STUDY, TREE_STEPS
from beamwood.fitting.tree.settings import DrawnLossSettings, TreeSettings
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(TreeConfig):
    """TDM. See `TreeConfig`.

    Negatives are distinct nodes of a level, without targets; the papers draw 3 to 6 a target.
    """

    tree: TreeSettings = TreeSettings(updates=1, learner="kmeans")
    loss: DrawnLossSettings = DrawnLossSettings(num_negatives=48)


def fit(split: Split, config: Config, **options: Unpack[TreeOptions]) -> Retriever:
    """See `fit_tree`."""
    from beamwood.fitting.tree.binary import binary_objective
    from beamwood.fitting.tree.fit import fit_tree

    return fit_tree(split, config, partial(binary_objective, config.loss.num_negatives), method="tdm", **options)


# DTR's section 6: 6 negatives on MovieLens and Tmall, 5 on Amazon, 3 on MIND; "4 iterations": 3 updates.
# Without TDM's own network: means of windows below a two-class softmax.
PAPER = {**DTR_STUDY, "tree.updates": 3, "loss.num_negatives": 6, "loop.max_steps": 4 * TREE_STEPS}

METHOD = Method(
    name="tdm",
    summary="binary classification of each node; the tree is learned by k-means of item vectors",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
