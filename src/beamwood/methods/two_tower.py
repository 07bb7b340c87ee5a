"""Two towers trained with negatives from the batch: SSL, SSL-Pop, MNS, G-Tower, BIR, XIR, or the full softmax.

Source: "Cache-Augmented Inbatch Importance Resampling for Training Recommender Retriever" (XIR).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.tower_settings import TowerConfig
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

if TYPE_CHECKING:
    from beamwood.sampling.in_batch import InBatchSampler

__all__ = ["METHOD", "Config"]


class Config(TowerConfig):
    """Two towers. See `TowerConfig`."""


def fit(
    split: Split, config: Config, *, sampler: InBatchSampler | None = None, **options: Unpack[VectorOptions]
) -> Retriever:
    """See `fit_towers`."""
    from beamwood.fitting.vectors.towers import fit_towers

    return fit_towers(split, config, sampler=sampler, **options)


# The study on Gowalla: StepLR multiplies the rate by .95 every 5 epochs of 401 steps, so e^-1 every 39,000 steps.
PAPER = {
    "model.user_tower": "mf",
    "model.width": 32,
    "model.normalise": False,
    "model.temperature": 1.0,
    "start.items": "random",
    "loss.negatives": "xir",
    "loss.form": "resampled",
    "loss.draw": "independent",
    "loss.cache_share": 0.2,
    "loss.rate": 1e-4,
    "loss.mask_known": False,
    "optimiser.learning_rate": 1e-2,
    "optimiser.weight_decay": 1e-5,
    "optimiser.schedule": "exponential",
    "optimiser.decay_steps": 39_000,
    "loop.batch_size": 2048,
    "loop.max_epochs": 100,
    "loop.evaluate_every": 2_000,
    "loop.patience": 1_000,
    "choose.seen_weight": 0.0,
}
PAPER_BIR = PAPER | {"loss.negatives": "bir"}
# XIR's cache counts the draws of all steps; `correction`: the program's weights of SSL-Pop, MNS and G-Tower.
PROGRAM = PAPER | {"loss.cache_counts": "all", "loss.correction": "program"}

METHOD = Method(
    name="two_tower",
    summary="a user id, or a history by its mean or any sequence encoder, against items and their columns, with "
    "negatives from the batch: `ssl`, `ssl-pop`, `mns`, `g-tower`, `bir`, `xir`, or the full softmax",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, users={"model.user_tower": ("mf",)}, columns={"model.item_columns": "items"}),
    presets={"paper": PAPER, "paper-bir": PAPER_BIR, "program": PROGRAM},
)
