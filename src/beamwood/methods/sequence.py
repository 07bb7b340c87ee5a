"""The fit that all methods of a sequence encoder share, each of whose settings names its encoder."""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.settings import SequenceConfig
from beamwood.retrieval.retriever import Retriever

__all__ = ["fit"]


def fit(split: Split, config: SequenceConfig, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_sequence`; imported when it is called, as it needs torch."""
    from beamwood.fitting.vectors.sequence import fit_sequence

    return fit_sequence(split, config, **options)
