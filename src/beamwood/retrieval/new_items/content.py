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
    columns: ItemColumns, cells: Mapping[str, Any], alive: BoolArray | None = None
) -> NDArray[np.int32] | None:
    """The indices of the known items most similar to an item with these cells, best first; None without a vector.

    `alive` bool[at least N]: only these. Errors: vectors of two columns; see `VectorColumn.similar`.
    """
    given = [name for name, value in cells.items() if value is not None and isinstance(columns.get(name), VectorColumn)]
    if not given:
        return None
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)} are vectors; give one of them")
    (name,) = given
    column = columns[name]
    assert isinstance(column, VectorColumn)
    return column.similar(name, cells[name], NEAREST, alive)


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
    found = [None if item.mixture or columns is None else similar_content(columns, item.cells, alive) for item in new]
    if all(near is None for near in found):
        return list(new)
    taken = np.empty(0, np.int32) if histories is None else histories.items
    sources = Sources(np.bincount(taken, minlength=len(items)))

    def placed(item: NewItem, near: NDArray[np.int32]) -> NewItem:
        mixture = sources.vector(near)
        ids = items.decode(np.fromiter(mixture, np.int64, len(mixture)))
        return replace(item, mixture=dict(zip(ids, mixture.values(), strict=True)))

    return [item if near is None else placed(item, near) for item, near in zip(new, found, strict=True)]
