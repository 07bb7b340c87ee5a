"""The sequence encoders by name, each defined in one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from beamwood.models.encoder import Encoder
from beamwood.models.encoders import caser, fmlp, gru4rec, sasrec, youtube_dnn
from beamwood.models.parameters import Sizes

__all__ = ["ENCODERS", "AnySizes", "EncoderName"]

ENCODERS: dict[str, Encoder] = {
    "sasrec": sasrec.ENCODER,
    "gru4rec": gru4rec.ENCODER,
    "caser": caser.ENCODER,
    "fmlp": fmlp.ENCODER,
    "youtube_dnn": youtube_dnn.ENCODER,
}

if TYPE_CHECKING:
    EncoderName = str

    class AnySizes(Sizes):
        """The sizes of all encoders, where one is chosen by its name; each takes its own."""
else:
    EncoderName = Literal[tuple(ENCODERS)]
    AnySizes = type("AnySizes", tuple(encoder.sizes for encoder in ENCODERS.values()), {"__module__": __name__})
