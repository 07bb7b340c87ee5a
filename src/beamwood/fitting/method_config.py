"""The configuration of a method: settings in groups, which are merged over the method's own defaults.

A method's `Config` is a `MethodConfig` whose fields are groups. It states its defaults by instances, as `loop:
LoopSettings = LoopSettings(batch_size=32)`. Groups that methods share are in `fitting.settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from beamwood.errors import InputError, closest
from beamwood.fitting.effect import Condition
from beamwood.fitting.plan import Facts
from beamwood.retrieval.stored import MOST

if TYPE_CHECKING:
    from beamwood.data.split import Split

__all__ = ["GROUPS", "BooleanError", "MethodConfig", "SettingsGroup"]

GROUPS = ("model", "tree", "start", "examples", "loss", "optimiser", "loop", "choose", "index")
"""The groups that settings may have, in the order in which they are listed."""


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
            for base in cls.__mro__[1:]:
                own = (
                    base.group(name) if issubclass(base, MethodConfig) and name in base.model_fields else SettingsGroup
                )
                if not isinstance(field.default, own):
                    raise InputError(
                        f"{cls.__name__}.{name} is {type(field.default).__name__}, which lacks the settings of "
                        f"{own.__name__}; derive it from {own.__name__}"
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
