"""SASRec trained by softmax over the catalogue; see `models.encoders.sasrec`.

Source: Kang and McAuley, "Self-Attentive Sequential Recommendation".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.papers import SASREC
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.models.encoders import sasrec
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class ModelSettings(sasrec.Sizes, SequenceModelSettings):
    """SASRec and the items' vectors."""


class Config(SequenceConfig):
    """SASRec; the defaults were chosen on validation data of `ml1m`."""

    model: ModelSettings = ModelSettings()


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_sequence`."""
    from beamwood.fitting.vectors.sequence import fit_sequence

    return fit_sequence(split, config, sasrec.ENCODER, **options)


# Section IV of the paper, for MovieLens-1M, except its binary loss with one negative.
PAPER = {
    **SASREC,
    "loop.max_epochs": 200,
    "loop.patience": 20,
}

METHOD = Method(
    name="sasrec",
    summary="self-attention over the latest items, softmax over the whole catalogue",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
