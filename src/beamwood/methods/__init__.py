"""What a user names: each method is a file with a `Config` and `fit(split, config, ...) -> Retriever`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from beamwood.errors import InputError, nearest
from beamwood.fitting.options import TrainOptions
from beamwood.methods.arguments import check_fitted, check_split, checked_options, configured

__all__ = ["METHODS", "TrainOptions", "check_fitted", "check_split", "checked_options", "configured", "load_method"]

# Imported by name, so that a counting method never loads torch.
METHODS = {
    "dtr": "beamwood.methods.dtr",
    "tdm": "beamwood.methods.tdm",
    "jtm": "beamwood.methods.jtm",
    "otm": "beamwood.methods.otm",
    "plt": "beamwood.methods.plt",
    "din": "beamwood.methods.din",
    "sasrec": "beamwood.fitting.vectors.sequence",
    "gru4rec": "beamwood.methods.gru4rec",
    "caser": "beamwood.methods.caser",
    "fmlp": "beamwood.methods.fmlp",
    "lpo4rec": "beamwood.fitting.vectors.preference",
    "melt": "beamwood.fitting.vectors.melt",
    "cities": "beamwood.fitting.vectors.cities",
    "two_tower": "beamwood.fitting.vectors.towers",
    "ranker": "beamwood.fitting.ranking.lists",
    "two-stage": "beamwood.fitting.ranking.two_stage",
    "popularity": "beamwood.methods.popularity",
    "cooccurrence": "beamwood.methods.cooccurrence",
    "transitions": "beamwood.methods.transitions",
    "ease": "beamwood.methods.ease",
}


def load_method(name: str) -> ModuleType:
    """The module of a method. Errors: an unknown name, with the nearest known one."""
    if not isinstance(name, str):
        raise InputError(f"method is to be a name, not {type(name).__name__}; known: {', '.join(sorted(METHODS))}")
    if name not in METHODS:
        raise InputError(f"method '{name}' is unknown{nearest(name, METHODS)}")
    return import_module(METHODS[name])
