"""DTR: a tree and a DIN scorer, trained by softmax over the nodes of each level.

DTR(U) with `loss.negatives="uniform"`, DTR(T) with "tree", DTR(T-RL) with `loss.labels="rectified"` in addition.
Source: Liu et al., "Learning Deep Tree-based Retriever for Efficient Recommendation" (DTR), sections 4.1-4.4.

Presets, by section 6: `paper` is DTR(T-RL), `paper-t` DTR(T), `paper-u` DTR(U), each of 12 trees; `program` is
DTR(T-RL) with the settings of the authors' program where these differ from the paper. It still differs from that
program: the last layer has neither normalisation nor activation, and walks are drawn by scores without dropout.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.tree.config import DtrConfig
from beamwood.fitting.tree.options import TreeOptions
from beamwood.fitting.tree.papers import DTR_STUDY, TREE_STEPS
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever
from beamwood.types import Estimator

__all__ = ["METHOD", "Config"]


class Config(DtrConfig):
    """See `DtrConfig`."""


def fit(
    split: Split,
    config: Config,
    *,
    estimator: Estimator | Retriever | None = None,
    **options: Unpack[TreeOptions],
) -> Retriever:
    """See `fit_dtr`; `loss.estimator` may name any other method."""
    from beamwood.fitting.tree.dtr import fit_dtr
    from beamwood.methods import default_fits

    return fit_dtr(split, config, default_fits(), estimator=estimator, **options)


# "12 iterations": the first tree and 11 updates.
PAPER_U = {
    **DTR_STUDY,
    "tree.updates": 11,
    "tree.learner": "softmax",
    "tree.stride": 7,
    "loss.negatives": "uniform",
    "loss.num_negatives": 70,
    "loop.max_steps": 12 * TREE_STEPS,
}
PAPER_T = PAPER_U | {"loss.negatives": "tree"}
PAPER = PAPER_T | {"loss.labels": "rectified"}
PROGRAM = PAPER | {
    "tree.embeddings": "node",
    "examples.window": "all",
    "loss.labels": "one-step",
    "loss.level_reduction": "mean",
    "optimiser.weight_decay": 1e-2,
    "optimiser.decay": "coupled",
}

METHOD = Method(
    name="dtr",
    summary="DIN over the nodes of a tree, softmax over each level: DTR(U); with `loss.negatives=tree` DTR(T), with "
    "`loss.labels=rectified` too DTR(T-RL)",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER, "paper-t": PAPER_T, "paper-u": PAPER_U, "program": PROGRAM},
)
