"""GRU4Rec trained by softmax over the catalogue; see `models.gru4rec`.

Source: Hidasi et al., "Session-based Recommendations with Recurrent Neural Networks".
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
    """The usual sizes: width 64, 128 units, one layer, dropout 0.3."""

    encoder: Literal["gru4rec"] = "gru4rec"
    dropout: float = Field(0.3, ge=0, lt=1)


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
