"""Exact search by inner product: the catalogue in blocks, whose k best are merged.

Shape legend: B rows, N items, D width, M items a row, k results.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks, slices
from beamwood.errors import InputError
from beamwood.kernels.arrays import sound
from beamwood.retrieval.search_checks import check_items, check_search
from beamwood.retrieval.top_k import join_hits, of_columns, sort_candidates, top_k
from beamwood.types import BoolArray, FloatArray, Hits, IndexArray, ItemLists

__all__ = ["best_products", "is_catalogue", "products"]

# Scores held at a time (16 MiB), whatever the number of items.
_BLOCK_ROWS, _BLOCK_ITEMS = 64, 65536
# Of a catalogue of several blocks, a filter of fewer items than all over this is scored alone.
_SPARSE = 8


def best_products(
    queries_BD: FloatArray,
    vectors_ND: FloatArray,
    k: int,
    *,
    excluded: ItemLists | None = None,
    allowed: BoolArray | None = None,
) -> Hits:
    """The k items of the largest `query . vector` for each row, in the order of `top_k`, all allowed items scored.

    Memory beyond the vectors does not depend on N. Errors: shapes that do not fit, a score that is not a number.
    """
    num_items = len(vectors_ND)
    check_search(len(queries_BD), num_items, k, excluded=excluded, allowed=allowed)
    _check_vectors(queries_BD, vectors_ND)
    few = _few(allowed) if allowed is not None and num_items > _BLOCK_ITEMS else None
    parts = []
    for rows in blocks(len(queries_BD), _BLOCK_ROWS):
        queries, banned = queries_BD[rows], None if excluded is None else excluded.take(rows)
        if few is None:
            every = slices(num_items, _BLOCK_ITEMS)
            found = [_block_hits(queries, vectors_ND, items, k, banned, allowed) for items in every]
        else:
            # One empty block where nothing is allowed.
            some = slices(max(1, len(few)), _BLOCK_ITEMS)
            found = [_hits_among(queries, vectors_ND, few[places], k, banned) for places in some]
        if len(found) == 1:
            parts.append(found[0])
            continue
        merged = sort_candidates(
            np.concatenate([hits.items for hits in found], axis=1),
            np.concatenate([hits.scores for hits in found], axis=1),
            k,
        )
        parts.append(Hits(merged.items, merged.scores, sum(hits.scored for hits in found)))  # type: ignore[arg-type]
    return join_hits(parts, k)


def _block_hits(
    queries_BD: FloatArray,
    vectors_ND: FloatArray,
    block: slice,
    k: int,
    excluded: ItemLists | None,
    allowed: BoolArray | None,
) -> Hits:
    """The k best of one block, as item indices of the whole catalogue."""
    scores = sound(queries_BD @ vectors_ND[block].T)
    if excluded is not None:
        inside = (excluded.items >= block.start) & (excluded.items < block.stop)
        scores[excluded.rows[inside], excluded.items[inside] - block.start] = -np.inf
    hits = top_k(scores, k, allowed=None if allowed is None else allowed[block])
    return Hits(np.where(hits.items < 0, hits.items, hits.items + np.int32(block.start)), hits.scores, hits.scored)


def _few(allowed: BoolArray) -> NDArray[np.int32] | None:
    """int32[M], the allowed items, ascending; None where they are many."""
    if _SPARSE * np.count_nonzero(allowed) > len(allowed):
        return None
    return np.flatnonzero(allowed).astype(np.int32)


def _hits_among(
    queries_BD: FloatArray, vectors_ND: FloatArray, items_M: NDArray[np.int32], k: int, excluded: ItemLists | None
) -> Hits:
    """The k best of the given items, which ascend."""
    scores = sound(queries_BD @ vectors_ND[items_M].T)
    if excluded is not None and len(items_M):
        places = np.minimum(np.searchsorted(items_M, excluded.items), len(items_M) - 1)
        inside = items_M[places] == excluded.items
        scores[excluded.rows[inside], places[inside]] = -np.inf
    return of_columns(top_k(scores, k), items_M)


def products(queries_BD: FloatArray, vectors_ND: FloatArray, items_BM: IndexArray) -> NDArray[np.float32]:
    """float32[B, M], `query . vector` of each given item; -inf where the item index is -1."""
    items_BM = np.asarray(items_BM)
    check_items(items_BM, len(queries_BD), len(vectors_ND))
    _check_vectors(queries_BD, vectors_ND)
    if is_catalogue(items_BM, len(vectors_ND)):
        return (queries_BD @ vectors_ND.T).astype(np.float32, copy=False)
    result = np.empty(items_BM.shape, np.float32)
    for rows in slices(len(queries_BD), _BLOCK_ROWS):
        items = np.maximum(items_BM[rows], 0)
        if 4 * items_BM.shape[1] >= len(vectors_ND):
            result[rows] = np.take_along_axis(queries_BD[rows] @ vectors_ND.T, items, axis=1)
        else:
            result[rows] = np.einsum("bd,bmd->bm", queries_BD[rows], vectors_ND[items])
    result[items_BM < 0] = -np.inf
    return result


def is_catalogue(items_BM: IndexArray, num_items: int) -> bool:
    """Whether every row asks for the items 0 .. N - 1, as a broadcast view of one row."""
    if len(items_BM) == 0 or items_BM.strides[0] != 0 or items_BM.shape[1] != num_items:
        return False
    return bool((items_BM[0] == np.arange(num_items)).all())


def _check_vectors(queries_BD: FloatArray, vectors_ND: FloatArray) -> None:
    """Raise `InputError` where the widths of queries and vectors differ."""
    if queries_BD.ndim != 2 or vectors_ND.ndim != 2 or queries_BD.shape[1] != vectors_ND.shape[1]:
        raise InputError(f"queries have shape {queries_BD.shape}, vectors {vectors_ND.shape}; widths must agree")
