"""The exact k best of dense scores, with a defined order of ties.

Shape legend: B rows of a batch, N items, M candidates a row, k results.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.errors import InputError
from beamwood.ragged import places_in_rows
from beamwood.retrieval.search_checks import check_search
from beamwood.types import BoolArray, FloatArray, Hits, IndexArray, ItemLists

__all__ = [
    "descending",
    "in_order",
    "join_hits",
    "no_hits",
    "of_columns",
    "sort_candidates",
    "top_k",
]

# Cells copied at a time (1 MiB), so that they stay in the cache of a core.
_BLOCK_CELLS = 2**18
# Groups of columns at least, and columns of a group at least: of fewer a partition is as fast.
_GROUPS, _GROUP_COLUMNS = 256, 4
# The highest score of an item that is not allowed, and of one that is.
_HIGHEST = np.array([-np.inf, np.inf], np.float32)
# The lowest score of a candidate.
_LEAST = np.finfo(np.float32).min
# A filter of fewer items than all over this is sorted.
_SPARSE = 16
_NOT_A_NUMBER = "a score is NaN; items can only be ordered by numbers"


def top_k(
    scores_BN: FloatArray,
    k: int,
    *,
    excluded: ItemLists | None = None,
    allowed: BoolArray | None = None,
) -> Hits:
    """The k best items of each row: score descending, then item index ascending.

    `scores_BN` float[B, N]; scores are compared as float32, and -inf marks an item that is not a candidate, exactly
    like an item of the row's `excluded` list or one without `allowed[item]` (bool[N]). Rows with fewer than k
    candidates (k may pass N) are filled with item -1 and score -inf. `Hits.scored` counts the candidates.
    Errors: k below 1, an `excluded` or `allowed` of the wrong shape, a score that is NaN.
    """
    num_rows, num_items = scores_BN.shape
    check_search(num_rows, num_items, k, excluded=excluded, allowed=allowed)
    highest = None if allowed is None else _HIGHEST[allowed.view(np.int8)]
    parts = []
    for part in slices(num_rows, _BLOCK_CELLS // max(1, num_items)):
        # + 0.0 turns -0.0 into 0.0, so that both compare equal and ties go by index.
        block_BN = np.add(scores_BN[part], np.float32(0.0), dtype=np.float32)
        if highest is not None:
            np.minimum(block_BN, highest, out=block_BN)
        if excluded is not None:
            own = excluded.take(np.arange(part.start, part.stop))
            block_BN[own.rows, own.items] = -np.inf
        parts.append(_best_of(block_BN, k))
    return join_hits(parts, k)


def sort_candidates(items_BM: IndexArray, scores_BM: FloatArray, k: int) -> Hits:
    """The k best of M given candidates a row, in the order of `top_k`.

    `items_BM` int[B, M], -1 for no candidate, no item twice in a row; `scores_BM` float[B, M], -inf likewise.
    """
    check_search(len(items_BM), 0, k)
    if len(items_BM) == 1:
        return _sorted_row(np.asarray(items_BM[0], np.int32), np.asarray(scores_BM[0], np.float32), k)
    # With the candidates in ascending order, the first of equal columns is the lowest item.
    order = np.argsort(items_BM, axis=1, kind="stable")
    items = np.take_along_axis(np.asarray(items_BM), order, axis=1).astype(np.int32)
    scores = np.take_along_axis(np.asarray(scores_BM, np.float32), order, axis=1) + np.float32(0.0)
    scores[items < 0] = -np.inf
    hits = _best_of(scores, k)
    found = hits.items >= 0
    chosen = np.take_along_axis(items, np.where(found, hits.items, 0), axis=1) if items.shape[1] else hits.items
    return Hits(np.where(found, chosen, np.int32(-1)), hits.scores, hits.scored)


def _sorted_row(items_M: NDArray[np.int32], scores_M: NDArray[np.float32], k: int) -> Hits:
    """`sort_candidates` for a single row, as in most requests."""
    # + 0.0 turns -0.0 into 0.0, as in `top_k`.
    scores_M = scores_M + np.float32(0.0)
    present = (items_M >= 0) & (scores_M != -np.inf)
    if not present.all():
        items_M, scores_M = items_M[present], scores_M[present]
    if np.isnan(scores_M).any():
        raise InputError(_NOT_A_NUMBER)
    order = np.lexsort((items_M, -scores_M))[:k]
    hits = no_hits(1, k)
    hits.scored[0] = len(items_M)
    hits.items[0, : len(order)], hits.scores[0, : len(order)] = items_M[order], scores_M[order]
    return hits


def _best_of(scores_BM: NDArray[np.float32], k: int) -> Hits:
    """The k best columns of each row, ties by column."""
    num_rows, width = scores_BM.shape
    hits = no_hits(num_rows, k)
    lowest = scores_BM.min(initial=np.inf)
    if np.isnan(lowest):
        raise InputError(_NOT_A_NUMBER)
    hits.scored[:] = width if lowest > -np.inf else np.count_nonzero(scores_BM > -np.inf, axis=1)
    cells = _contenders(scores_BM, k)
    rows, columns = np.divmod(cells, max(1, width))
    scores = scores_BM.reshape(-1)[cells]
    # Stable: equal scores stay in the order of columns.
    order = np.lexsort((-scores, rows))
    rows, columns, scores = rows[order], columns[order], scores[order]
    place = _place_in_row(rows, num_rows)
    best = place < k
    hits.items[rows[best], place[best]] = columns[best]
    hits.scores[rows[best], place[best]] = scores[best]
    return hits


def _contenders(scores_BM: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The flat indices of candidates, ascending, among which are the k best of each row.

    Each row's columns form groups. The k best maxima of groups are k scores, so none below them is among the k best.
    """
    num_rows, width = scores_BM.shape
    num_groups = max(_GROUPS, 4 * k)
    size = width // num_groups
    if size < _GROUP_COLUMNS:
        return _k_of_each(scores_BM, k) if k < width else _cells_from(scores_BM, np.full(num_rows, -np.inf, np.float32))
    groups = scores_BM[:, : size * num_groups].reshape(num_rows, size, num_groups)
    best = np.partition(groups.max(axis=1), num_groups - k, axis=1)
    cells = _cells_from(scores_BM, best[:, num_groups - k])
    return cells if len(cells) <= 2 * k * num_rows else _k_of_each(scores_BM, k)


