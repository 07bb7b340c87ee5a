"""FMLP-Rec trained by softmax over the catalogue on every prefix; see `models.fmlp`.

Source: Zhou et al., "Filter-enhanced MLP is All You Need for Sequential Recommendation".
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from beamwood.data.split import Split
from beamwood.methods import sasrec
from beamwood.retrieval.retriever import Retriever
from beamwood.training.run_folder import RunFolder

__all__ = ["TRAINS", "Config", "fit"]

TRAINS = True
"""This method trains by steps: its `fit` takes a run folder, a time limit and resume."""


class Config(sasrec.Config):
    """The paper's two blocks and length 50."""

    encoder: Literal["fmlp"] = "fmlp"
    length: int = Field(50, ge=2, description="latest items that count")
    dropout: float = Field(0.5, ge=0, lt=1)
    batch_size: int = Field(256, ge=1, description="prefixes a step")


def fit(
    split: Split,
    config: Config | None = None,
    *,
    seed: int = 0,
    run: RunFolder | None = None,
    time_limit: float | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Retriever:
    """Train the encoder on `split.train`, keeping the weights that are best on `split.valid`."""
    return sasrec.fit(
        split, config or Config(), seed=seed, run=run, time_limit=time_limit, resume=resume, progress=progress
    )
