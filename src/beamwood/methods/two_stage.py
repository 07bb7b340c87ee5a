"""Two stages: a fitted retriever finds candidates, and a ranker trained for it orders them.

Source: the two-stage bounds, section 4.2: TS trains on all data, H-TS on the pairs that the retriever retrieves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from beamwood.data.split import Split
from beamwood.fitting.options import TrainOptions
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget

if TYPE_CHECKING:
    from beamwood.models.scorer import PairScore

__all__ = ["METHOD", "Config"]


class Config(StagesConfig):
    """Two stages; the ranker is the paper's DIN, in a size that two cores train in minutes."""


def fit(split: Split, config: Config, *, score: PairScore | None = None, **options: Unpack[TrainOptions]) -> Retriever:
    """See `fit_stages`, or `combine_fitted` where `start.ranker` names a folder or a counting method.

    A custom method binds `score`, as `functools.partial(METHOD.fit, score=...)`.
    """
    if config.start.ranker is not None:
        from beamwood.fitting.stages import combine_fitted
        from beamwood.methods import counting

        budget = Budget.of(options.get("time_limit"))
        return combine_fitted(split, config, counting(), seed=options.get("seed", 0), budget=budget)
    from beamwood.fitting.ranking.two_stage import fit_stages

    return fit_stages(split, config, score=score, **options)


# Appendix D.2: DIN's sizes, 60 negatives, the ranker's score alone; the study has 40, 80 and 120 candidates.
PAPER = {
    "model.kind": "din",
    "model.width": 96,
    "model.attention": (64, 16),
    "model.mlp": (200, 80),
    "model.num_candidates": 40,
    "start.items": "random",
    "start.attention": None,
    "examples.pairs": "all",
    "examples.horizon": 1,
    "examples.num_targets": 1,
    "examples.max_examples": 1_000_000,
    "loss.negatives": "uniform",
    "loss.num_negatives": 60,
    "optimiser.learning_rate": 1e-3,
    "optimiser.schedule": "exponential",
    "optimiser.warmup_steps": 0,
    "optimiser.decay_steps": 15_000,
    "optimiser.clip_norm": None,
    "loop.batch_size": 100,
    "loop.max_steps": 80_000,
    "loop.evaluate_every": 2_000,
    "loop.patience": 1_000,
    "choose.monitor": "kept/precision@20",
    "choose.retriever_weight": 0.0,
    "choose.seen_weight": 0.0,
}
PAPER_H = PAPER | {"examples.pairs": "harmonised"}

METHOD = Method(
    name="two_stage",
    summary="a fitted retriever (`--retriever`) with a ranker behind it, trained on all pairs or on those that it "
    "retrieves; or with another fitted retriever or counting (`--ranker`), whose score is added",
    Config=Config,
    fit=fit,
    needs=Needs(
        steps=True,
        unless="start.ranker",
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
    presets={"paper": PAPER, "paper-h": PAPER_H},
)
