"""A method: its name, its settings, how it is fitted, and its requirements."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from beamwood.artefact import read_artefact
from beamwood.errors import InputError, NotInstalledError, nearest
from beamwood.extras import asking_for, is_installed, not_installed
from beamwood.fitting.assemble import build_retriever
from beamwood.fitting.method_config import MethodConfig
from beamwood.fitting.options import limit_of, with_budget
from beamwood.fitting.plan import Facts
from beamwood.methods.arguments import (
    check_split,
    check_without_run,
    checked_build,
    checked_options,
    checked_retriever,
    configured,
)
from beamwood.steps import tell

if TYPE_CHECKING:
    from beamwood.data.split import Split
    from beamwood.retrieval.retriever import Retriever
    from beamwood.types import Searcher

__all__ = ["Fitted", "Method", "MethodFile", "Needs"]

Table = Literal["items", "users", "context"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Fitted:
    """A setting that names the folder of a fitted model, and its command-line option.

    `required`: the method cannot be fitted without it; `or_counting`: the name of a counting method is accepted too.
    """

    setting: str
    option: str
    required: bool = True
    or_counting: bool = False


@dataclass(frozen=True, slots=True)
class Needs:
    """The requirements of a method.

    `steps`: it is trained by steps, so it needs torch, and accepts a run folder and resume; `unless`: except where this
    setting is given. `users`: it recommends only to users of the training data, always (True) or
    where a setting has one of the values. `time`: the log must have times, as in `split.train.times`. `columns`: by
    setting that names columns, the table that they are in. `fitted`: the fitted models that it starts from. `weighs`:
    it uses the weights of event kinds.
    """

    steps: bool = False
    unless: str | None = None
    users: bool | Mapping[str, tuple[str | int, ...]] = False
    time: bool = False
    columns: Mapping[str, Table] = field(default_factory=dict)
    fitted: tuple[Fitted, ...] = ()
    weighs: bool = False

    @property
    def alone(self) -> bool:
        """Whether it can be fitted without another fitted model."""
        return not any(each.required for each in self.fitted)

    def trains(self, config: MethodConfig) -> bool:
        """Whether it is trained by steps with these settings."""
        return self.steps and (self.unless is None or config.flat()[self.unless] is None)

    def knows_users(self, config: MethodConfig) -> bool:
        """Whether it recommends only to users of the training data with these settings."""
        return self.users is True or self.users_by(config) is not None

    def users_by(self, config: MethodConfig) -> str | None:
        """The setting that limits it to users of the training data; None if none does."""
        words, values = self.users if isinstance(self.users, Mapping) else {}, config.flat()
        return next((name for name in words if values[name] in words[name]), None)

    def named_columns(self, config: MethodConfig, table: Table) -> list[str]:
        """The columns of a table that the settings name, each as name or name:kind."""
        values = config.flat()
        return [column for name, own in self.columns.items() if own == table for column in values[name]]


@dataclass(frozen=True, slots=True)
class MethodFile:
    """The file of a user's own method, and the sha256 of its content."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Method:
    """A method that a user names, compares and configures.

    It has either a function `fit(split, config, **options)` with `TrainOptions`, which returns a `Retriever`, or
    `build(split, config, seed, budget)`, which returns a searcher, alone or with a mapping of facts about the fit. Both
    receive the plan: the settings with all automatic values resolved. `presets`: by name, dotted settings that replace
    defaults; `paper` is the form of the method's paper. `searchers`: by kind, the searcher classes that a method in a
    user's file defines.
    """

    name: str
    summary: str
    Config: type[MethodConfig]
    fit: Callable[..., Retriever] | None = None
    build: Callable[..., Searcher | tuple[Searcher, Mapping[str, Any]]] | None = None
    needs: Needs = Needs()
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    searchers: Mapping[str, type[Any]] = field(default_factory=dict)
    file: MethodFile | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(f"name={self.name!r} is not a method name; write letters, digits, '-' and '_'")
        if (self.fit is None) == (self.build is None):
            raise InputError(f"the method {self.name} needs either fit or build; give one of the two")
        if not (isinstance(self.Config, type) and issubclass(self.Config, MethodConfig)):
            raise InputError(f"Config of the method {self.name} is no class of MethodConfig; derive it from that")
        known = self.Config.names()
        named = [*self.needs.columns, *(each.setting for each in self.needs.fitted)]
        named += [] if self.needs.unless is None else [self.needs.unless]
        for name in [*named, *(self.needs.users if isinstance(self.needs.users, Mapping) else ())]:
            if name not in known:
                raise InputError(f"the method {self.name} needs '{name}', which is none of its settings")
        for preset, settings in self.presets.items():
            for name in settings:
                if name not in known:
                    raise InputError(f"the preset {preset} of {self.name} has '{name}', which is none of its settings")

    def described(self) -> dict[str, dict[str, Any]]:
        """Each setting that may be changed, by its dotted name: default, words, description, and value by preset."""
        config, rows = self.Config(), {}
        defaults = config.flat()
        for name in _open(config):
            group, _, key = name.partition(".")
            field = self.Config.group(group).model_json_schema()["properties"][key]
            forms = [field, field.get("items", {}), *field.get("anyOf", ())]
            rows[name] = {
                "default": defaults[name] if name in defaults else dict(dict(config)[group])[key],
                "choices": [str(word) for form in forms for word in form.get("enum", ())],
                "description": field.get("description", ""),
                "presets": {preset: values[name] for preset, values in self.presets.items() if name in values},
            }
        return rows

    def configured(self, config: Any, preset: str | None = None) -> MethodConfig:
        """Its settings from None, a mapping or an instance; given values override the preset.

        Errors: `InputError` on unknown keys, wrong values, and an unknown preset.
        """
        if preset is not None and preset not in self.presets:
            known = nearest(preset, self.presets) if self.presets else "; it has none"
            raise InputError(f"the method {self.name} has no preset '{preset}'{known}")
        return configured(self.Config, config, {} if preset is None else self.presets[preset])

    def check_installed(self, config: MethodConfig | None = None) -> None:
        """Raise where these settings (None: the defaults) need what is missing.

        Errors: `NotInstalledError` for torch, `InputError` for a GPU.
        """
        config = config or self.Config()
        if not self.needs.trains(config):
            return
        if not is_installed("train"):
            from beamwood.methods import counting

            missing = not_installed(f"method={self.name}", "torch")
            raise NotInstalledError(f"{missing}; or choose a counting method: {', '.join(counting())}")
        device = config.flat().get("loop.device", "cpu")
        # Without a GPU to look for, torch is not imported yet.
        if device != "cpu":
            from beamwood.training.device import device_of

            device_of(device)

    def check_start(self, config: MethodConfig) -> None:
        """Errors: no folder of a fitted model that it needs; a folder that holds none."""
        values = config.flat()
        for each in self.needs.fitted:
            folder = values[each.setting]
            if folder is None and each.required:
                raise InputError(
                    f"{self.name} needs a fitted model; give its folder with {each.option}, in Python {each.setting}"
                )
            if folder is not None and not each.or_counting:
                read_artefact(folder, kind="retriever", verify=False)

    def fitted(self, split: Split, config: Any = None, *, preset: str | None = None, **options: Any) -> Retriever:
        """Fit it on a split; `options` are those of `TrainOptions` and of its own `fit`.

        Errors: `InputError` on unknown settings or options, on test users without training data where it needs any, on
        a log without times where it needs them; those of `check_start` and, where it trains, `device.check_defaults`;
        `NotInstalledError` where an extra is missing.
        """
        check_split(split)
        config = self.configured(config, preset)
        self.check_installed(config)
        self.check_start(config)
        with asking_for(f"method={self.name}"):
            return self._fitted(split, config, preset, options)

    def _fitted(self, split: Split, config: MethodConfig, preset: str | None, options: Mapping[str, Any]) -> Retriever:
        given: Mapping[str, Any] = checked_options(self.fit, options)
        self._check_needs(split, config)
        if self.needs.trains(config):
            from beamwood.training.device import check_defaults

            check_defaults()
        else:
            check_without_run(self.name, given)
        if (run := given.get("run")) is not None:
            given = {**given, "run": run.of_method(self.name, None if self.file is None else self.file.sha256)}
        if self.needs.steps:
            given = with_budget(given, self.name)
        plan = config.changed(config.chosen(split, given)).plan(Facts.of(split.train))
        if self.needs.trains(config) and given.get("progress", True):
            _print_plan(self.name, config, plan)
        if self.fit is not None:
            retriever = checked_retriever(self.name, self.fit(split, plan, **given))
        else:
            assert self.build is not None
            seed = given.get("seed", 0)
            built = self.build(split, plan, seed, with_budget(given, self.name)["time_limit"])
            searcher, facts = checked_build(self.name, built)
            retriever = build_retriever(searcher, split, method=self.name, config=plan, seed=seed, training=dict(facts))
        if self.needs.trains(config):
            retriever = self._told_where_alike(retriever, split, given.get("seed", 0))
        about: dict[str, Any] = {"method": self.name} | ({} if preset is None else {"preset": preset})
        about |= {"config": config.model_dump(mode="json"), "plan": plan.model_dump(mode="json")}
        about |= limit_of(given.get("time_limit"))
        if self.file is not None:
            about["method_file"] = {"path": self.file.path, "sha256": self.file.sha256}
        return replace(retriever, metadata=retriever.metadata | about)

    def _told_where_alike(self, fitted: Retriever, split: Split, seed: int) -> Retriever:
        """The same, with a warning that is told and recorded where it recommends nearly the same to everyone."""
        from beamwood.fitting.alike import alike_in_words

        warning = alike_in_words(fitted.searcher, split.valid, len(fitted.items), seed=seed)
        if warning is None:
            return fitted
        tell(f"{self.name}: {warning}")
        training = fitted.metadata["training"] | {"warning": warning}
        return replace(fitted, metadata=fitted.metadata | {"training": training})

    def _check_needs(self, split: Split, config: MethodConfig) -> None:
        if self.needs.knows_users(config) and split.tests_unknown_users:
            by = self.needs.users_by(config)
            who = self.name if by is None else f"{by}={config.flat()[by]}"
            raise InputError(
                f"{who} recommends to users of the training data only, but --split {split.name} tests on others; "
                f"use --split leave-one-out, time or boundary, or another {'method' if by is None else by}"
            )
        if len(split.valid) == 0:
            raise InputError(
                "the split has no validation users, on whom a fit makes its choices; give split.valid at least one"
            )
        if self.needs.time and split.dataset.times is None:
            raise InputError(f"{self.name} needs times; give a log with them (--time-column)")


def _open(config: MethodConfig) -> list[str]:
    """The settings that may be changed to any effect, by dotted name: what a fixed one leaves unread is left out."""
    values = {f"{name}.{key}": value for name, group in config for key, value in group}

    def is_open(name: str) -> bool:
        group, _, key = name.partition(".")
        conditions = [each for each in config.group(group).conditions()[key] if config.fixed.issuperset(each.choices)]
        return name not in config.fixed and not any(each.problem(name, values) for each in conditions)

    return [name for name in config.names() if is_open(name)]


def _print_plan(name: str, config: MethodConfig, plan: MethodConfig) -> None:
    """Print the settings that the plan resolved, in one line."""
    before, after = config.flat(), plan.flat()
    # A setting that the plan used up, as the spare leaves of a tree, has no value after it.
    resolved = [key for key in plan.names() if key in after and after[key] != before.get(key)]
    meant = [f"{key}={json.dumps(after[key])}" for key in resolved]
    if meant:
        tell(f"{name}, planned: {', '.join(meant)}")
