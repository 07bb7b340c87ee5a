"""A fitted model fitted again for serving: the same methods and settings, on nearly all events of a log."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ValidationError

from beamwood.arguments import naming_arguments
from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.data.whole import whole
from beamwood.errors import InputError, first_problem
from beamwood.extras import is_installed
from beamwood.fitting.fitted import notes_of_fit
from beamwood.fitting.method_config import MethodConfig
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.methods import METHODS, Method, MethodFile, check_split, load_method
from beamwood.methods.arguments import configured
from beamwood.methods.sums import add_fitted
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.forget import without_users
from beamwood.retrieval.retriever import Retriever
from beamwood.steps import tell
from beamwood.training.budget import Budget
from beamwood.words import counted

if TYPE_CHECKING:
    from beamwood.training.run_folder import RunFolder

__all__ = ["RefitPart", "refit", "refit_parts"]

_WHOLE_NUMBER = r"^-?\d+$"
# The shares of a time limit: of a method that trains, of one that counts, and of choosing the weights of a sum.
_TRAINED, _COUNTED, _WEIGHED = 6.0, 1.0, 1.0


@dataclass(frozen=True, slots=True)
class RefitPart:
    """A method of a fitted model, and how it was fitted; `settings`: those that differ from its preset's."""

    method: Method
    settings: Mapping[str, Any]
    preset: str | None
    seed: int

    @property
    def config(self) -> MethodConfig:
        """All its settings."""
        return self.method.configured(self.settings, self.preset)

    @property
    def trains(self) -> bool:
        """Whether it is trained by steps."""
        return self.method.needs.trains(self.config)

    @property
    def folders(self) -> dict[str, str]:
        """The fitted folders that it starts from, by option."""
        needed = {each: self.settings.get(each.setting) for each in self.method.needs.fitted}
        # The name of a counting method is no folder.
        return {
            each.option: folder
            for each, folder in needed.items()
            if folder is not None and not (each.or_counting and folder in METHODS)
        }

    def starting_from(self, folders: Mapping[str, str]) -> RefitPart:
        """The same, which starts from other fitted folders, by option."""
        known = {each.option: each.setting for each in self.method.needs.fitted}
        given = {known[option]: folder for option, folder in folders.items() if option in known}
        return replace(self, settings={**self.settings, **given})


