"""The candidates of a blend: the first part's results, and seen items apart from them; without torch.

Shape legend: B rows, H most items of a history, C candidates a row, k results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from beamwood.retrieval.top_k import sort_candidates
from beamwood.types import Hits, IndexArray, Query, Searcher, SearchOptions, among

__all__ = ["Candidates", "add_seen", "allowed_seen", "find_candidates", "num_exact"]

# Rows whose histories are scored in one call.
_ROWS = 64
# The share of candidates that must be exact; a fifth is too few, three fifths lose nothing.
_EXACT_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Candidates:
    """The results of a search, `hits`, best first, and the seen items that are not among them.

    `seen_BH` int32, -1 for none, with the same searcher's `seen_scores_BH` float32; `times_BH`: a factor of the weight
    of each (None: 1).
    """

    hits: Hits
    seen_BH: NDArray[np.int32]
    seen_scores_BH: NDArray[np.float32]
    times_BH: NDArray[np.float32] | None = None

    def take(self, rows: IndexArray) -> Candidates:
        """Those of the given rows."""
        hits, times = self.hits, self.times_BH
        return Candidates(
            Hits(hits.items[rows], hits.scores[rows], hits.scored[rows]),
            self.seen_BH[rows],
            self.seen_scores_BH[rows],
            None if times is None else times[rows],
        )

    def items_BC(self, num_judged: int) -> NDArray[np.int32]:
        """int32[B, C], the first `num_judged` results, then the seen items; -1 for none."""
        return np.concatenate([self.hits.items[:, :num_judged], self.seen_BH], axis=1)

    def scores_BC(self, num_judged: int) -> NDArray[np.float32]:
        """float32[B, C], the searcher's own scores of them; -inf for none."""
        return np.concatenate([self.hits.scores[:, :num_judged], self.seen_scores_BH], axis=1)

    def by_own_scores(self) -> Hits:
        """All candidates, best first by the searcher's own scores."""
        if self.seen_BH.shape[1] == 0:
            return self.hits
        num_hits = self.hits.items.shape[1]
        items_BC = self.items_BC(num_hits)
        best = sort_candidates(items_BC, self.scores_BC(num_hits), items_BC.shape[1])
        return Hits(best.items, best.scores, self.hits.scored + (self.seen_BH >= 0).sum(axis=1))

    def scores_by(self, searcher: Searcher, query: Query, num_judged: int) -> NDArray[np.float32]:
        """float32[B, C], another searcher's scores of them; -inf for none."""
        of_hits = searcher.score(query, self.hits.items[:, :num_judged])
        if self.seen_BH.shape[1] == 0:
            return of_hits
        return np.concatenate([of_hits, _seen_scores(searcher, query, self.seen_BH)], axis=1)

    def best(self, scores_BC: NDArray[np.float32], seen_weight: float, k: int) -> Hits:
        """The k best candidates by these scores, with `seen_weight` added to those of seen items.

        Hits beyond the scored ones follow in their own order, with scores that only express that order: the lowest
        less 1, 2, 3, .. `Hits.scored` includes the seen items.
        """
        num_judged = scores_BC.shape[1] - self.seen_BH.shape[1]
        items_BC, scored = self.items_BC(num_judged), self.hits.scored + (self.seen_BH >= 0).sum(axis=1)
        if self.seen_BH.shape[1]:
            added = np.float32(seen_weight) * (np.float32(1) if self.times_BH is None else self.times_BH)
            scores_BC = np.concatenate([scores_BC[:, :num_judged], scores_BC[:, num_judged:] + added], axis=1)
        rest = self.hits.items[:, num_judged:k]
        if rest.shape[1] == 0:
            hits = sort_candidates(items_BC, scores_BC, k)
            return Hits(hits.items, hits.scores, scored)
        ordered = sort_candidates(items_BC, scores_BC, items_BC.shape[1])
        scores = np.where(ordered.items >= 0, ordered.scores, np.float32(np.inf))
        lowest = scores.min(axis=1, keepdims=True, initial=np.inf)
        below = np.where(rest >= 0, lowest - np.arange(1, rest.shape[1] + 1, dtype=np.float32), np.float32(-np.inf))
        items = np.concatenate([ordered.items, rest], axis=1)
        scores = np.concatenate([ordered.scores, below], axis=1)
        # Items first, in this order, then empty places.
        order = np.argsort(items < 0, axis=1, kind="stable")[:, :k]
        found = np.take_along_axis(items, order, axis=1), np.take_along_axis(scores, order, axis=1)
        missing = max(0, k - items.shape[1])
        return Hits(
            np.pad(found[0], ((0, 0), (0, missing)), constant_values=-1),
            np.pad(found[1].astype(np.float32), ((0, 0), (0, missing)), constant_values=-np.inf),
            scored,
        )


def num_exact(num: int, k: int) -> int:
    """How many of `num` candidates for k places have to be the exact best: those further down rarely win."""
    return max(min(k, num), int(_EXACT_SHARE * num))


def find_candidates(
    searcher: Searcher, query: Query, k: int, options: SearchOptions = SearchOptions(), *, apart: bool
) -> Candidates:
    """The k best items of a searcher; with `apart` the k best unseen items, and besides them all allowed seen items."""
    if not apart:
        none = np.empty((len(query), 0), np.int32)
        return Candidates(searcher.search(query, k, options), none, none.astype(np.float32))
    seen = query.histories.distinct()
    excluded = seen if options.excluded is None else seen.union(options.excluded)
    hits = searcher.search(query, k, replace(options, excluded=excluded, explain=False))
    return add_seen(searcher, query, hits, options)


def add_seen(searcher: Searcher, query: Query, hits: Hits, options: SearchOptions = SearchOptions()) -> Candidates:
    """The unseen results `hits` of a searcher, and besides them all allowed seen items."""
    seen = query.histories.distinct()
    seen_BH = allowed_seen(seen.padded(int(seen.lengths.max(initial=0))), options)
    scores_BH = searcher.score(query, seen_BH) if seen_BH.shape[1] else np.empty(seen_BH.shape, np.float32)
    return Candidates(hits, seen_BH, scores_BH)


def _seen_scores(searcher: Searcher, query: Query, items_BH: NDArray[np.int32]) -> NDArray[np.float32]:
    """float32[B, H], a searcher's scores; rows are grouped by length where most places would be empty."""
    counts = (items_BH >= 0).sum(axis=1)
    if 2 * counts.sum() >= items_BH.size:
        return searcher.score(query, items_BH)
    scores_BH = np.full(items_BH.shape, -np.inf, np.float32)
    for rows in np.array_split(np.argsort(counts, kind="stable"), -(-len(counts) // _ROWS)):
        items = items_BH[rows]
        places = np.argsort(items < 0, axis=1, kind="stable")[:, : counts[rows].max()]
        scores = searcher.score(query.take(rows), np.take_along_axis(items, places, axis=1))
        scores_BH[rows[:, None], places] = scores
    return scores_BH


def allowed_seen(seen_BH: NDArray[np.int32], options: SearchOptions) -> NDArray[np.int32]:
    """`seen_BH` with -1 for items that are not allowed; without columns where none is, as in answers of new items."""
    if options.excluded is not None:
        seen_BH[among(seen_BH, options.excluded)] = -1
    if options.allowed is not None:
        seen_BH[~options.allowed[seen_BH]] = -1
    return seen_BH if (seen_BH >= 0).any() else seen_BH[:, :0]
