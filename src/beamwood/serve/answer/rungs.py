"""The narrower searches under load: the ways below the default one."""

from __future__ import annotations

from dataclasses import dataclass

from beamwood.retrieval.item_vectors import part_with
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import Searcher

__all__ = ["Rung", "rung_at", "rungs_of"]

_STEPS = 4


@dataclass(frozen=True, slots=True)
class Rung:
    """One way to search: an effort or a width of the full beam; neither: the default.

    `beam_width`: its width, None without a tree.
    """

    beam_width: int | None = None
    effort: float | None = None
    width: int | None = None


def rungs_of(searcher: Searcher, min_beam: int) -> tuple[Rung, ...]:
    """The default first, then narrower ones down to a beam of `min_beam`, or the cheapest way of a light head.

    A full beam is narrowed by width, a search steered by a light head by its cheaper ways. Other methods are not
    narrowed.
    """
    tree = part_with(searcher, TreeSearcher)
    if tree is None:
        return (Rung(),)
    way, ladder, chosen = tree.ways.default, tree.ways.ladder, tree.ways.chosen
    first = Rung(way.beam_width)
    if way.kind != "beam":
        last = len(ladder) - 1
        cheaper = [at for at in range(chosen - 1, -1, -1) if ladder[at].judged < way.judged]
        return (first, *(Rung(ladder[at].beam_width, effort=at / last) for at in cheaper))
    least = min(min_beam, way.beam_width)
    widths = [round(way.beam_width - (way.beam_width - least) * step / _STEPS) for step in range(1, _STEPS + 1)]
    return (first, *(Rung(width, width=width) for width in dict.fromkeys(widths) if width < way.beam_width))


def rung_at(rungs: tuple[Rung, ...], pressure: float) -> Rung:
    """The rung for a pressure of 0..1."""
    return rungs[0] if pressure <= 0 or len(rungs) == 1 else rungs[max(1, round(pressure * (len(rungs) - 1)))]
