"""Caser trained by softmax over the catalogue on every prefix; see `models.caser`.

Source: Tang and Wang, "Personalized Top-N Sequential Recommendation via Convolutional Sequence Embedding".
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
    """The paper's filters, on the latest 10 items: the filters grow with the square of the length."""

    encoder: Literal["caser"] = "caser"
    length: int = Field(10, ge=2, description="latest items that count")
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
