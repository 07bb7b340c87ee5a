"""Where a setting has an effect: stated beside its field, as the choice that reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Not", "Only", "by_choice"]


@dataclass(frozen=True, slots=True)
class Only:
    """The setting has an effect only where another one, by its dotted name, has one of these values.

    A configuration without that other setting states nothing.
    """

    choice: str
    values: tuple[Any, ...]

    def problem(self, name: str, value: Any) -> str | None:
        """The message about the setting `name` where the choice has this value; None where it has an effect."""
        if value in self.values:
            return None
        fitting = " or ".join(map(_word, self.values))
        return f"{name} is for {self.choice}={fitting}, not {_word(value)}; leave it out, or change {self.choice}"


@dataclass(frozen=True, slots=True)
class Not:
    """The setting has an effect unless another one, by its dotted name, has one of these values."""

    choice: str
    values: tuple[Any, ...]

    def problem(self, name: str, value: Any) -> str | None:
        """As `Only.problem`."""
        if value not in self.values:
            return None
        return f"{name} has no effect with {self.choice}={_word(value)}; leave it out, or change {self.choice}"


def by_choice(choice: str, read: Mapping[str, Iterable[str]]) -> dict[str, tuple[Only, ...]]:
    """The conditions of the settings that the values of a choice read, each value its own."""
    names = dict.fromkeys(name for own in read.values() for name in own)
    return {name: (Only(choice, tuple(value for value, own in read.items() if name in own)),) for name in names}


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
