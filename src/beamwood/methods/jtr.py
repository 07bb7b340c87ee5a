"""JTR: SASRec and a tree of clusters of its items, trained together; see `fitting.vectors.jtr`.

Source: Li et al., "Constructing Tree-based Index for Efficient and Effective Dense Retrieval".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.vectors.jtr_settings import JtrConfig
from beamwood.fitting.vectors.papers import SASREC
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(JtrConfig):
    """SASRec's defaults, and leaves of fewer than 100 items. See `JtrConfig`."""


def fit(split: Split, config: Config, **options: Unpack[TrainOptions]) -> Retriever:
    """See `fit_jtr`."""
    from beamwood.fitting.vectors.jtr import fit_jtr

    return fit_jtr(split, config, **options)


# The paper's tree and negatives, over SASRec in the form of its own paper. Random initial vectors give no useful
# clusters, so items start from our default, or from a fitted model.
PAPER = {
    **{name: value for name, value in SASREC.items() if name != "start.items"},
    "loss.level_negatives": 50,
    "loop.max_epochs": 200,
    "loop.patience": 20,
    "index.num_children": 10,
    "index.leaf_size": 100,
    "index.num_homes": 2,
    "index.num_probed": 150,
}

METHOD = Method(
    name="jtr",
    summary="SASRec and a tree of clusters, trained together; a beam opens clusters, and an item may be in several",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, fitted=(Fitted("start.folder", "--from", required=False),)),
    presets={"paper": PAPER},
)
