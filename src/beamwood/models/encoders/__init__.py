"""The sequence encoders by name; each file says all that there is to say of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from beamwood.models.encoder import Encoder
from beamwood.models.encoders import caser, fmlp, gru4rec, sasrec

__all__ = ["ENCODERS", "EncoderName"]

ENCODERS: dict[str, Encoder] = {
    "sasrec": sasrec.ENCODER,
    "gru4rec": gru4rec.ENCODER,
    "caser": caser.ENCODER,
    "fmlp": fmlp.ENCODER,
}

if TYPE_CHECKING:
    EncoderName = str
else:
    EncoderName = Literal[tuple(ENCODERS)]
