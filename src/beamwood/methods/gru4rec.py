"""GRU4Rec trained by softmax over the catalogue; see `models.encoders.gru4rec`.

Source: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks".
"""

from __future__ import annotations

from beamwood.fitting.vectors.papers import PLAIN
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import gru4rec

__all__ = ["METHOD", "Config"]


class ModelSettings(gru4rec.Sizes, SequenceModelSettings):
    """GRU4Rec and the items' vectors."""


class Config(SequenceConfig):
    """Width 64, 128 units, one layer, dropout 0.3."""

    model: ModelSettings = ModelSettings(dropout=0.3)

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.gru4rec`."""
        return gru4rec.ENCODER


# Sizes from LPO4Rec's study; without the paper's own losses and parallel sessions.
PAPER = {
    **PLAIN,
    "model.width": 64,
    "model.hidden": 128,
    "model.dropout": 0.3,
    "loop.batch_size": 128,
    "loop.max_steps": None,
    "loop.max_epochs": 100,
}

METHOD = Method(
    name="gru4rec",
    summary="as `sasrec`, with a recurrent encoder",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
