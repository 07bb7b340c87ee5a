"""Building the index over trained vectors, within the time left, and the blend that answers with it.

Shape legend: N items, D width, Q queries.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks
from beamwood.data.split import Split
from beamwood.fitting.options import check_part
from beamwood.fitting.vectors.index_settings import IndexChoiceSettings
from beamwood.retrieval.index import INDEXES, Index, IndexInputs, check_installed, settings_of
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.steps import step
from beamwood.training.budget import Budget
from beamwood.types import Query, Searcher

__all__ = ["IndexBuilder", "blend_with_seen", "training_queries"]

# The most queries that an index learns from, and the most of each user, at random points of the history.
_MOST, _POINTS = 20_000, 8
# The share of the time left that training an index may take; the items on which building another is timed.
_SHARE, _TIMED = 0.2, 2000
_ROWS = 1024


class IndexBuilder:
    """Builds the index of the settings, or another `index`, over the vectors of a searcher."""

    def __init__(
        self, split: Split, choice: IndexChoiceSettings, *, index: type[Index] | None = None, seed: int = 0
    ) -> None:
        check_part("index", index, isinstance(index, type), "a class of Index; the setting index.kind takes a name")
        self.index = index or INDEXES[choice.kind]
        check_installed(self.index)
        self.split, self.seed, self.settings = split, seed, settings_of(self.index, dict(choice))

    def build(self, searcher: VectorSearcher, budget: Budget | None = None) -> VectorSearcher:
        """The searcher with its index; an index that trains stops within the budget."""
        limited = budget is not None and budget.limited
        seconds = max(budget.left, 0.0) if budget is not None and limited else None
        queries = partial(training_queries, searcher, self.split, self.seed)
        with step("building the index"):
            return searcher.indexed(self.index, self.settings, IndexInputs(self.seed, queries, seconds))

    def estimate(self, searcher: VectorSearcher, budget: Budget) -> float:
        """The seconds to reserve for `build`; see `timed_validation.Later`."""
        if not budget.limited:
            return 0.0
        if self.index.trains:
            return _SHARE * max(budget.left, 0.0)
        some, began = searcher.vectors[:_TIMED], budget.clock()
        self.index(some, self.settings)
        return (budget.clock() - began) * max(1.0, len(searcher.vectors) / len(some))


def training_queries(searcher: VectorSearcher, split: Split, seed: int) -> NDArray[np.float32]:
    """float32[Q, D], the vectors of at most 20,000 queries: histories of training users up to random points."""
    histories, rng = split.train.histories, np.random.default_rng(seed)
    users = np.flatnonzero(histories.lengths > 0)
    points = 1 if searcher.needs.users else int(np.clip(_MOST // max(1, len(users)), 1, _POINTS))
    users = np.repeat(users, points)
    if len(users) > _MOST:
        users = np.sort(rng.choice(users, _MOST, replace=False))
    starts = histories.indptr[users]
    stops = starts + rng.integers(1, histories.lengths[users] + 1)
    query = Query(users.astype(np.int64), histories.slices(starts, stops))
    parts = [searcher.encode(query.take(rows)) for rows in blocks(len(query), _ROWS)]
    return np.concatenate([np.empty((0, searcher.vectors.shape[1]), np.float32), *parts])


def blend_with_seen(searcher: Searcher, seen_weight: float, split: Split) -> Blend:
    """A blend of the searcher with a weight for seen items, and popular items for an empty history, which has no
    vector.

    Popularity is that of the whole log, whose histories the retriever stores; no query of a split has an empty history.
    """
    if searcher.needs.users_alone:
        return Blend([Part(searcher)], seen_weight=seen_weight)
    counts = np.bincount(split.dataset.histories.items, minlength=searcher.num_items)
    return Blend([Part(searcher, gate="history")], seen_weight=seen_weight, fallback=PopularitySearcher(counts))
