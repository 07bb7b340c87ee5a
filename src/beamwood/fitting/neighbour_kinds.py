"""The kinds of neighbour counts: which items of a history are neighbours of each other."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["KINDS", "NeighbourKind", "is_directed"]

NeighbourKind = Literal["around", "after", "next"]
"""Items within ten steps either way; within ten later steps; and these weighted by nearness."""


class Kind(NamedTuple):
    """Whether only later items count, and the power of the gap by which a count is divided."""

    directed: bool
    power: float


KINDS: dict[NeighbourKind, Kind] = {
    "around": Kind(directed=False, power=0),
    "after": Kind(directed=True, power=0),
    "next": Kind(directed=True, power=2),
}
"""The first is the default: the items of a session are near each other."""


def is_directed(kind: NeighbourKind | None) -> bool:
    """Whether only later items count; False for None."""
    return kind is not None and KINDS[kind].directed
