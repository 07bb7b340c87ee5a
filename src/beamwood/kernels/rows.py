"""Maps from ids to items, to leaves, to neighbours, and from found leaves to items: native where built, else numpy.

Shape legend: B rows, L history length, K results, N items, C leaves, A requested items, M items with a sum. `module` is
`native()`, None for numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from beamwood.types import BoolArray, FloatArray, IndexArray, ItemLists

__all__ = ["banned_of", "items_of_leaves", "leaves_of", "places_of", "sum_of_rows"]


def leaves_of(module: Any, leaf_of_item: IndexArray, lists: ItemLists, length: int) -> NDArray[np.int32]:
    """int32[B, L], the leaves of the last L items of each list, -1 before them. Errors: `IndexError`."""
    if module is not None:
        leaves: NDArray[np.int32] = module.leaves_of(leaf_of_item, lists.indptr, lists.items, length)
        return leaves
    items_BL = lists.padded(length)
    leaves_BL = np.asarray(leaf_of_item[items_BL], np.int32)
    leaves_BL[items_BL < 0] = -1
    return leaves_BL


def banned_of(
    module: Any, leaf_of_item: IndexArray, lists: ItemLists, allowed: BoolArray | None
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The leaves of each list, ascending and distinct, as compressed rows; only of items that are `allowed` bool[N].

    Errors: `IndexError`.
    """
    if module is not None:
        mask = None if allowed is None else np.ascontiguousarray(allowed)
        indptr, leaves = module.banned_of(leaf_of_item, lists.indptr, lists.items, mask)
        return indptr, leaves
    kept = lists if allowed is None else lists.keeping(allowed[lists.items])
    distinct = ItemLists.unchecked(kept.indptr, np.asarray(leaf_of_item[kept.items], np.int32)).distinct()
    return distinct.indptr, distinct.items


def items_of_leaves(
    module: Any, item_of_leaf: IndexArray, leaves_BK: NDArray[np.int32], scores_BK: FloatArray
) -> NDArray[np.int32]:
    """int32[B, K], the items of found leaves, best first, -1 for empty places; ties by the lower item."""
    if module is not None:
        found: NDArray[np.int32] = module.items_of(item_of_leaf, leaves_BK, scores_BK)
        return found
    items_BK = np.asarray(item_of_leaf[leaves_BK], np.int32)
    items_BK[leaves_BK < 0] = -1
    order = np.lexsort((items_BK, -scores_BK), axis=-1)
    return np.take_along_axis(items_BK, order, axis=-1)


def places_of(module: Any, near: NDArray[np.int32], lowest: int, ids: list[Any]) -> NDArray[np.int32] | None:
    """int32, `near[id - lowest]` of each integer, -1 where there is none; None where one is not an `int` of 64 bits.

    `near` int32[S] holds an item, or -1, for each integer from the lowest on.
    """
    if module is not None:
        found: NDArray[np.int32] | None = module.places_of(near, lowest, ids)
        return found
    if any(type(each) is not int for each in ids):
        return None
    try:
        asked = np.array(ids, np.int64)
    except OverflowError:
        return None
    # Values below the lowest wrap around to large numbers.
    places = (asked - np.int64(lowest)).view(np.uint64)
    inside = (asked >= lowest) & (places < len(near))
    return np.where(inside, near[np.where(inside, places, 0)], np.int32(-1))


def sum_of_rows(
    module: Any,
    matrix: sparse.csr_matrix,
    rows: NDArray[np.int32],
    weights: NDArray[np.float32],
    asked: NDArray[np.int32],
) -> tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.integer[Any]]]:
    """The weighted sum of rows [L] of a matrix float32[N, N]: columns int32[M], in any order, their sums float32[M],
    and the position of each requested column [A]; absent columns have no sum.

    Added in the order of the rows, in float32, so that both forms agree to the bit. Errors: `IndexError`.
    """
    indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
    if module is not None and indptr.dtype == indices.dtype == np.int32:
        found: tuple[NDArray[np.int32], NDArray[np.float32], NDArray[np.int32]] = module.sum_of_rows(
            indptr, indices, data, rows, weights, asked
        )
        return found
    own = [slice(indptr[row], indptr[row + 1]) for row in rows]
    columns, places = np.unique(np.concatenate([asked, *(indices[each] for each in own)]), return_inverse=True)
    sums, start = np.zeros(len(columns), np.float32), len(asked)
    for each, weight in zip(own, weights, strict=True):
        stop = start + each.stop - each.start
        np.add.at(sums, places[start:stop], weight * data[each])
        start = stop
    return columns.astype(np.int32), sums, places[: len(asked)]
