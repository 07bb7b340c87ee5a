"""CITIES: rare items of a fitted sequence model get vectors inferred from the items around them.

Source: Jang et al., "CITIES: Contextual Inference of Tail-Item Embeddings for Sequential Recommendation".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.cities_settings import CitiesConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(CitiesConfig):
    """The paper's defaults: 24 items to each side, up to 10 contexts; items with up to 5 interactions are rare."""


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_cities`."""
    from beamwood.fitting.vectors.cities import fit_cities

    return fit_cities(split, config, **options)


# The defaults are the paper's, with no weight for seen items.
PAPER = {"examples.reach": 24, "examples.max_contexts": 10, "examples.rare": 5, "choose.seen_weight": 0.0}

METHOD = Method(
    name="cities",
    summary="on top of a fitted sequence model (`--from`): vectors of rare items, inferred from the items around them",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, fitted=(Fitted("start.folder", "--from"),)),
    presets={"paper": PAPER},
)
