"""The parts of a retriever with new items added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.open_vocabulary import OpenVocabulary
from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.kernels.mixtures import Mixtures
from beamwood.ragged import indptr_of
from beamwood.retrieval.filters import mask_of
from beamwood.retrieval.item_columns import ItemColumns
from beamwood.retrieval.more_columns import with_cells
from beamwood.retrieval.new_items import NewItem, num_known, with_items
from beamwood.types import ItemLists, Searcher

__all__ = ["with_new_items"]


def with_new_items(
    searcher: Searcher,
    items: Vocabulary,
    columns: ItemColumns | None,
    new: Sequence[NewItem],
    erased: NDArray[np.int32] | None,
) -> dict[str, Any]:
    """`searcher`, `items` and `columns` with new items, replacing earlier ones."""
    known = num_known(searcher)
    fitted = items.fitted if isinstance(items, OpenVocabulary) else items
    hidden = mask_of(np.empty(0, np.int32) if erased is None else erased, known + len(new))
    hidden[known:] = [each.gone for each in new]
    vocabulary = OpenVocabulary(fitted, known, [each.item for each in new], hidden if hidden.any() else None)
    cells = [each.cells for each in new]
    kept = columns or ItemColumns(known)
    return {
        "searcher": with_items(searcher, _mixtures(OpenVocabulary(fitted, known, [], hidden[:known]), new)),
        "items": vocabulary,
        "columns": None if columns is None and not any(cells) else with_cells(kept, known, cells),
    }


def _mixtures(known: Vocabulary, new: Sequence[NewItem]) -> Mixtures:
    """The mixtures by index. Errors: one of an unknown item, naming the new item."""
    lengths = [len(each.mixture) for each in new]
    ids = [item for each in new for item in each.mixture]
    indices = known.encode(ids, on_unknown="ignore")
    if len(indices) and indices.min() < 0:
        first = int(np.flatnonzero(indices < 0)[0])
        owner = new[int(np.searchsorted(np.cumsum(lengths), first, side="right"))]
        raise InputError(f"item {owner.item!r} is a mixture of {ids[first]!r}, which is unknown; name known items")
    weights = np.array([weight for each in new for weight in each.mixture.values()], np.float32)
    indptr = indptr_of(lengths)
    return Mixtures(ItemLists(indptr, indices.astype(np.int32)), weights)
