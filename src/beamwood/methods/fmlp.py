"""FMLP-Rec trained by softmax over the catalogue on every prefix; see `models.encoders.fmlp`.

Source: Zhou et al., "Filter-enhanced MLP is All You Need for Sequential Recommendation".
"""

from __future__ import annotations

from beamwood.fitting.settings import LoopSettings
from beamwood.fitting.vectors.papers import PLAIN
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import fmlp

__all__ = ["METHOD", "Config"]


class ModelSettings(fmlp.Sizes, SequenceModelSettings):
    """FMLP-Rec and the items' vectors."""


class Config(SequenceConfig):
    """As in the paper, two blocks and length 50."""

    model: ModelSettings = ModelSettings(length=50, dropout=0.5)
    loop: LoopSettings = LoopSettings(batch_size=256, max_steps=3000)

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.fmlp`."""
        return fmlp.ENCODER


# Section 5.1 of the paper, except its pairwise loss with one negative.
PAPER = {
    **PLAIN,
    "model.width": 64,
    "model.length": 50,
    "model.num_blocks": 2,
    "model.dropout": 0.5,
    "loop.batch_size": 256,
    "loop.max_steps": None,
    "loop.max_epochs": 100,
}

METHOD = Method(
    name="fmlp",
    summary="as `sasrec`, with an encoder of filters in the frequency domain",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
