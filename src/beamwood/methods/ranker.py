"""A pairwise scorer trained on users' lists by a ranking loss or GuidedRec's learned NDCG; it ranks the catalogue.

Source: "GuidedRec" (Rashed et al. 2021), sections 4-5; rival losses: see `losses.ranking`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.ranking.settings import RankerConfig
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

if TYPE_CHECKING:
    from beamwood.fitting.ranking.lists import ListLoss
    from beamwood.models.scorer import PairScore

__all__ = ["METHOD", "Config"]


class Config(RankerConfig):
    """A ranker; the defaults are GuidedRec's own for ML-100K."""


def fit(
    split: Split,
    config: Config,
    *,
    loss: ListLoss | None = None,
    score: PairScore | None = None,
    **options: Unpack[TrainOptions],
) -> Retriever:
    """As `fit_ranker`; a custom method binds `loss` or `score`, as `functools.partial(METHOD.fit, loss=...)`."""
    from beamwood.fitting.ranking.lists import fit_ranker

    return fit_ranker(split, config, loss=loss, score=score, **options)


# Section 7.2 and table 5, for MovieLens-100K; weight decays are divided by the learning rate, as in the program.
PAPER = {
    "model.kind": "graphrec",
    "model.width": 20,
    "start.surrogate": "small",
    "examples.num_positives": 5,
    "loss.kind": "guided",
    "loss.num_negatives": 5,
    "loss.surrogate": "ensemble",
    "loss.ndcg_at": 10,
    "loss.logistic_weight": 1.0,
    "optimiser.learning_rate": 1e-3,
    "optimiser.weight_decay": 0.01,
    "optimiser.ndcg_learning_rate": 1.3e-3,
    "optimiser.ndcg_weight_decay": 0.0615,
    "optimiser.surrogate_learning_rate": 2e-3,
    "optimiser.surrogate_weight_decay": 5e-4,
    "loop.batch_size": 25,
    "loop.max_epochs": 440,
    "loop.patience": 1_000,
}

METHOD = Method(
    name="ranker",
    summary="GraphRec, NeuMF or DIN scoring pairs, by GuidedRec's learned NDCG or a ranking loss; alone it ranks the "
    "whole catalogue (GraphRec, the default, and NeuMF know users: `--split leave-one-out`, `time` or `boundary`; DIN, "
    "`--set model.kind=din`, any)",
    Config=Config,
    fit=fit,
    needs=Needs(
        steps=True,
        users={"model.kind": ("graphrec", "neumf")},
        columns={"model.item_columns": "items", "model.user_columns": "users"},
    ),
    presets={"paper": PAPER},
)
