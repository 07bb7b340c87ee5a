"""The methods and settings that a search for the best one tries on a log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from beamwood.methods import load_method
from beamwood.methods.method import Method
from beamwood.recipes.portfolio.choice import Contender
from beamwood.recipes.portfolio.outline import Outline

__all__ = ["Member", "members_of"]

# Histories up to this length hold little long-term taste: the latest items matter more.
_SHORT = 4


@dataclass(frozen=True, slots=True)
class Member:
    """A method with settings that differ from its defaults, under its own name.

    `blends`: whether it may be part of a blend.
    """

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    blends: bool = True

    def load(self) -> Method:
        """The method."""
        return load_method(self.method)

    @property
    def contender(self) -> Contender:
        """What the search policy knows of it."""
        return Contender(self.name, self.load().needs.steps, self.method)

    def settings_for(self, monitor: str) -> dict[str, Any]:
        """Its settings, with the search's metric as its monitor."""
        chosen = {"choose.monitor": monitor} if "choose.monitor" in self.load().Config.names() else {}
        return chosen | dict(self.settings)


# Counting methods: fitted in seconds, and good parts of a blend.
_COUNTING = (
    Member("popularity", "popularity", {"model.half_life": "auto"}, blends=False),
    Member("cooccurrence", "cooccurrence"),
    Member("transitions", "transitions"),
    Member("ease", "ease"),
)
_TREE = Member("dtr", "dtr")
_TOWERS = Member("two_tower", "two_tower")
_ATTENTION = Member("sasrec", "sasrec")
_RECURRENT = Member("gru4rec", "gru4rec")
# Settings that validation prefers on some logs.
_GENTLE_TREE = Member("dtr-gentle", "dtr", {"optimiser.learning_rate": 5e-4, "model.dropout": 0.1})
_WIDE_TOWERS = Member("two_tower-wide", "two_tower", {"model.width": 128, "optimiser.learning_rate": 3e-3})


def members_of(outline: Outline, *, trains: bool) -> list[Member]:
    """The members to try, in order; `trains`: torch is installed.

    The tree and two towers are best after a minute or two on every log tried. Of the encoders, the recurrent one suits
    short histories, as in sessions.
    """
    if not (trains and outline.can_train):
        return list(_COUNTING)
    short = outline.length <= _SHORT
    encoders = (_RECURRENT, _ATTENTION) if short else (_ATTENTION, _RECURRENT)
    return [*_COUNTING, _TREE, _TOWERS, *encoders, _GENTLE_TREE, _WIDE_TOWERS]
