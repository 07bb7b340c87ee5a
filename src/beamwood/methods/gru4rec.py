"""GRU4Rec trained by softmax over the catalogue; see `models.gru4rec`.

Source: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks".
"""

from __future__ import annotations

from typing import Literal, Unpack

from pydantic import Field

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.vectors import sequence as sasrec
from beamwood.retrieval.retriever import Retriever

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(sasrec.Config):
    """The usual sizes: width 64, 128 units, one layer, dropout 0.3."""

    encoder: Literal["gru4rec"] = "gru4rec"
    dropout: float = Field(0.3, ge=0, lt=1)


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train the encoder on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: those of `methods.sasrec.fit`.
    """
    return sasrec.fit(split, config or Config(), **options)
