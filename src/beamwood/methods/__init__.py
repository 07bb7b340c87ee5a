"""The methods by name; the file of each defines its `Config` and its `METHOD`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from os.path import isfile
from typing import TYPE_CHECKING, Any

from beamwood.errors import InputError, nearest
from beamwood.fitting.options import RUN, TrainOptions
from beamwood.methods.arguments import check_fitted, check_split
from beamwood.methods.from_file import method_in
from beamwood.methods.method import Fitted, Method, MethodFile, Needs

if TYPE_CHECKING:
    from beamwood.retrieval.retriever import Retriever

__all__ = [
    "METHODS",
    "Fitted",
    "Method",
    "MethodFile",
    "Needs",
    "TrainOptions",
    "check_fitted",
    "check_split",
    "counting",
    "default_fits",
    "load_method",
    "with_option",
]

# Imported when a method is requested; no file imports torch before it fits.
METHODS = {
    "dtr": "beamwood.methods.dtr",
    "tdm": "beamwood.methods.tdm",
    "jtm": "beamwood.methods.jtm",
    "otm": "beamwood.methods.otm",
    "plt": "beamwood.methods.plt",
    "din": "beamwood.methods.din",
    "sasrec": "beamwood.methods.sasrec",
    "gru4rec": "beamwood.methods.gru4rec",
    "caser": "beamwood.methods.caser",
    "fmlp": "beamwood.methods.fmlp",
    "youtube_dnn": "beamwood.methods.youtube_dnn",
    "mol": "beamwood.methods.mol",
    "tiger": "beamwood.methods.tiger",
    "jtr": "beamwood.methods.jtr",
    "lpo4rec": "beamwood.methods.lpo4rec",
    "melt": "beamwood.methods.melt",
    "cities": "beamwood.methods.cities",
    "two_tower": "beamwood.methods.two_tower",
    "lightgcn": "beamwood.methods.lightgcn",
    "indexed": "beamwood.methods.indexed",
    "ranker": "beamwood.methods.ranker",
    "two_stage": "beamwood.methods.two_stage",
    "cooccurrence": "beamwood.methods.cooccurrence",
    "transitions": "beamwood.methods.transitions",
    "ease": "beamwood.methods.ease",
    "popularity": "beamwood.methods.popularity",
}


def load_method(method: str | PathLike[str] | Method) -> Method:
    """The method of a name, or of a path to a .py file that defines `METHOD`; a `Method` is returned as it is.

    Errors: an unknown name, with the nearest known one; a file without a valid METHOD, or with a name of METHODS.
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str | PathLike):
        raise InputError(
            f"method must be a name, a Method or a .py file, not {type(method).__name__}; known: "
            f"{', '.join(sorted(METHODS))}"
        )
    name = fspath(method)
    if name in METHODS:
        found: Method = import_module(METHODS[name]).METHOD
        return found
    if not name.endswith(".py"):
        if isfile(file := f"{name}.py"):
            raise InputError(f"method '{name}' is unknown; for the method of your file give its path, {file}")
        raise InputError(f"method '{name}' is unknown{nearest(name, METHODS)}")
    own = method_in(name)
    if own.name in METHODS:
        raise InputError(f"{name}: METHOD has the name '{own.name}', which is beamwood's own; choose another name")
    return own


def default_fits() -> dict[str, Callable[..., Retriever]]:
    """By method name a function that fits it with its default settings; it imports the method when called.

    Each takes all `TrainOptions`; a counting method leaves those of a run unused.
    """
    return {name: partial(_fit, name) for name in METHODS}


def counting() -> dict[str, Callable[..., Retriever]]:
    """As `default_fits`, only of counting methods."""
    needs = {name: load_method(name).needs for name in METHODS}
    return {name: fit for name, fit in default_fits().items() if not needs[name].steps and needs[name].alone}


def with_option(option: str) -> list[str]:
    """The methods that take a command-line option for fitted folders, such as --from."""
    return [name for name in METHODS if any(each.option == option for each in load_method(name).needs.fitted)]


def _fit(name: str, split: Any, **options: Any) -> Retriever:
    method = load_method(name)
    used = {key: value for key, value in options.items() if method.needs.steps or key not in RUN}
    return method.fitted(split, **used)
