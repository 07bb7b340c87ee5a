"""LPO4Rec: any sequence encoder aligned with a listwise preference for tail items, or with pairwise rival losses.

Source: "Listwise Preference Alignment Optimization for Tail Item Recommendation" (LPO4Rec), equations 12-17.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.papers import PLAIN
from beamwood.fitting.vectors.preference_settings import PreferenceConfig
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(PreferenceConfig):
    """A preference loss beside the cross-entropy.

    R2Rec is `loss.preference="none", loss.reweight_strength=2`, which weighs tail labels e^2 : 1.
    """


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_preference`."""
    from beamwood.fitting.vectors.preference import fit_preference

    return fit_preference(split, config, **options)


# Section V-B, with K from its ablation; the tail as counted by the program, and so in the paper's figures.
PAPER = {
    **PLAIN,
    "model.encoder": "sasrec",
    "model.width": 768,
    "model.length": 10,
    "model.num_blocks": 1,
    "model.num_heads": 16,
    "model.dropout": 0.8,
    "loss.preference": "lpo",
    "loss.pi": "prob",
    "loss.tau": 0.1,
    "loss.strength": 0.5,
    "loss.num_negatives": 10,
    "loss.negatives": "gumbel",
    "loss.reweight": True,
    "loss.reweight_strength": 1.0,
    "loss.tail_of": "prefixes",
    "loss.tail_share": 0.2,
    "optimiser.learning_rate": 5e-4,
    # A tenth of the run.
    "optimiser.warmup_steps": 1_000,
    "loop.batch_size": 128,
    "loop.max_steps": 10_000,
    # Seen items stay in the answers.
    "choose.monitor": "kept/ndcg@20",
}
# The program's own temperature, negatives and optimiser, without its loss, which lowers the preferred items.
PROGRAM = PAPER | {
    "loss.tau": 2.0,
    "loss.num_negatives": 5,
    "optimiser.weight_decay": 0.1,
    "optimiser.schedule": "cosine",
}

METHOD = Method(
    name="lpo4rec",
    summary="a sequence model trained with a listwise preference loss for tail items, or SimPO or ORPO; `--from` a "
    "fitted one it is aligned afterwards, which DPO and S-DPO require",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, fitted=(Fitted("start.folder", "--from", required=False),)),
    presets={"paper": PAPER, "program": PROGRAM},
)
