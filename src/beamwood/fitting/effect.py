"""Where a setting has an effect: stated beside its field, as the choice that reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Condition", "Not", "NotBoth", "Only", "by_choice"]


@dataclass(frozen=True, slots=True)
class Only:
    """The setting has an effect only where another one, by its dotted name, has one of these values.

    A configuration without that other setting states nothing.
    """

    choice: str
    values: tuple[Any, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """The other settings."""
        return (self.choice,)

    def problem(self, name: str, chosen: Mapping[str, Any]) -> str | None:
        """The message about the setting `name` beside these values of its `choices`; None where it has an effect."""
        value = chosen[self.choice]
        if value in self.values:
            return None
        fitting = " or ".join(map(_word, self.values))
        return f"{name} is for {self.choice}={fitting}, not {_word(value)}; leave it out, or change {self.choice}"


@dataclass(frozen=True, slots=True)
class Not:
    """The setting has an effect unless another one, by its dotted name, has one of these values."""

    choice: str
    values: tuple[Any, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """As `Only.choices`."""
        return (self.choice,)

    def problem(self, name: str, chosen: Mapping[str, Any]) -> str | None:
        """As `Only.problem`."""
        value = chosen[self.choice]
        if value not in self.values:
            return None
        return f"{name} has no effect with {self.choice}={_word(value)}; leave it out, or change {self.choice}"


@dataclass(frozen=True, slots=True)
class NotBoth:
    """The setting has an effect unless two others, by their dotted names, have these values."""

    one: tuple[str, Any]
    other: tuple[str, Any]

    @property
    def choices(self) -> tuple[str, ...]:
        """As `Only.choices`."""
        return self.one[0], self.other[0]

    def problem(self, name: str, chosen: Mapping[str, Any]) -> str | None:
        """As `Only.problem`."""
        if any(chosen[choice] != value for choice, value in (self.one, self.other)):
            return None
        both = " and ".join(f"{choice}={_word(value)}" for choice, value in (self.one, self.other))
        return f"{name} has no effect with {both}; leave it out, or change {' or '.join(self.choices)}"


Condition = Only | Not | NotBoth


def by_choice(choice: str, read: Mapping[str, Iterable[str]]) -> dict[str, tuple[Only, ...]]:
    """The conditions of the settings that the values of a choice read, each value its own."""
    names = dict.fromkeys(name for own in read.values() for name in own)
    return {name: (Only(choice, tuple(value for value, own in read.items() if name in own)),) for name in names}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
