"""SASRec trained by softmax over the catalogue; see `models.encoders.sasrec`.

Source: Kang and McAuley, "Self-Attentive Sequential Recommendation".
"""

from __future__ import annotations

from beamwood.fitting.vectors.papers import SASREC
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import sasrec

__all__ = ["METHOD", "Config"]


class ModelSettings(sasrec.Sizes, SequenceModelSettings):
    """SASRec and the items' vectors."""


class Config(SequenceConfig):
    """SASRec; the defaults were chosen on validation data of `ml1m`."""

    model: ModelSettings = ModelSettings()

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.sasrec`."""
        return sasrec.ENCODER


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
