"""MELT: two branches beside a fitted sequence model that improve the vectors of rare items and short histories.

Source: "MELT: Mutual Enhancement of Long-Tailed User and Item for Sequential Recommendation".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.melt_settings import MeltConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(MeltConfig):
    """The branches on top of the model in `start.folder`; by the paper's quantiles four fifths of both are rare."""


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_melt`."""
    from beamwood.fitting.vectors.melt import fit_melt

    return fit_melt(split, config, **options)


# The defaults are the paper's, with no weight for seen items.
PAPER = {"examples.user_quantile": 0.8, "examples.item_quantile": 0.78, "choose.seen_weight": 0.0}

METHOD = Method(
    name="melt",
    summary="on top of a fitted sequence model (`--from`): better vectors of rare items, from their contexts, and of "
    "short histories",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, fitted=(Fitted("start.folder", "--from"),)),
    presets={"paper": PAPER},
)
