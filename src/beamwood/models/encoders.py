"""The sequence encoders by name."""

from __future__ import annotations

import torch

from beamwood.models.caser import Caser
from beamwood.models.fmlp import FmlpRec
from beamwood.models.gru4rec import Gru4Rec
from beamwood.models.sasrec import SasRec
from beamwood.models.sequence import SequenceModel
from beamwood.types import FloatArray

__all__ = ["build_encoder"]


def build_encoder(
    encoder: str,
    num_items: int,
    *,
    width: int,
    length: int,
    dropout: float,
    num_blocks: int,
    num_heads: int,
    hidden: int,
    num_vertical: int,
    num_horizontal: int,
    tied: bool = True,
    features_NF: FloatArray | None = None,
    generator: torch.Generator | None = None,
) -> SequenceModel:
    """The encoder of that name ("sasrec", "gru4rec", "caser", "fmlp"); each takes of the sizes what it has."""
    if encoder == "gru4rec":
        return Gru4Rec(
            num_items,
            width=width,
            length=length,
            hidden=hidden,
            dropout=dropout,
            tied=tied,
            features_NF=features_NF,
            generator=generator,
        )
    if encoder == "caser":
        return Caser(
            num_items,
            width=width,
            length=length,
            num_vertical=num_vertical,
            num_horizontal=num_horizontal,
            dropout=dropout,
            tied=tied,
            features_NF=features_NF,
            generator=generator,
        )
    if encoder == "fmlp":
        return FmlpRec(
            num_items,
            width=width,
            length=length,
            num_blocks=num_blocks,
            dropout=dropout,
            tied=tied,
            features_NF=features_NF,
            generator=generator,
        )
    assert encoder == "sasrec", encoder
    return SasRec(
        num_items,
        width=width,
        length=length,
        num_blocks=num_blocks,
        num_heads=num_heads,
        dropout=dropout,
        tied=tied,
        features_NF=features_NF,
        generator=generator,
    )
