"""JTM: as TDM, with a tree learned to maximise the likelihood under the model itself.

Source: Zhu et al., "Joint Optimization of Tree-based Index and Deep Model for Recommender Systems" (JTM), section 3.2.
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
    """JTM. See `TreeConfig`.

    Negatives are distinct nodes of a level, without targets; the papers draw 3 to 6 a target.
    """

    tree: TreeSettings = TreeSettings(updates=1, learner="binary")
    loss: DrawnLossSettings = DrawnLossSettings(num_negatives=48)


def fit(split: Split, config: Config, **options: Unpack[TreeOptions]) -> Retriever:
    """See `fit_tree`."""
    from beamwood.fitting.tree.binary import binary_objective
    from beamwood.fitting.tree.fit import fit_tree

    return fit_tree(split, config, partial(binary_objective, config.loss.num_negatives), method="jtm", **options)


# DTR's section 6: 6 negatives on MovieLens and Tmall, 5 on Amazon, 3 on MIND; "12 iterations": 11 updates.
PAPER = {
    **DTR_STUDY,
    "tree.updates": 11,
    "tree.stride": 7,
    "loss.num_negatives": 6,
    "loop.max_steps": 12 * TREE_STEPS,
}

METHOD = Method(
    name="jtm",
    summary="as `tdm`, with a tree learned by the likelihood of the model",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
