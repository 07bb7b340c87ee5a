"""LightGCN: vectors averaged over the layers of the user-item graph; see `fitting.vectors.lightgcn`.

Source: He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for Recommendation".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.lightgcn_settings import LightGcnConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(LightGcnConfig):
    """Three layers of width 64. See `LightGcnConfig`."""


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_lightgcn`."""
    from beamwood.fitting.vectors.lightgcn import fit_lightgcn

    return fit_lightgcn(split, config, **options)


# The settings of the authors' program on Gowalla: 396 steps an epoch.
PAPER = {
    "model.width": 64,
    "model.num_layers": 3,
    "model.known_users": "trained",
    "loss.regularisation": 1e-4,
    "optimiser.learning_rate": 1e-3,
    "optimiser.schedule": "constant",
    "optimiser.clip_norm": None,
    "loop.batch_size": 2048,
    "loop.max_epochs": 1000,
    "loop.evaluate_every": 3960,
    "loop.patience": 1000,
    "choose.monitor": "removed/recall@20",
    "choose.seen_weight": 0.0,
}

METHOD = Method(
    name="lightgcn",
    summary="vectors averaged over the layers of the user-item graph, trained by BPR; new users are folded in",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, users={"model.num_layers": (0,)}),
    presets={"paper": PAPER},
)
