"""Mixture of logits over SASRec; see `models.mol`.

Source: Zhai et al., "Revisiting Neural Retrieval on Accelerators"; Ding and Zhai, "Retrieval with Learned
Similarities".
"""

from __future__ import annotations

from typing import Unpack

from beamwood.data.split import Split
from beamwood.fitting.vectors.mol_settings import MolConfig
from beamwood.fitting.vectors.options import VectorOptions
from beamwood.fitting.vectors.papers import SASREC
from beamwood.methods.method import Method, Needs
from beamwood.retrieval.retriever import Retriever

__all__ = ["METHOD", "Config"]


class Config(MolConfig):
    """Fewer and smaller components than the paper's, for training on a CPU. See `MolConfig`."""


def fit(split: Split, config: Config, **options: Unpack[VectorOptions]) -> Retriever:
    """See `fit_mol`."""
    from beamwood.fitting.vectors.mol import fit_mol

    return fit_mol(split, config, **options)


# The papers' mixture on MovieLens-1M, over SASRec in the form of its own paper.
PAPER = {
    **SASREC,
    "model.query_components": 8,
    "model.item_components": 4,
    "model.component_width": 64,
    "model.gate_hidden": 128,
    "model.temperature": 0.05,
    "loss.sampled_negatives": 128,
    "loss.load_balance": 1e-3,
    "loop.max_epochs": 100,
}

METHOD = Method(
    name="mol",
    summary="SASRec, scored by a mixture of inner products whose weights depend on query and item",
    Config=Config,
    fit=fit,
    needs=Needs(steps=True),
    presets={"paper": PAPER},
)
