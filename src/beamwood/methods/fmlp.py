"""FMLP-Rec trained by softmax over the catalogue on every prefix; see `models.fmlp`.

Source: Zhou et al., "Filter-enhanced MLP is All You Need for Sequential Recommendation".
"""

from __future__ import annotations

from typing import Literal, Unpack

from pydantic import Field

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.settings import HistoryLength
from beamwood.fitting.vectors import sequence as sasrec
from beamwood.retrieval.retriever import Retriever

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(sasrec.Config):
    """The paper's two blocks and length 50."""

    encoder: Literal["fmlp"] = "fmlp"
    length: HistoryLength = Field(50, ge=2, description="latest items that count")
    dropout: float = Field(0.5, ge=0, lt=1)
    batch_size: int = Field(256, ge=1, description="prefixes a step")


def fit(split: Split, config: Config | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """Train the encoder on `split.train`, keeping the weights that are best on `split.valid`.

    Errors: those of `methods.sasrec.fit`.
    """
    return sasrec.fit(split, config or Config(), **options)
