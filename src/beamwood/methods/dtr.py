"""DTR: a tree and a DIN scorer, trained by softmax over the nodes of each level.

With `loss.negatives="uniform"` DTR(U), with "tree" DTR(T), with `loss.labels="rectified"` besides DTR(T-RL).
Source: Liu et al., "Learning Deep Tree-based Retriever for Efficient Recommendation" (DTR), sections 4.1-4.4.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.tree.options import TreeOptions
from beamwood.fitting.tree.settings import DtrConfig
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever
from beamwood.types import Estimator

__all__ = ["METHOD", "Config"]


class Config(DtrConfig):
    """DTR; the paper's own: loss.num_negatives 70, binary tree, tree.updates 11 with stride 7. See `TreeConfig`."""


def fit(
    split: Split,
    config: Config,
    *,
    estimator: Estimator | Retriever | None = None,
    **options: Unpack[TreeOptions],
) -> Retriever:
    """As `fit_dtr`; `loss.estimator` may name any other method."""
    from beamwood.fitting.tree.dtr import fit_dtr
    from beamwood.methods import every

    return fit_dtr(split, config, every(), estimator=estimator, **options)


METHOD = Method(
    name="dtr",
    summary="DIN over the nodes of a tree, softmax over each level: DTR(U); with `loss.negatives=tree` DTR(T), with "
    "`loss.labels=rectified` too DTR(T-RL)",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
)
