"""Two towers trained with negatives from the batch: SSL, SSL-Pop, MNS, G-Tower, BIR, XIR, or the full softmax.

Source: "Cache-Augmented Inbatch Importance Resampling for Training Recommender Retriever" (XIR).
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.settings import TowerConfig
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(TowerConfig):
    """Two towers; the study's own: model.user_tower mf, model.width 32, start.items random, choose.seen_weight 0."""


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """As `fit_towers`."""
    from beamwood.fitting.vectors.towers import fit_towers

    return fit_towers(split, config, **options)


METHOD = Method(
    name="two_tower",
    summary="ids, or histories by their mean or any of these encoders, against items and their columns, with negatives "
    "from the batch: `ssl`, `ssl-pop`, `mns`, `g-tower`, `bir`, `xir`, or the full softmax",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, users={"model.user_tower": ("mf",)}, columns={"model.item_columns": "items"}),
)
