"""What a history holds, found apart from all else, so that one number may be added to its scores; without torch.

Shape legend: B rows, N items, D width, H items that a history holds at most, k results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.retrieval.products import products
from beamwood.retrieval.stored import MOST
from beamwood.retrieval.top_k import check_search, sort_candidates
from beamwood.types import FloatArray, Hits, IndexArray, ItemLists, SearchOptions, among

__all__ = ["Apart", "candidates", "check_repeat_weight", "find_apart", "scores_with_repeats", "search_with_repeats"]


@dataclass(frozen=True, slots=True)
class Apart:
    """What a search found of what a history does not hold (`others`), and all that it does: `had_BH` int32, -1 for no
    candidate, with `scores_BH` float32, and how often a weight counts for each, `times_BH` (None: once)."""

    others: Hits
    had_BH: NDArray[np.int32]
    scores_BH: NDArray[np.float32]
    times_BH: NDArray[np.float32] | None = None

    def joined(self, repeat_weight: float, k: int) -> Hits:
        """The k best of both, `repeat_weight` added to the scores of what was had."""
        added = np.float32(repeat_weight) if self.times_BH is None else np.float32(repeat_weight) * self.times_BH
        merged = sort_candidates(
            np.concatenate([self.others.items, self.had_BH], axis=1),
            np.concatenate([self.others.scores, self.scores_BH + added], axis=1),
            k,
        )
        return Hits(merged.items, merged.scores, self.others.scored + (self.had_BH >= 0).sum(axis=1))


class _Best(Protocol):
    def __call__(self, queries_BD: FloatArray, k: int, options: SearchOptions, /) -> Hits: ...


def find_apart(
    best: _Best,
    queries_BD: FloatArray,
    vectors_ND: FloatArray,
    histories: ItemLists,
    k: int,
    options: SearchOptions = SearchOptions(),
) -> Apart:
    """The k best of what a history does not hold, by `best`, and all that it does and that may be shown."""
    had = histories.distinct()
    others = best(
        queries_BD,
        k,
        replace(options, excluded=had if options.excluded is None else had.union(options.excluded)),
    )
    had_BH = candidates(had.padded(int(had.lengths.max(initial=0))), options)
    return Apart(others, had_BH, products(queries_BD, vectors_ND, had_BH))


def search_with_repeats(
    best: _Best,
    queries_BD: FloatArray,
    vectors_ND: FloatArray,
    histories: ItemLists,
    k: int,
    options: SearchOptions,
    *,
    repeat_weight: float,
) -> Hits:
    """The k best by `best`, `repeat_weight` added to the scores of what a history holds."""
    check_search(len(histories), len(vectors_ND), k, excluded=options.excluded, allowed=options.allowed)
    if repeat_weight == 0:
        return best(queries_BD, k, options)
    parts = find_apart(best, queries_BD, vectors_ND, histories, k, options)
    return parts.joined(repeat_weight, k)


def scores_with_repeats(
    queries_BD: FloatArray, vectors_ND: FloatArray, histories: ItemLists, items_BM: IndexArray, *, repeat_weight: float
) -> NDArray[np.float32]:
    """float32[B, M], the products of the given items, `repeat_weight` added where a history holds one; -inf for -1."""
    scores = products(queries_BD, vectors_ND, items_BM)
    if repeat_weight != 0:
        scores[among(np.asarray(items_BM), histories)] += np.float32(repeat_weight)
    return scores


def check_repeat_weight(repeat_weight: float) -> float:
    """The weight as a float. Errors: `InputError` where it is no finite number."""
    if not -MOST <= repeat_weight <= MOST:
        raise InputError(f"repeat_weight={repeat_weight} must be a number; 0 leaves scores as they are")
    return float(repeat_weight)


def candidates(had_BH: NDArray[np.int32], options: SearchOptions) -> NDArray[np.int32]:
    """`had_BH` with -1 for what may not be shown; without a column where nothing may, as in answers of new items."""
    if options.excluded is not None:
        had_BH[among(had_BH, options.excluded)] = -1
    if options.allowed is not None:
        had_BH[~options.allowed[had_BH]] = -1
    return had_BH if (had_BH >= 0).any() else had_BH[:, :0]
