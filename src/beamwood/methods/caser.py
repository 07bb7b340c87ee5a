"""Caser trained by softmax over the catalogue on every prefix; see `models.encoders.caser`.

Source: Tang and Wang, "Personalized Top-N Sequential Recommendation via Convolutional Sequence Embedding".
"""

from __future__ import annotations

from beamwood.fitting.settings import LoopSettings
from beamwood.fitting.vectors.papers import PLAIN
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import caser

__all__ = ["METHOD", "Config"]


class ModelSettings(caser.Sizes, SequenceModelSettings):
    """Caser and the items' vectors."""


class Config(SequenceConfig):
    """The paper's filters on the latest 10 items; the weights of the filters grow with the square of the length."""

    model: ModelSettings = ModelSettings(length=10, dropout=0.5)
    loop: LoopSettings = LoopSettings(batch_size=256, max_steps=3000)

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.caser`."""
        return caser.ENCODER


# For MovieLens-1M: the latest 5 items, targets among the next 3; without the paper's user vectors.
PAPER = {
    **PLAIN,
    "model.width": 50,
    "model.length": 5,
    "model.num_vertical": 4,
    "model.num_horizontal": 16,
    "model.dropout": 0.5,
    "examples.horizon": 3,
    "loop.batch_size": 100,
    "loop.max_steps": None,
    "loop.max_epochs": 50,
}

METHOD = Method(
    name="caser",
    summary="as `sasrec`, with a convolutional encoder",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
