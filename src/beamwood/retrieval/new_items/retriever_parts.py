"""The parts of a retriever with new items added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.vocabularies.open_vocabulary import OpenVocabulary, fitted_ids
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.kernels.mixtures import Mixtures
from beamwood.ragged import indptr_of
from beamwood.retrieval.columns.filters import mask_of
from beamwood.retrieval.columns.item_columns import ItemColumns
from beamwood.retrieval.columns.more_columns import cells_of, with_cells
from beamwood.retrieval.new_items.added import NewItem, mixtures_of, num_known, with_items
from beamwood.types import BoolArray, ItemLists, Searcher

__all__ = ["with_mixtures", "with_new_items"]


def with_new_items(
    searcher: Searcher,
    items: Vocabulary,
    columns: ItemColumns | None,
    new: Sequence[NewItem],
    erased: NDArray[np.int32] | None,
) -> dict[str, Any]:
    """`searcher`, `items`, `columns` and `erased` with new items, replacing earlier ones."""
    known = num_known(searcher)
    there = OpenVocabulary(
        fitted_ids(items), known, [], None if erased is None else mask_of(erased[erased < known], known)
    )
    gone = np.array([each.gone for each in new], bool)
    ids, mixtures = [each.item for each in new], _mixtures(there, new)
    opened = with_mixtures(searcher, items, ids, gone, mixtures, erased)
    cells = [each.cells for each in new]
    kept = (columns or ItemColumns(known)).first(known)
    filtered = with_cells(kept, [cells_of(kept, cells)], len(new)) if new else kept
    return opened | {"columns": None if columns is None and not any(cells) else filtered}


def with_mixtures(
    searcher: Searcher,
    items: Vocabulary,
    new: Sequence[Any],
    gone: BoolArray,
    mixtures: Mixtures,
    erased: NDArray[np.int32] | None,
    *,
    keep: bool = False,
) -> dict[str, Any]:
    """`searcher`, `items` and `erased` with M new ids, instead of earlier ones or (`keep`) after them.

    Those `gone` bool[M] are erased. With `keep`, the caller has looked up all ids, and none is fitted. Errors: as
    `OpenVocabulary`.
    """
    known, own = num_known(searcher), mixtures_of(searcher)
    earlier = items.decode(np.arange(known, len(items))) if keep else []
    first = known + len(earlier)
    mask = mask_of(np.empty(0, np.int32) if erased is None else erased[erased < first], first + len(new))
    mask[first:] = gone
    vocabulary = OpenVocabulary(fitted_ids(items), known, [*earlier, *new], mask if mask.any() else None, unknown=keep)
    return {
        "searcher": with_items(searcher, mixtures if own is None or not keep else own.followed_by(mixtures)),
        "items": vocabulary,
        "erased": np.flatnonzero(mask).astype(np.int32) if mask.any() else None,
    }


def _mixtures(known: Vocabulary, new: Sequence[NewItem]) -> Mixtures:
    """The mixtures by index. Errors: one of an unknown item or with a wrong weight, naming the new item."""
    lengths = [len(each.mixture) for each in new]
    ids = [item for each in new for item in each.mixture]
    indices = known.encode(ids, on_unknown="ignore")
    if len(indices) and indices.min() < 0:
        first = int(np.flatnonzero(indices < 0)[0])
        owner = new[int(np.searchsorted(np.cumsum(lengths), first, side="right"))]
        raise InputError(f"item {owner.item!r} is a mixture of {ids[first]!r}, which is unknown; name known items")
    weights = np.concatenate([np.empty(0, np.float32), *map(_weights, new)])
    indptr = indptr_of(lengths)
    return Mixtures(ItemLists(indptr, indices.astype(np.int32)), weights)


def _weights(new: NewItem) -> NDArray[np.float32]:
    """The weights of its mixture. Errors: one that is no positive number."""
    try:
        weights = np.array(list(new.mixture.values()), np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"item {new.item!r}: a weight of its mixture is no number ({error}); give positive numbers"
        ) from error
    if weights.ndim != 1 or not np.isfinite(weights).all() or (weights <= 0).any():
        raise InputError(f"item {new.item!r}: a weight of its mixture is no positive number; give positive numbers")
    return weights
