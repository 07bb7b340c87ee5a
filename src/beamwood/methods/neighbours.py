"""What the counting methods share: who took what, and parameters chosen on validation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from scipy import sparse

from beamwood.data.split import Split
from beamwood.evaluation.protocol import evaluate_both
from beamwood.methods.validate import drawn
from beamwood.retrieval.neighbours import NeighbourSearcher
from beamwood.types import ItemLists

__all__ = ["Decay", "Power", "choose", "interactions"]

Decay = Annotated[float, Field(gt=0, le=1)]
"""The weight of a history item against that of the next newer one."""
Power = Annotated[float, Field(ge=0, le=10)]
"""The exponent of a frequency."""


def interactions(histories: ItemLists, num_items: int) -> sparse.csr_matrix:
    """Binary float64 [users, N]: who took what."""
    distinct = histories.distinct()
    ones = np.ones(len(distinct.items))
    return sparse.csr_matrix((ones, distinct.items, distinct.indptr), shape=(len(distinct), num_items))


def choose(
    split: Split,
    candidates: Iterable[Mapping[str, Any]],
    build: Callable[[Mapping[str, Any]], NeighbourSearcher],
    *,
    num_users: int,
    seed: int,
) -> tuple[NeighbourSearcher, dict[str, Any]]:
    """The searcher whose f@20 is best on validation queries, the mean of consumed items left in and taken out.

    The queries are all of them, or a draw of `num_users`.
    """
    queries = drawn(split.valid, num_users, seed=seed)
    best: tuple[float, NeighbourSearcher, dict[str, Any]] | None = None
    for candidate in candidates:
        searcher = build(candidate)
        views = evaluate_both(searcher.search, queries, ks=(min(20, searcher.num_items),))
        cut = next(iter(views.values())).ks[0]
        value = float(np.mean([view.means()[f"f@{cut}"] for view in views.values()]))
        if best is None or value > best[0]:
            best = (value, searcher, dict(candidate) | {f"valid/f@{cut}": value})
    assert best is not None, "the grid is not empty"
    return best[1], best[2]
