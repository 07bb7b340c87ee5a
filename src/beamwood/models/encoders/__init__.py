"""The sequence encoders by name; each file says all that there is to say of one."""

from __future__ import annotations

from beamwood.models.encoder import Encoder
from beamwood.models.encoders import caser, fmlp, gru4rec, sasrec

__all__ = ["ENCODERS"]

ENCODERS: dict[str, Encoder] = {
    "sasrec": sasrec.ENCODER,
    "gru4rec": gru4rec.ENCODER,
    "caser": caser.ENCODER,
    "fmlp": fmlp.ENCODER,
}
