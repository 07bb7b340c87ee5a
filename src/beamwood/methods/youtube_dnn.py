"""YouTubeDNN trained by sampled softmax; see `models.encoders.youtube_dnn`.

Source: Covington et al., "Deep Neural Networks for YouTube Recommendations".
"""

from __future__ import annotations

from beamwood.fitting.tree.papers import STUDY_RUN
from beamwood.fitting.vectors.papers import PLAIN
from beamwood.fitting.vectors.settings import SequenceConfig, SequenceLossSettings, SequenceModelSettings
from beamwood.methods.method import Method, Needs
from beamwood.methods.sequence import fit
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import youtube_dnn

__all__ = ["METHOD", "Config"]


class ModelSettings(youtube_dnn.Sizes, SequenceModelSettings):
    """YouTubeDNN and the items' vectors."""


class Config(SequenceConfig):
    """Layers of 128 and 64 under 1,000 negatives, as in the papers."""

    model: ModelSettings = ModelSettings()
    loss: SequenceLossSettings = SequenceLossSettings(sampled_negatives=1000)

    @property
    def encoder(self) -> Encoder:
        """See `models.encoders.youtube_dnn`."""
        return youtube_dnn.ENCODER


# DTR's comparison (section 6): width, layers, negatives and batches, with the learning rate schedule of its trees.
# Untied input and output vectors: the paper's own.
PAPER = {
    **PLAIN,
    "model.width": 24,
    "model.layers": (128, 64),
    "model.dropout": 0.0,
    "model.tied": False,
    "loss.sampled_negatives": 1000,
    **STUDY_RUN,
}

METHOD = Method(
    name="youtube_dnn",
    summary="layers over the mean of the latest items, softmax over sampled negatives",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
