"""What a method's `fit` may be given, checked at the public edge."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from numbers import Integral, Real
from types import ModuleType
from typing import Any, get_args

from pydantic import ValidationError

from beamwood.data.split import Split
from beamwood.errors import InputError, first_problem, nearest
from beamwood.fitting.fitted import check_alike
from beamwood.fitting.options import MOST_SEED, TrainOptions
from beamwood.retrieval.retriever import Retriever

__all__ = ["check_fitted", "check_split", "checked_options", "configured"]


def check_split(split: Any) -> None:
    """Errors: anything but a `Split`."""
    if not isinstance(split, Split):
        raise InputError(
            f"split is a {type(split).__name__}, not a Split; make one, as beamwood.data.disjoint_users(dataset)"
        )


def check_fitted(retriever: Any, split: Any) -> None:
    """Errors: what is no retriever, no `Split`, or a retriever of other data or of another split."""
    check_split(split)
    if not isinstance(retriever, Retriever):
        raise InputError(f"retriever is a {type(retriever).__name__}; give what beamwood.fit or beamwood.load returns")
    check_alike(retriever, "the retriever", split)


def configured(module: ModuleType, config: Any) -> Any:
    """A method's own `Config`, of a mapping too; None stays None. Errors: unknown keys, wrong values."""
    kind = module.Config
    if config is None or isinstance(config, kind):
        return config
    if not isinstance(config, Mapping):
        raise InputError(
            f"config is a {type(config).__module__}.{type(config).__name__}; give {kind.__module__}.Config, or a "
            "mapping of its settings"
        )
    for key in config:
        if key not in kind.model_fields:
            raise InputError(f"configuration key '{key}' is unknown{nearest(str(key), kind.model_fields)}")
        # Which pydantic would read as 1 and 0.
        if _holds_truth(config[key]) and not _takes_truth(kind.model_fields[key].annotation):
            raise InputError(f"configuration: {key}: {config[key]!r} is true or false where a number or a word belongs")
    try:
        return kind(**config)
    except ValidationError as error:
        raise InputError(f"configuration: {first_problem(error)}") from None


def _holds_truth(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_truth, value)))


def _takes_truth(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(map(_takes_truth, get_args(annotation)))


def checked_options(fit: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, the seed a plain number. Errors: a name that is neither of `TrainOptions` nor an argument of this
    method's `fit`, with the nearest one; a seed, a time limit or a run folder that is none."""
    arguments = inspect.signature(fit).parameters.values()
    known = [*TrainOptions.__annotations__, *(each.name for each in arguments if each.kind is each.KEYWORD_ONLY)]
    for name in options:
        if name not in known:
            raise InputError(f"option '{name}' is unknown{nearest(name, known)}; a method's own settings go in config")
    seed, limit = options.get("seed", 0), options.get("time_limit")
    if not isinstance(seed, Integral) or not 0 <= int(seed) <= MOST_SEED:
        raise InputError(f"seed={seed!r} is no whole number in 0..{MOST_SEED}")
    if limit is not None and not (isinstance(limit, Real) and float(limit) > 0):
        raise InputError(f"time_limit={limit!r} is no number of seconds above 0; leave it out for no limit")
    run = options.get("run")
    # Not by its type, as that would load torch for methods that only count.
    if run is not None and not hasattr(run, "opened"):
        raise InputError(f"run={run!r} is no run folder; give beamwood.training.run_folder.RunFolder({run!r})")
    return dict(options) | ({"seed": int(seed)} if "seed" in options else {})
