"""New items placed by their content: as mixtures of popular known items with similar vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.retrieval.new_items.added import NewItem
from beamwood.retrieval.new_items.sources import Sources
from beamwood.types import BoolArray, ItemLists

__all__ = ["NEAREST", "placed_by_content", "similar_content"]

NEAREST = 30
"""The number of known items with similar vectors, the most popular of which are mixed."""


def similar_content(
    columns: ItemColumns, items: Sequence[Mapping[str, Any]], alive: BoolArray | None = None
) -> list[NDArray[np.int32] | None]:
    """For the cells of each item the indices of the known items most similar to it, best first; None without a vector.

    `alive` bool[at least N]: only these. Errors: vectors of two columns in one item; see `VectorColumn.similar`.
    """
    named = [_vector_named(columns, cells) for cells in items]
    found: list[NDArray[np.int32] | None] = [None] * len(items)
    for name in sorted({name for name in named if name is not None}):
        column, own = columns[name], [number for number, each in enumerate(named) if each == name]
        assert isinstance(column, VectorColumn)
        near = column.similar(name, [items[number][name] for number in own], NEAREST, alive)
        for number, each in zip(own, near, strict=True):
            found[number] = each
    return found


def _vector_named(columns: ItemColumns, cells: Mapping[str, Any]) -> str | None:
    """The vector column that has a value in these cells."""
    given = [name for name, value in cells.items() if value is not None and isinstance(columns.get(name), VectorColumn)]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are vectors; give one of them")
    return given[0] if given else None


def placed_by_content(
    new: Sequence[NewItem],
    columns: ItemColumns | None,
    items: Vocabulary,
    histories: ItemLists | None,
    alive: BoolArray | None,
) -> list[NewItem]:
    """The new items, those without a mixture but with a vector with the mixture of `Sources.vector`.

    `histories`: those of known users, None where none are stored; they say how popular an item is.
    """
    cells = [{} if item.mixture else item.cells for item in new]
    found = [None] * len(new) if columns is None else similar_content(columns, cells, alive)
    if all(near is None for near in found):
        return list(new)
    taken = np.empty(0, np.int32) if histories is None else histories.items
    sources = Sources(np.bincount(taken, minlength=len(items)))

    def placed(item: NewItem, near: NDArray[np.int32]) -> NewItem:
        mixture = sources.vector(near)
        ids = items.decode(np.fromiter(mixture, np.int64, len(mixture)))
        return replace(item, mixture=dict(zip(ids, mixture.values(), strict=True)))

    return [item if near is None else placed(item, near) for item, near in zip(new, found, strict=True)]
