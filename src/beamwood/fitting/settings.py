"""Settings in groups, which are merged over a method's own defaults; and the groups that methods share.

A method's `Config` is a `MethodConfig` whose fields are groups. It states its defaults by instances, as `loop:
LoopSettings = LoopSettings(batch_size=32)`. Each field is defined once, here or in its family's `settings.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from beamwood.errors import closest
from beamwood.fitting.effect import Condition, Not
from beamwood.fitting.plan import Facts, Start
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.parameters import LayerWidth
from beamwood.retrieval.stored import MOST
from beamwood.training.loop_config import DeviceName, EmbeddingOptimiser, LoopConfig
from beamwood.training.schedule import ScheduleKind

if TYPE_CHECKING:
    from beamwood.data.split import Split

__all__ = [
    "GROUPS",
    "AttentionStartSettings",
    "ChoiceSettings",
    "Dropout",
    "HistoryLength",
    "Horizon",
    "ItemColumns",
    "ItemStartSettings",
    "LoopSettings",
    "MethodConfig",
    "Mlp",
    "NumNegatives",
    "NumTargets",
    "OptimiserSettings",
    "SeenChoiceSettings",
    "SeenConfig",
    "SettingsGroup",
    "TableOptimiserSettings",
    "TrainedConfig",
    "BooleanError",
    "WeightChoiceSettings",
    "Width",
]

GROUPS = ("model", "tree", "start", "examples", "loss", "optimiser", "loop", "choose", "index")
"""The groups that settings may have, in the order in which they are listed."""

# Fields that several groups have, each with its description.
Width = Annotated[LayerWidth, Field(description="embedding width of items or nodes")]
HistoryLength = Annotated[int, Field(ge=1, le=MAX_HISTORY, description="number of latest history items used")]
Dropout = Annotated[float, Field(ge=0, lt=1, description="dropout rate in training")]
Mlp = Annotated[tuple[LayerWidth, ...], Field(min_length=1, description="widths of the layers above the attention")]
ItemColumns = Annotated[tuple[str, ...], Field(description="columns of the item table, as name or name:kind")]
Horizon = Annotated[
    int, Field(ge=0, description="farthest target, in steps ahead; 1: only the next item; 0: unlimited")
]
NumTargets = Annotated[int, Field(ge=1, description="future items used as targets of one history")]
NumNegatives = Annotated[
    int, Field(ge=1, description="negatives per target and level (trees), per example, or per list")
]


class BooleanError(ValueError):
    """A boolean was given for a setting of another type."""


class SettingsGroup(BaseModel):
    """Frozen settings of one group, without unknown keys, with numbers in the range of the native code."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_boolean_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic would convert them to 1 and 0.
        if _holds_boolean(value) and not _accepts_boolean(cls.model_fields[str(info.field_name)].annotation):
            raise BooleanError("it is true or false; give a number or a word")
        return value

    @field_validator("*")
    @classmethod
    def _numbers_fit(cls, value: Any) -> Any:
        for number in _numbers(value):
            if abs(number) > MOST:
                raise ValueError(f"numbers must be between -{MOST} and {MOST}")
        return value

    @classmethod
    def conditions(cls) -> dict[str, tuple[Condition, ...]]:
        """By setting, where it has an effect; settings without a condition always have one."""
        stated = {name: field.metadata for name, field in cls.model_fields.items()}
        return {name: tuple(each for each in data if isinstance(each, Condition)) for name, data in stated.items()}