def _k_of_each(scores_BM: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The flat indices of the k best of each row, of equal scores the first; for many ties, or few columns."""
    num_rows, width = scores_BM.shape
    threshold_B = np.partition(scores_BM, width - k, axis=1)[:, width - k]
    cells = _cells_from(scores_BM, threshold_B)
    rows = cells // width
    tied = scores_BM.reshape(-1)[cells] == threshold_B[rows]
    room_B = k - np.bincount(rows[~tied], minlength=num_rows)
    kept = ~tied
    kept[tied] = _place_in_row(rows[tied], num_rows) < room_B[rows[tied]]
    best: NDArray[np.int64] = cells[kept]
    return best


def _cells_from(scores_BM: NDArray[np.float32], lowest_B: FloatArray) -> NDArray[np.int64]:
    """The flat indices, ascending, of the candidates whose scores are at least that of their row."""
    return np.flatnonzero(scores_BM >= np.maximum(lowest_B, _LEAST)[:, None])


def _place_in_row(rows: NDArray[np.int64], num_rows: int) -> NDArray[np.int64]:
    """How many earlier entries have the same row, for ascending `rows`."""
    return places_in_rows(np.bincount(rows, minlength=num_rows))


def no_hits(num_rows: int, k: int) -> Hits:
    """Hits of k empty places a row, to be filled; nothing was scored."""
    items, scores = np.full((num_rows, k), -1, np.int32), np.full((num_rows, k), -np.inf, np.float32)
    return Hits(items, scores, np.zeros(num_rows, np.int64))


def of_columns(hits: Hits, items_M: NDArray[np.int32]) -> Hits:
    """The hits of a search over M columns as hits of the columns' items."""
    # An empty place, -1, is the last element.
    return Hits(np.append(items_M, np.int32(-1))[hits.items], hits.scores, hits.scored)


def descending(values_N: FloatArray) -> NDArray[np.int32]:
    """int32[N], the items by descending values, ties by the lower index; small whole numbers are sorted by digits."""
    most = values_N.max(initial=0)
    if values_N.min(initial=0) >= 0 and most < 2**16:
        whole = values_N.astype(np.uint16)
        if (whole == values_N).all():
            return np.argsort(np.uint16(most) - whole, kind="stable").astype(np.int32)
    return np.argsort(-values_N, kind="stable").astype(np.int32)


def in_order(order: NDArray[np.int32], values: FloatArray, allowed: BoolArray) -> NDArray[np.int32]:
    """int32[M], the allowed items in an order of all N: by descending `values` [N], ties by the lower index.

    Few are sorted; of many the order is read, out of the sequence of memory.
    """
    items = np.flatnonzero(allowed)
    if len(items) * _SPARSE > len(order):
        return order[allowed[order]]
    return items[np.argsort(-values[items], kind="stable")].astype(np.int32)


def join_hits(parts: Sequence[Hits], k: int) -> Hits:
    """The rows of several `Hits` of k places, concatenated."""
    if not parts:
        return no_hits(0, k)
    return Hits(
        np.concatenate([part.items for part in parts]),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.scored for part in parts]),
    )
