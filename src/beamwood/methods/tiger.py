"""TIGER: the next item generated code by code; see `fitting.vectors.tiger`.

Source: Rajput et al., "Recommender Systems with Generative Retrieval".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.vectors.tiger_settings import TigerConfig
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(TigerConfig):
    """Three codes of 256, as in the paper. See `TigerConfig`."""


def fit(split: Split, config: Config, **options: Unpack[TrainOptions]) -> Retriever:
    """See `fit_tiger`."""
    from beamwood.fitting.vectors.tiger import fit_tiger

    return fit_tiger(split, config, **options)


# The paper's codes, history of 20 items, and learning rate; the decoder is our own, and text vectors come from
# start.item_column.
PAPER = {
    "model.width": 128,
    "model.length": 20,
    "model.num_blocks": 4,
    "model.num_heads": 4,
    "model.dropout": 0.1,
    "model.num_codes": 3,
    "model.num_words": 256,
    "examples.horizon": 1,
    "optimiser.learning_rate": 1e-2,
    "optimiser.schedule": "constant",
    "optimiser.warmup_steps": 0,
    "optimiser.clip_norm": None,
    "loop.batch_size": 256,
    "loop.max_steps": 200_000,
    "loop.evaluate_every": 4_000,
    "loop.patience": 1_000,
    "choose.seen_weight": 0.0,
}

METHOD = Method(
    name="tiger",
    summary="items are codes of their vectors (of a column, or `--from` a fit), and the next is predicted code by code",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, fitted=(Fitted("start.folder", "--from", required=False),)),
    presets={"paper": PAPER},
)