@naming_arguments
def refit(
    fitted: Retriever,
    split: Split,
    *,
    method: str | PathLike[str] | Method | None = None,
    start: Mapping[str, str] | None = None,
    time_limit: float | Budget | None = None,
    run_of: Callable[[int], RunFolder] | None = None,
    resume: bool = False,
    progress: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> Retriever:
    """Fit the methods of `fitted` again with its settings, on the whole log of `split`, which may be a later log.

    Its test users must not evaluate the result: all events train, except those held back for a few validation users
    (see `data.whole`), who choose the best step and the weights of a sum again. A model without histories is refitted
    without them. `method`: the `Method` or .py file of a custom method. `start`: by option, as {"--from": folder},
    refitted folders in place of those that it started from. `time_limit`: in seconds, for all methods together; by
    default that of its fit, or of the search that found it. `run_of`: the run folder of a method that trains, by its
    place in the sum, for `resume`. Errors: as in a fit, and `InputError` where `fitted` does not record its own fit,
    ids have another type, or the log lacks times or the item table columns.
    """
    check_split(split)
    _check_events(fitted, split.dataset)
    _check_columns(fitted, split.dataset)
    for note in _lost_ids(fitted, split.dataset):
        say(note)
    parts, recorded = refit_parts(fitted, method, start), _Recorded.of(fitted)
    search = recorded.search
    budget = Budget.of(search.time_limit if time_limit is None else time_limit)
    data = whole(split)
    say(data.rule)
    found: list[Retriever] = []
    for place, (part, own) in enumerate(_with_budgets(parts, budget)):
        options: dict[str, Any] = {"seed": part.seed, "time_limit": own, "progress": progress}
        if part.trains and run_of is not None:
            run = run_of(place)
            options |= {"run": run, "resume": resume and run.path.exists()}
        found.append(part.method.fitted(data, part.settings, preset=part.preset, **options))
        for note in notes_of_fit(found[-1]):
            say(f"{part.method.name}: {note}")
    both, *others = found
    choose = {} if search.monitor is None else {"choose.monitor": search.monitor}
    for other, (_, stage) in zip(others, recorded.models[1:], strict=True):
        config = configured(StagesConfig, choose | {f"model.{key}": value for key, value in stage.items()})
        assert isinstance(config, StagesConfig)
        both = add_fitted(both, other, data, config, seed=parts[0].seed, budget=budget)
    facts = search.model_dump() | {"validation_users": len(data.valid)}
    both = replace(both, metadata=both.metadata | {"refit": facts})
    return without_users(both) if fitted.users is None else both


def _check_events(fitted: Retriever, dataset: Dataset) -> None:
    """Errors: a log without the times or the kinds of events of the fit's; all rows alike, in their order, would count.

    Only times that are dates are recorded.
    """
    facts = fitted.metadata.get("data")
    if not isinstance(facts, Mapping):
        return
    if dataset.times is None and "end" in facts:
        source = dataset.report.get("log", {}).get("source", "the log")
        raise InputError(
            f"{source} has no column of times, which the log of the fit had, so the order of its rows would count; "
            "give it that column, under the same name, or fit a new model"
        )
    if dataset.kinds is None and "events" in facts:
        raise InputError(
            "the model knows kinds of events, and the log was read without them, so all rows would count alike; give "
            "read_log(events=..., negative_events=[...]) those of the fit, or fit a new model"
        )


def _check_columns(fitted: Retriever, dataset: Dataset) -> None:
    """Errors: an item table without a column that filters of the model ask for, or with another kind of it."""
    own = {} if fitted.columns is None else fitted.columns.columns
    if not own:
        return
    if dataset.item_table is None:
        named = ", ".join(map(repr, own))
        raise InputError(
            f"the model has item columns for filters ({named}), and there is no item table; give one with --items, in "
            "Python Dataset.from_log(log, items, keep_columns=[...]), or fit a new model"
        )
    found = ItemColumns.of(dataset.item_table.filtered_by()).columns
    for name, column in own.items():
        if name not in found:
            lacking = f"the item table keeps no column '{name}', which filters of the model ask for"
            raise InputError(f"{lacking}; give a table with it, or fit a new model")
        kinds = ["text" if each.kind == "labels" else each.kind for each in (found[name], column)]
        if kinds[0] != kinds[1]:
            raise InputError(
                f"the column '{name}' of the item table is of kind {kinds[0]}, in the model of kind {kinds[1]}; write "
                "it as in the table of the fit, or fit a new model"
            )


def _lost_ids(fitted: Retriever, dataset: Dataset) -> Iterator[str]:
    """Notes on the model's ids that the log lacks. Errors: ids of another type, which requests no longer meet."""
    for role, model, log in (("user", fitted.users, dataset.users), ("item", fitted.items, dataset.items)):
        if model is None:
            continue
        if _type_of(model) != _type_of(log):
            ids = log.ids.cast(pl.String)
            others = ids.filter(~ids.str.contains(_WHOLE_NUMBER))
            few = (
                f" ({counted(len(others), 'is', 'are')} no whole number, such as {others[0]!r})" if len(others) else ""
            )
            raise InputError(
                f"the {role} ids of the log are {_type_of(log)}{few}, those of the model are {_type_of(model)}; write "
                "them as in the log of the fit, or fit a new model"
            )
        found = log.encode(model.ids, on_unknown="ignore")
        if lost := int((found < 0).sum()):
            first = model.decode(np.flatnonzero(found < 0)[:1])[0]
            yield f"the log lacks {lost:,} of the model's {counted(len(model), role)}, such as {first!r}"


def _type_of(ids: Vocabulary) -> str:
    if ids.dtype.is_integer():
        return "numbers"
    return "text" if ids.dtype == pl.String else str(ids.dtype)


def refit_parts(
    fitted: Retriever, method: str | PathLike[str] | Method | None = None, start: Mapping[str, str] | None = None
) -> list[RefitPart]:
    """The methods of a fitted model, in the order of its sum; `method` and `start` as for `refit`.

    Errors: `InputError` where the model does not record them, or the file of a custom method is missing. Also on a
    folder in `start` that is missing, or that no method takes; `NotInstalledError` where torch is missing.
    """
    own, given = None if method is None else load_method(method), start or {}
    parts = [_part(each, own) for each, _ in _Recorded.of(fitted).models]
    _check_start(parts, given)
    for part in parts:
        part.method.check_installed(part.config)
    return [part.starting_from(given) for part in parts]


class _Search(BaseModel):
    """What a search asked for."""

    monitor: str | None = None
    time_limit: float | None = None


class _Recorded(BaseModel):
    """What a model's metadata record of its fit; a sum has `stages`, and its own `config` is of the last one."""

    method: str
    config: dict[str, Any]
    plan: dict[str, Any] | None = None
    preset: str | None = None
    seed: int = 0
    time_limit: float | None = None
    method_file: MethodFile | None = None
    stages: dict[Literal["retriever", "ranker"], _Recorded] | None = None
    portfolio: _Search = _Search()
    refit: _Search | None = None

    @classmethod
    def of(cls, fitted: Retriever) -> _Recorded:
        """Errors: `InputError` where parts are missing or invalid."""
        try:
            return cls.model_validate(fitted.metadata)
        except ValidationError as error:
            raise _unrecorded(first_problem(error)) from None

    @property
    def search(self) -> _Search:
        """That of the search that found it, or the time limit of its fit, also where it was refitted since."""
        if self.refit is not None:
            return self.refit
        return self.portfolio.model_copy(update={"time_limit": self.portfolio.time_limit or self.time_limit})

    @property
    def models(self) -> list[tuple[_Recorded, dict[str, Any]]]:
        """The models of a sum in their order, each with the settings of its stage."""
        if self.plan is not None or self.stages is None:
            return [(self, {})]
        stage = {key: value for key, value in self.config.items() if key == "num_candidates"}
        return [*self.stages["retriever"].models, (self.stages["ranker"], stage)]


def _part(recorded: _Recorded, own: Method | None) -> RefitPart:
    name, file, preset = recorded.method, recorded.method_file, recorded.preset
    if file is not None and own is None:
        raise InputError(f"{name} is defined in {file.path}; give method={file.path!r}")
    named = own if own is not None and own.name == name else None
    if named is None and name not in METHODS:
        # A path would be run, which only the folder names.
        raise InputError(f"the model was fitted with {name!r}, no method of beamwood; give method=, the one it is")
    method = load_method(name) if named is None else named
    usual = method.configured(None, preset).flat()
    if not all(isinstance(keys, Mapping) for keys in recorded.config.values()):
        raise _unrecorded(f"config={reprlib.repr(recorded.config)} has no groups")
    flat = {f"{group}.{key}": value for group, keys in recorded.config.items() for key, value in keys.items()}
    settings = {key: value for key, value in flat.items() if key not in usual or value != usual[key]}
    if not _has_device(settings.get("loop.device", "cpu")):
        tell(f"{name}: trained with loop.device={settings.pop('loop.device')}, here is no GPU, so it trains on the CPU")
    return RefitPart(method, settings, preset, recorded.seed)


def _has_device(name: Any) -> bool:
    if name != "cuda" or not is_installed("train"):
        return True
    from torch import cuda

    return cuda.is_available()


def _unrecorded(why: str) -> InputError:
    return InputError(f"this model does not record how it was fitted ({why}); fit it by beamwood.fit or `beamwood fit`")


def _check_start(parts: Sequence[RefitPart], start: Mapping[str, str]) -> None:
    """Errors: a folder for no part, and a part whose folder is not replaced."""
    needed = {option: (part.method.name, folder) for part in parts for option, folder in part.folders.items()}
    for option in start:
        if option not in needed:
            named = "+".join(part.method.name for part in parts)
            starts = f"; it starts from {', '.join(needed)}" if needed else ", which starts from no fitted folder"
            raise InputError(f"{option} is not for {named}{starts}")
    for option, (name, folder) in needed.items():
        if option not in start:
            raise InputError(f"{name} starts from {folder}; refit that first, and give its new folder with {option}")


def _with_budgets(parts: Sequence[RefitPart], budget: Budget) -> Iterator[tuple[RefitPart, Budget]]:
    """Each part with its share of the time that is left when it begins."""
    weights = [_TRAINED if part.trains else _COUNTED for part in parts]
    for place, part in enumerate(parts):
        if not budget.limited or len(parts) == 1:
            yield part, budget
            continue
        rest = sum(weights[place:]) + _WEIGHED
        yield part, budget.share_of_rest(weights[place] / rest, part.method.name)
