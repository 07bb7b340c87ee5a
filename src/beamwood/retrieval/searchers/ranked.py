"""Search by a ranker over the whole catalogue; in a blend it orders another part's candidates.

Shape legend: B rows, M items a row, N items, k results.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks, slices
from beamwood.models.scorer import PairScore
from beamwood.models.scorers import SCORERS
from beamwood.retrieval.load import check_names
from beamwood.retrieval.search_checks import check_histories, check_items, check_search, check_users
from beamwood.retrieval.searchers.scorers import PlainScorer, context_encoder, restore_scorer
from beamwood.retrieval.top_k import join_hits, top_k
from beamwood.types import Hits, IndexArray, Query, QueryNeeds, SearchOptions

__all__ = ["RankingSearcher", "searcher_with"]

# Numbers held at a time for the whole catalogue (16 MiB).
_BLOCK_CELLS = 2**22


class RankingSearcher:
    """The k items that a ranker scores highest; every allowed item is scored, so it is exact and expensive."""

    kind: ClassVar[str] = "ranking"
    own_scores: ClassVar[Mapping[str, PairScore]] = MappingProxyType({})

    def __init__(self, scorer: PlainScorer) -> None:
        self.scorer = scorer
        self._context = context_encoder(scorer)

    @property
    def num_items(self) -> int:
        return self.scorer.num_items

    @property
    def needs(self) -> QueryNeeds:
        """Users where the ranker knows them, and its context columns."""
        columns = () if self._context is None else self._context.columns
        return QueryNeeds(self.scorer.needs_users, self.scorer.num_users, columns)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        self._check(query)
        items_N = np.arange(self.num_items) if options.allowed is None else np.flatnonzero(options.allowed)
        parts = []
        for rows in blocks(len(query), self._rows_at_a_time(self.num_items)):
            scores = np.full((len(rows), self.num_items), -np.inf, np.float32)
            scores[:, items_N] = self._scores(query.take(rows), np.broadcast_to(items_N, (len(rows), len(items_N))))
            parts.append(top_k(scores, k, excluded=options.take(rows).excluded))
        return join_hits(parts, k)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        self._check(query)
        pairs = np.asarray(items_BM, np.int64)
        check_items(pairs, len(query), self.num_items)
        size = self._rows_at_a_time(pairs.shape[1])
        if len(query) <= size:
            return self._scores(query, pairs)
        # Slices keep a broadcast row of items a view.
        parts = [(query.take(np.arange(rows.start, rows.stop)), pairs[rows]) for rows in slices(len(query), size)]
        return np.concatenate([self._scores(part, items) for part, items in parts])

    def _check(self, query: Query) -> None:
        check_histories(query.histories, self.num_items)
        if self.scorer.needs_users:
            check_users(query.users, self.scorer.num_users)

    def _scores(self, query: Query, items_BM: NDArray[np.int64]) -> NDArray[np.float32]:
        """float32[B, M], the scores of one block; -inf where the item index is -1."""
        encoder = self._context
        context_BD = None if encoder is None else query.once(encoder, lambda: encoder.encode(query.context, len(query)))
        missing = items_BM < 0
        # Without missing items the array is passed unchanged: a broadcast row stays a view.
        known = np.where(missing, 0, items_BM) if missing.any() else items_BM
        scores = self.scorer.score(query.users, query.histories, known, context_BD)
        return np.where(missing, np.float32(-np.inf), scores)

    def _rows_at_a_time(self, num_items: int) -> int:
        """Rows in a block, as a ranker may hold a vector for each pair."""
        return max(1, _BLOCK_CELLS // max(1, num_items * self.scorer.width))

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return self.scorer.export()

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> RankingSearcher:  # noqa: ARG003
        # Not of `cls`, which no other process would find where it is sent.
        return RankingSearcher(restore_scorer(config, arrays, cls.own_scores))


def searcher_with(*scores: PairScore) -> type[RankingSearcher]:
    """A subclass of `RankingSearcher` whose folders may have these further scores, for `Method.searchers`.

    Errors: `InputError` on a name of the package, or a repeated name.
    """
    check_names("scores", [score.kind for score in scores], SCORERS)
    return type("RankingSearcher", (RankingSearcher,), {"own_scores": {score.kind: score for score in scores}})
