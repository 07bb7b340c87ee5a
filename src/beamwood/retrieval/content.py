"""New items placed by their content: as mixtures of the known items with the most similar vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.retrieval.item_columns import ItemColumns
from beamwood.retrieval.new_items import NewItem
from beamwood.retrieval.vector_column import VectorColumn
from beamwood.types import BoolArray

__all__ = ["NEAREST", "placed_by_content", "similar_content"]

NEAREST = 10
"""The number of known items in a mixture by content."""


def similar_content(
    columns: ItemColumns, cells: Mapping[str, Any], alive: BoolArray | None = None
) -> dict[int, float] | None:
    """The known items most similar to an item with these cells, by index with their cosines; None without a vector.

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
    new: Sequence[NewItem], columns: ItemColumns | None, items: Vocabulary, alive: BoolArray | None
) -> list[NewItem]:
    """The new items, those without a mixture but with a vector with the mixture of `similar_content`."""

    def placed(item: NewItem) -> NewItem:
        found = None if item.mixture or columns is None else similar_content(columns, item.cells, alive)
        if not found:
            return item
        ids = items.decode(np.fromiter(found, np.int64, len(found)))
        return replace(item, mixture=dict(zip(ids, found.values(), strict=True)))

    return [placed(item) for item in new]
