"""New items added to a fitted searcher without training, each as a mixture of known ones.

Shape legend: M items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from beamwood.errors import InputError
from beamwood.kernels.mixtures import Mixtures
from beamwood.retrieval.new_items.extended import Extended
from beamwood.retrieval.new_items.extended_tree import ExtendedTree
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.types import BoolArray, IndexArray, Searcher

__all__ = ["NewItem", "fitted_of", "have_places", "mixtures_of", "num_known", "with_items"]


@dataclass(frozen=True, slots=True)
class NewItem:
    """An item added after the fit: its id, the weights of its mixture by known id, and its cells of the item
    columns.
    """

    item: Any
    mixture: Mapping[Any, float] = field(default_factory=dict)
    cells: Mapping[str, Any] = field(default_factory=dict)
    gone: bool = False
    """Whether it is unknown again; its index stays reserved for answers in flight."""

    def __post_init__(self) -> None:
        if self.item is None or not isinstance(self.mixture, Mapping) or not isinstance(self.cells, Mapping):
            raise InputError(f"item {self.item!r}: give an id, a mixture as {{id: weight}}, cells as {{column: value}}")


def with_items(fitted: Searcher, mixtures: Mixtures) -> Searcher:
    """The searcher with items N, N + 1, .. after its N known ones, replacing earlier new ones.

    Trees put them on empty leaves, a blend passes them to its parts; for all others a new item's score is the mixture
    of known scores. No large array is copied, and the given searcher stays valid. Without new items it is the fitted
    searcher. Errors: `InputError` on a mixture of unknown items, or more than a tree has room for.
    """
    if isinstance(fitted, Blend):
        parts = [replace(part, searcher=with_items(part.searcher, mixtures)) for part in fitted.parts]
        fallback = None if fitted.fallback is None else with_items(fitted.fallback, mixtures)
        return replace(fitted, parts=parts, fallback=fallback)
    fitted = fitted_of(fitted)
    if len(mixtures) == 0:
        return fitted
    return ExtendedTree(fitted, mixtures) if isinstance(fitted, TreeSearcher) else Extended(fitted, mixtures)


def mixtures_of(searcher: Searcher) -> Mixtures | None:
    """The mixtures of its new items, None without any."""
    if isinstance(searcher, Blend):
        return mixtures_of(searcher.first)
    return searcher.mixtures if isinstance(searcher, ExtendedTree | Extended) else None


def fitted_of(searcher: Searcher) -> Searcher:
    """The fitted searcher without new items; a blend itself, as its parts have them."""
    return searcher.fitted if isinstance(searcher, ExtendedTree | Extended) else searcher


def num_known(searcher: Searcher) -> int:
    """N, the number of fitted items."""
    mixtures = mixtures_of(searcher)
    return searcher.num_items - (0 if mixtures is None else len(mixtures))


def have_places(searcher: Searcher, items: IndexArray) -> BoolArray:
    """bool[M], whether each is known or a mixture of known ones; the score of any other measures nothing."""
    mixtures, new = mixtures_of(searcher), items - num_known(searcher)
    if mixtures is None:
        return new < 0
    return (new < 0) | (mixtures.lists.lengths[np.maximum(new, 0)] > 0)