class MethodConfig(BaseModel):
    """The settings of a method, in groups; frozen.

    Values are given as mappings, as `SettingsGroup`s or by dotted keys ("loop.max_steps"); they are merged over the
    method's own defaults. Errors (`ValueError`): an unknown key, naming the nearest known one; a key without its group.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    fixed: ClassVar[frozenset[str]] = frozenset()
    """The settings of its groups that a method does not leave open, by dotted name."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        for name, field in cls.model_fields.items():
            assert name in GROUPS, f"{cls.__name__}.{name} is none of the groups {GROUPS}"
            assert isinstance(field.default, SettingsGroup), (
                f"{cls.__name__}.{name} needs a default instance of its group"
            )

    @model_validator(mode="before")
    @classmethod
    def _in_groups(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        groups: dict[str, Any] = {}
        for key, value in data.items():
            name, dot, own = str(key).partition(".")
            if name not in cls.model_fields or (dot and own not in cls.group(name).model_fields):
                raise ValueError(cls._unknown(str(key)))
            given = {own: value} if dot else value
            groups[name] = _merge_groups(groups[name], given) if name in groups else given
        return groups

    @field_validator("*", mode="wrap")
    @classmethod
    def _merged(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        given = _given_values(value)
        if given is None:
            raise ValueError(f"is not a group of settings; write {name}={{...}} with the keys of the group")
        for key in given:
            if key not in cls.group(name).model_fields:
                raise ValueError(cls._unknown(f"{name}.{key}"))
        merged = handler(dict(cls.model_fields[name].default) | given)
        return type(merged).model_construct(set(given), **dict(merged))

    @classmethod
    def group(cls, name: str) -> type[SettingsGroup]:
        """The class of a group."""
        return type(cls.model_fields[name].default)

    @classmethod
    def names(cls) -> list[str]:
        """The dotted names of all settings, group by group."""
        return [f"{name}.{key}" for name in GROUPS if name in cls.model_fields for key in cls.group(name).model_fields]

    @property
    def given(self) -> frozenset[str]:
        """The dotted names of the settings that the user gave, whatever their values."""
        groups = [(name, group) for name, group in self if name in self.model_fields_set]
        return frozenset(f"{name}.{key}" for name, group in groups for key in group.model_fields_set)

    def without_effect(self, names: Iterable[str]) -> str | None:
        """The message about the first of these settings that the other settings leave unread; None if all are read.

        A setting with its default value is none: it asks for nothing else than is done.
        """
        values = self._values(dict(self))
        defaults = self._values({name: field.default for name, field in type(self).model_fields.items()})
        for name in sorted(names):
            group, _, key = name.partition(".")
            for condition in self.group(group).conditions()[key] if values[name] != defaults[name] else ():
                known = all(choice in values for choice in condition.choices)
                problem = condition.problem(name, values) if known else None
                if problem is not None:
                    return problem
        return None

    @staticmethod
    def _values(groups: Mapping[str, Any]) -> dict[str, Any]:
        """The values of groups by dotted name."""
        return {f"{name}.{key}": value for name, group in groups.items() for key, value in group}

    def flat(self) -> dict[str, Any]:
        """All settings by dotted name, JSON-able; settings that a plan omits are left out."""
        groups = self.model_dump(mode="json")
        return {f"{name}.{key}": value for name, group in groups.items() for key, value in group.items()}

    def changed(self, settings: Mapping[str, Any]) -> Self:
        """A validated copy with the given settings replaced; they are given as to `__init__`."""
        given = {name: {key: value for key, value in group if key in group.model_fields_set} for name, group in self}
        kept = {name: group for name, group in given.items() if name in self.model_fields_set}
        for key, value in settings.items():
            name, dot, own = key.partition(".")
            kept[name] = _merge_groups(kept.get(name, {}), {own: value} if dot else value)
        return type(self)(**kept)

    def plan(self, facts: Facts) -> Self:
        """A copy with each automatic value resolved for a data set with these facts.

        Errors: `InputError` where a setting is impossible for such data.
        """
        return self.changed(self.resolved(facts))

    def chosen(self, split: Split, options: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that a fit with these options chooses on validation users before planning, by dotted name."""
        del split, options
        return {}

    def resolved(self, facts: Facts) -> dict[str, Any]:
        """The values of automatic settings by dotted name; configurations that have any override this method."""
        del facts
        return {}

    @classmethod
    def _unknown(cls, key: str) -> str:
        """The message about an unknown key."""
        own = key.rpartition(".")[2]
        full = [name for name in cls.names() if name.rpartition(".")[2] == own]
        if full and "." not in key:
            return f"{key} belongs to a group: write {' or '.join(full)}"
        # Only in the named group, if that exists: a similar name in another group means something else.
        group = key.partition(".")[0] if key.partition(".")[0] in cls.model_fields else None
        names = [name for name in cls.names() if group is None or name.startswith(f"{group}.")]
        near = closest(own, {name.rpartition(".")[2] for name in names})
        meant = full or [name for name in names if name.rpartition(".")[2] == near]
        there = ", ".join(cls.model_fields if group is None else names) or "none"
        hint = f"; did you mean '{meant[0]}'?" if meant else f"; there are {there}"
        return f"setting '{key}' is unknown{hint}"


def _given_values(value: Any) -> dict[str, Any] | None:
    """The given values of a mapping or group; None for anything else."""
    if isinstance(value, SettingsGroup):
        return {key: part for key, part in value if key in value.model_fields_set}
    return dict(value) if isinstance(value, Mapping) else None


def _merge_groups(first: Any, later: Any) -> Any:
    """Two parts of one group merged; the later one wins."""
    before, after = _given_values(first), _given_values(later)
    return later if before is None or after is None else before | after


def _holds_boolean(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_boolean, value)))


def _accepts_boolean(annotation: Any) -> bool:
    return annotation in (bool, Any) or any(map(_accepts_boolean, get_args(annotation)))


def _numbers(value: Any) -> Iterator[int | float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)


class OptimiserSettings(SettingsGroup):
    """The learning rate, its schedule and gradient clipping."""

    learning_rate: float | None = Field(
        1e-3, gt=0, description="peak learning rate; null: chosen by the initial scores (trees only)"
    )
    schedule: ScheduleKind = Field("linear", description="decay of the learning rate after the warm-up")
    warmup_steps: int = Field(0, ge=0, description="steps in which the learning rate rises to its peak")
    decay_steps: Annotated[int | None, Not("optimiser.schedule", ("constant",))] = Field(
        None, ge=1, description="decay length in steps; null: the rest of the run; exponential needs a number"
    )
    floor: Annotated[float, Not("optimiser.schedule", ("constant",))] = Field(
        0.0, ge=0, description="minimum learning rate"
    )
    clip_norm: float | None = Field(5.0, gt=0, description="maximum gradient norm; null: no clipping")


class TableOptimiserSettings(OptimiserSettings):
    """The optimiser of models with embedding tables: its weight decay too."""

    weight_decay: float = Field(
        0.0,
        ge=0,
        description="weight decay: decoupled (AdamW); trees exclude embeddings; two_tower uses coupled L2",
    )
    embeddings: EmbeddingOptimiser = Field(
        "auto",
        description="lazy-adam updates only vectors used in a step; large (and auto): for tables of 100,000 or more",
    )


class LoopSettings(SettingsGroup):
    """The length of a training, its batches, and its validations."""

    batch_size: int = Field(64, ge=1, description="examples per step: histories, windows, pairs, lists or items")
    max_steps: int | None = Field(None, ge=1, description="maximum steps; null: only max_epochs applies")
    max_epochs: int | None = Field(None, ge=1, description="maximum epochs; null: only max_steps applies")
    evaluate_every: int = Field(200, ge=1, description="steps between validations")
    patience: int = Field(8, ge=1, description="validations without improvement before training stops")
    log_every: int = Field(50, ge=1, description="steps between lines of the metrics file")
    device: DeviceName = Field("cpu", description="training device: cpu, or cuda (one NVIDIA GPU)")


class ChoiceSettings(SettingsGroup):
    """The validation users."""

    validation_users: int = Field(2000, ge=1, description="validation users for model selection, sampled once")


class WeightChoiceSettings(ChoiceSettings):
    """The validation users, and the metric that chooses the weights."""

    monitor: str = Field(
        "removed/f@20",
        description="metric for model selection: seen kept (kept/), seen removed (removed/), or their mean (both/)",
    )


class SeenChoiceSettings(WeightChoiceSettings):
    """The validation users, the metric that chooses the weights, and the weight of seen items."""

    seen_weight: float | None = Field(
        None,
        ge=-MOST,
        le=MOST,
        description="added to the score of seen items; null: chosen on validation users; the papers: 0",
    )


class ItemStartSettings(SettingsGroup):
    """How item vectors are initialised."""

    items: Start = Field(
        "auto",
        description="item vectors: random (the papers) or from transitions; auto: transitions up to 2,000,000 items",
    )


class AttentionStartSettings(SettingsGroup):
    """How the attention is initialised."""

    attention: float | None = Field(
        0.3, description="initial output of the attention; null: random initialisation (the papers)"
    )


class TrainedConfig(MethodConfig):
    """The settings of a method that trains by steps."""

    optimiser: OptimiserSettings = OptimiserSettings()
    loop: LoopSettings = LoopSettings()
    choose: WeightChoiceSettings = WeightChoiceSettings()

    @model_validator(mode="after")
    def _something_ends_the_run(self) -> Self:
        if self.loop.max_steps is None and self.loop.max_epochs is None:
            raise ValueError("loop.max_steps and loop.max_epochs are both null; give one of them")
        return self

    @model_validator(mode="after")
    def _the_rate_is_known(self) -> Self:
        default: OptimiserSettings = type(self).model_fields["optimiser"].default
        if self.optimiser.learning_rate is None and default.learning_rate is not None:
            raise ValueError(f"optimiser.learning_rate=null: give a number; the default is {default.learning_rate}")
        return self

    @model_validator(mode="after")
    def _the_decay_has_a_length(self) -> Self:
        if self.optimiser.schedule == "exponential" and self.optimiser.decay_steps is None:
            raise ValueError("optimiser.schedule=exponential needs optimiser.decay_steps; give a number of steps")
        return self

    def loop_config(self, *, evaluate_start: bool) -> LoopConfig:
        """The configuration of the training loop."""
        fields = set(LoopConfig.model_fields)
        settings = self.optimiser.model_dump(include=fields) | self.loop.model_dump(include=fields)
        settings = {name: value for name, value in settings.items() if value is not None}
        return LoopConfig(monitor=f"valid/{self.choose.monitor}", evaluate_start=evaluate_start, **settings)


class SeenConfig(TrainedConfig):
    """The settings of a method that chooses the weight of seen items after training."""

    choose: SeenChoiceSettings = SeenChoiceSettings()
