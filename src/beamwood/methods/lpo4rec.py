"""LPO4Rec: any sequence encoder aligned with a listwise preference for tail items; and the pairwise rivals' losses.

Source: "Listwise Preference Optimization for tail items" (LPO4Rec), equations 12-17.
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.settings import PreferenceConfig
from beamwood.methods.method import Fitted, Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(PreferenceConfig):
    """A preference loss beside the cross-entropy; the paper's own: loss.pi prob, loss.tau 0.1.

    R2Rec is `loss.preference="none", loss.reweight_strength=2`, which weighs tail labels e^2 : 1.
    """


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """As `fit_preference`."""
    from beamwood.fitting.vectors.preference import fit_preference

    return fit_preference(split, config, **options)


METHOD = Method(
    name="lpo4rec",
    summary="a sequence model trained with a listwise preference for tail items, or SimPO, ORPO; `--from` a fitted one "
    "it is aligned afterwards, as DPO and S-DPO ask for",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True, fitted=(Fitted("start.folder", "--from", required=False),)),
)
