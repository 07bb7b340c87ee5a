"""The ways in which a tree can be searched, cheapest first, and the default one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import Field

from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.light import Way, WayKind
from beamwood.retrieval.stored import MOST, StoredConfig

__all__ = ["StoredWay", "Ways", "narrower_beams"]

_PARTS = (8, 4, 2)


class StoredWay(StoredConfig):
    """The stored form of a way."""

    kind: WayKind
    beam_width: int = Field(ge=1, le=MOST)
    judged: int = Field(ge=0, le=MOST)


@dataclass(frozen=True, slots=True)
class Ways:
    """`ladder`: cheapest first, the last one the full beam; `chosen`: the position of the default.

    Errors: `InputError` where the last is not a beam, or `chosen` is out of range.
    """

    ladder: tuple[Way, ...]
    chosen: int

    def __post_init__(self) -> None:
        if not self.ladder or self.ladder[-1].kind != "beam":
            raise InputError("ways must end with the full beam, which effort=1 asks for")
        if not 0 <= self.chosen < len(self.ladder):
            raise InputError(f"chosen={self.chosen} is none of the {len(self.ladder)} ways")

    @property
    def default(self) -> Way:
        """The default way."""
        return self.ladder[self.chosen]

    def of(self, effort: float | None) -> Way:
        """The way for an effort in 0..1, 1 the full beam and 0 the cheapest; None: the default."""
        if effort is None:
            return self.default
        if not 0 <= effort <= 1:
            raise InputError(f"effort={effort} is outside 0..1; 1 is the full beam, 0 the cheapest way")
        return self.ladder[round(effort * (len(self.ladder) - 1))]

    def export(self) -> dict[str, Any]:
        """The JSON-able form."""
        return {"ways": [asdict(way) for way in self.ladder], "way": self.chosen}

    @classmethod
    def restore(cls, ladder: Sequence[StoredWay], chosen: int, *, steerable: bool) -> Ways:
        """The inverse of `export`. Errors: a way steered by a light head, where there is none."""
        ways = cls(tuple(Way(way.kind, way.beam_width, way.judged) for way in ladder), chosen)
        if not steerable and any(way.kind != "beam" for way in ways.ladder):
            raise ArtefactError("a way of searching is steered by a light head, which the weights lack")
        return ways


def narrower_beams(beam_width: int) -> Ways:
    """The full beam as default, after narrower ones: the ways without a light head."""
    widths = sorted({max(1, beam_width // part) for part in _PARTS} | {beam_width})
    return Ways(tuple(Way("beam", width) for width in widths), len(widths) - 1)
