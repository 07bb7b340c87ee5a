"""Checks of the arguments of a fit, and of what a user's own method returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from beamwood.arguments import is_number
from beamwood.data.split import Split
from beamwood.errors import InputError, nearest
from beamwood.fitting.fitted import check_same_data
from beamwood.fitting.method_config import MethodConfig, SettingsGroup
from beamwood.fitting.options import MAX_SEED, RUN, TrainOptions
from beamwood.methods.allowed import problem_in_words
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget
from beamwood.types import Searcher
from beamwood.words import followed

__all__ = [
    "check_fitted",
    "check_seed",
    "check_split",
    "check_without_run",
    "checked_build",
    "checked_options",
    "checked_retriever",
    "configured",
]

# The members of `types.Searcher`.
_SEARCHER = {"kind", "needs", "num_items", "search", "score", "export", "restore"}


def check_split(split: Any) -> None:
    """Raise `InputError` for anything but a `Split`."""
    if not isinstance(split, Split):
        raise InputError(
            f"split is a {type(split).__name__}, not a Split; make one, as beamwood.splits.disjoint_users(dataset)"
        )


def check_fitted(retriever: Any, split: Any, name: str = "the retriever") -> None:
    """Raise `InputError` for other types, and for a retriever that was fitted on other data or another split."""
    check_split(split)
    if not isinstance(retriever, Retriever):
        raise InputError(f"{name} is a {type(retriever).__name__}; give the result of beamwood.fit or beamwood.load")
    check_same_data(retriever, name, split)


def configured(kind: type[MethodConfig], config: Any, preset: Mapping[str, Any] | None = None) -> MethodConfig:
    """Settings of class `kind` from None, a mapping or an instance; given values override the preset.

    Errors: unknown keys, wrong values, a given setting (not one of the preset) that the other settings leave unread.
    """
    if isinstance(config, kind):
        if not preset:
            return _with_effect(config, config.given)
        given = config.given
        config = {name: value for name, value in config.flat().items() if name in given}
    if config is not None and not isinstance(config, Mapping):
        raise InputError(
            f"config is a {type(config).__module__}.{type(config).__name__}; give {kind.__module__}.{kind.__name__}, "
            "or a mapping of its settings"
        )
    strange = next((name for name in config or {} if not isinstance(name, str)), None)
    if strange is not None:
        raise InputError(f"configuration: the name {strange!r} is not text; write names as 'loop.max_steps'")
    try:
        made = kind.model_validate({**(preset or {}), **(config or {})})
    except ValidationError as error:
        problem = _of_others(kind, config or {}) or problem_in_words(kind, error)
        raise InputError(f"configuration: {problem}") from None
    # An instance that was made with the preset gives the preset's own values again.
    own, flat = kind.model_validate(preset).flat() if preset else {}, made.flat()
    return _with_effect(made, [n for n in _named(config or {}) if n not in (preset or {}) or own.get(n) != flat.get(n)])


def _named(config: Mapping[str, Any]) -> Iterator[str]:
    """The dotted names of the given settings."""
    for key, value in config.items():
        if "." in key:
            yield key
        else:
            keys = value.model_fields_set if isinstance(value, SettingsGroup) else value
            yield from (f"{key}.{own}" for own in keys)


def _of_others(kind: type[MethodConfig], config: Mapping[str, Any]) -> str | None:
    """The message about a given setting that only other methods have; None where there is none."""
    from beamwood.methods import METHODS, load_method

    groups = {key: each for key, each in config.items() if "." in key or isinstance(each, Mapping | SettingsGroup)}
    for name in _named(groups):
        if name not in kind.names():
            having = [method for method in METHODS if name in load_method(method).Config.names()]
            group = f"{name.partition('.')[0]}."
            own = ", ".join(each for each in kind.names() if each.startswith(group))
            if having:
                first = ", ".join(having[:4]) + (f" and {len(having) - 4} more" if len(having) > 4 else "")
                return f"setting '{name}' belongs to {first}; {f'here there are {own}' if own else 'leave it out'}"
    return None


def _with_effect(made: MethodConfig, given: Iterable[str]) -> MethodConfig:
    """The settings. Errors: one that the user gave, and that the other settings leave unread."""
    problem = made.without_effect(given)
    if problem is not None:
        raise InputError(f"configuration: {problem}")
    return made


def checked_options(fit: Callable[..., Any] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the seed as an `int`. Errors: a name that is neither in `TrainOptions` nor an argument of a
    method's `fit`, with the nearest one; an invalid seed, time limit or run folder."""
    arguments = () if fit is None else inspect.signature(fit).parameters.values()
    known = [*TrainOptions.__annotations__, *(each.name for each in arguments if each.kind is each.KEYWORD_ONLY)]
    for name in options:
        if name not in known:
            problem = f"option '{name}' is unknown{nearest(name, known)}"
            raise InputError(followed(problem, "a method's own settings go in config"))
    seed, limit = options.get("seed", 0), options.get("time_limit")
    check_seed(seed)
    if not (limit is None or isinstance(limit, Budget) or (is_number(limit) and limit > 0)):
        raise InputError(f"time_limit={limit!r} is not a number of seconds above 0; leave it out for no limit")
    if options.get("run") is not None:
        _check_run(options["run"])
    return dict(options) | ({"seed": int(seed)} if "seed" in options else {})


def check_without_run(name: str, options: Mapping[str, Any]) -> None:
    """Raise `InputError` for the options of a run, given to a method that does not train."""
    for option in RUN:
        if options.get(option):
            raise InputError(
                f"{option} is for a fit that trains by steps, which this one of {name} does not; leave {option} out"
            )


def checked_build(name: str, built: Any) -> tuple[Searcher, Mapping[str, Any]]:
    """The searcher and the facts that a method's `build` returned. Errors: another type."""
    searcher, facts = built if isinstance(built, tuple) and len(built) == 2 else (built, {})
    lacking = sorted(_SEARCHER - set(dir(searcher)))
    if lacking:
        raise InputError(
            f"build of {name} returned a {type(searcher).__name__}, which is no searcher: it lacks {', '.join(lacking)}"
        )
    if not isinstance(facts, Mapping):
        raise InputError(
            f"build of {name} returned a searcher and a {type(facts).__name__}; return the facts as a mapping"
        )
    return searcher, facts


def checked_retriever(name: str, fitted: Any) -> Retriever:
    """The retriever that a method's `fit` returned. Errors: another type."""
    if not isinstance(fitted, Retriever):
        raise InputError(
            f"fit of {name} returned a {type(fitted).__name__}; return a Retriever, as of build_retriever(..)"
        )
    return fitted


def check_seed(seed: Any) -> None:
    """Raise `InputError` for a seed that is not a whole number in 0..MAX_SEED."""
    if not (is_number(seed, whole=True) and 0 <= seed <= MAX_SEED):
        raise InputError(f"seed={seed!r} is not a whole number in 0..{MAX_SEED}")


def _check_run(run: Any) -> None:
    # Imported here, as counting methods take no run folder and must not load torch.
    from beamwood.training.run_folder import RunFolder

    if not isinstance(run, RunFolder):
        raise InputError(f"run={run!r} is not a run folder; give beamwood.training.run_folder.RunFolder({run!r})")
