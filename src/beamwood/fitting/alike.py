"""Whether a fitted model recommends nearly the same to everyone.

Shape legend: Q queries, k results.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from beamwood.data.queries import Queries
from beamwood.types import Searcher, SearchOptions

__all__ = ["alike_in_words"]

# Validation users, and the fewest pairs of them that say something.
_USERS, _FEWEST = 100, 20
# The length of a list, a smaller share of few items, and the shared part from which lists count as the same.
_LENGTH, _SHARE, _ALIKE = 10, 0.2, 0.9


def alike_in_words(searcher: Searcher, queries: Queries, num_items: int, *, seed: int) -> str | None:
    """A warning where the lists of validation users are nearly the same; None where they differ, or users are few."""
    k = min(_LENGTH, int(_SHARE * num_items))
    asked = queries.take(np.flatnonzero(queries.histories.lengths > 0)).sample(_USERS, seed=seed)
    if k == 0 or len(asked) <= _FEWEST:
        return None
    hits = searcher.search(asked.query(searcher.needs), k, SearchOptions(excluded=asked.seen))
    lists = [set(row[row >= 0].tolist()) for row in hits.items]
    shares = list(_shared(lists, [set(row.tolist()) for row in asked.seen]))
    if len(shares) < _FEWEST or np.mean(shares) < _ALIKE:
        return None
    return (
        f"nearly all users get the same items: two lists of validation users share {np.mean(shares):.0%}, so this "
        "model is hardly personal; compare it with popularity and cooccurrence, and fit it on more events or for longer"
    )


def _shared(lists: list[set[int]], seen: list[set[int]]) -> Iterator[float]:
    """The shared part of two lists, of users who have seen different items, among the items that neither has seen."""
    for (one, of_one), (two, of_two) in pairwise(zip(lists, seen, strict=True)):
        left, right = one - of_two, two - of_one
        if of_one != of_two and left and right:
            yield len(left & right) / min(len(left), len(right))
