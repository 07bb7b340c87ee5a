"""Who is near an item in a history: the kinds of nearness that a tree's lists of neighbours can hold."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["KINDS", "NeighbourKind", "is_directed"]

NeighbourKind = Literal["around", "after", "next"]
"""Ten steps either way; ten steps later; later, and the nearer the more."""


class Kind(NamedTuple):
    """Whether only what comes later counts, and by which power of the steps between it counts less."""

    directed: bool
    power: float


KINDS: dict[NeighbourKind, Kind] = {
    "around": Kind(directed=False, power=0),
    "after": Kind(directed=True, power=0),
    "next": Kind(directed=True, power=2),
}
"""Where nothing speaks for another, the first: what a session holds is near all of it."""


def is_directed(kind: NeighbourKind | None) -> bool:
    """Does only what comes later count? Not where no kind is said."""
    return kind is not None and KINDS[kind].directed
