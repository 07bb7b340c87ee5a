"""Two stages: a fitted retriever brings candidates, a ranker trained for it orders them.

Source: the two-stage bounds, section 4.2: TS trains on all data, H-TS on the pairs that this retriever retrieves.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(StagesConfig):
    """Two stages; the ranker is the study's DIN, in a size that two cores train in minutes."""


def fit(split: Split, config: Config, **options: Unpack[TrainOptions]) -> Retriever:
    """As `fit_stages`; `start.ranker` may name any method that counts."""
    from beamwood.fitting.ranking.two_stage import fit_stages
    from beamwood.methods import counting

    return fit_stages(split, config, {} if config.start.ranker is None else counting(), **options)


METHOD = Method(
    name="two_stage",
    summary="a fitted retriever (`--retriever`) with a ranker behind it, trained on all pairs or on those that it "
    "retrieves; or with another fitted retriever or counting (`--ranker`), whose score is added",
    Config=Config,
    fit=fit,
    needs=Needs(
        steps=True,
        users={"model.kind": ("graphrec", "neumf")},
        columns={
            "model.item_columns": "items",
            "model.user_columns": "users",
            "model.context_columns": "context",
        },
        fitted=(
            Fitted("start.retriever", "--retriever"),
            Fitted("start.ranker", "--ranker", required=False, or_counting=True),
        ),
    ),
)
