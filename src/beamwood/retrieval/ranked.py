"""Search with a ranker: over the whole catalogue, or over what a retriever brings.

Shape legend: B rows, M items a row, N items, k results.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.scorers import ContextEncoder, PairScorer, check_pairs, context_of, restore_scorer
from beamwood.retrieval.searcher_scorer import SearcherScorer, StoredStage
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import check_histories, check_search, join_hits, sort_candidates, top_k
from beamwood.types import (
    BoolArray,
    Hits,
    IndexArray,
    Needs,
    PartHits,
    Query,
    Searcher,
    SearchOptions,
    among,
)

__all__ = ["RankingSearcher", "TwoStageSearcher", "interpolated", "with_repeats"]

# Numbers held at a time for the whole catalogue (16 MiB).
_BLOCK_CELLS = 2**22


class RankingSearcher:
    """The k items that a ranker scores highest, every allowed item scored: exact, and as dear as that."""

    kind: ClassVar[str] = "ranking"

    def __init__(self, scorer: PairScorer) -> None:
        self.scorer = scorer
        self._context = context_of(scorer)

    @property
    def num_items(self) -> int:
        return self.scorer.num_items

    @property
    def needs(self) -> Needs:
        """Users where the ranker knows them, and the columns of the context that it looks at."""
        return _needs(self.scorer, self._context)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        check_histories(query.histories, self.num_items)
        items_N = np.arange(self.num_items) if options.allowed is None else np.flatnonzero(options.allowed)
        parts = []
        for rows in self._blocks(len(query), self.num_items):
            scores = np.full((len(rows), self.num_items), -np.inf, np.float32)
            scores[:, items_N] = _score(
                self.scorer, self._context, query.take(rows), np.broadcast_to(items_N, (len(rows), len(items_N)))
            )
            parts.append(top_k(scores, k, excluded=options.take(rows).excluded))
        return join_hits(parts, k)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        check_histories(query.histories, self.num_items)
        pairs = np.asarray(items_BM, np.int64)
        check_pairs(self.scorer, query, pairs)
        blocks = self._blocks(len(query), pairs.shape[1])
        if len(blocks) <= 1:
            return _score(self.scorer, self._context, query, pairs)
        # Slices: a row of items for all stays one row.
        parts = [(query.take(rows), pairs[rows[0] : rows[-1] + 1]) for rows in blocks]
        return np.concatenate([_score(self.scorer, self._context, part, items) for part, items in parts])

    def _blocks(self, num_rows: int, num_items: int) -> list[NDArray[np.int64]]:
        """Rows to score at a time: a ranker may hold a vector for each pair."""
        size = max(1, _BLOCK_CELLS // max(1, num_items * self.scorer.width))
        return [np.arange(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return self.scorer.export()

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        return cls(restore_scorer(config, arrays))


class _Stored(StoredConfig):
    num_candidates: int = Field(le=MOST)
    retriever_weight: float = Field(0.0, ge=0, le=MOST)
    repeat_weight: float = Field(0.0, ge=-MOST, le=MOST)
    retriever: StoredStage
    ranker: dict[str, Any]


class TwoStageSearcher:
    """The retriever's `num_candidates` best items, ordered anew by the ranker's score.

    With a `retriever_weight` w above 0, by the ranker's score plus w times the retriever's, and plus `repeat_weight`
    where the history holds the candidate (neither is in the study).
    Exclusions and filters act in the retriever. A search for k above `num_candidates` retrieves k; the first
    `num_candidates` of them are ordered anew, whatever k is, and the others follow in the retriever's order. Their
    scores say no more than that: the lowest before them less 1, 2, 3, .. A tree asked for more than its beam widens it,
    and may bring others first. `Hits.scored` counts what both stages scored. Source: two-stage bounds, section 3.
    """

    kind: ClassVar[str] = "two-stage"

    def __init__(
        self,
        retriever: Searcher,
        scorer: PairScorer,
        *,
        num_candidates: int = 100,
        retriever_weight: float = 0.0,
        repeat_weight: float = 0.0,
    ) -> None:
        if num_candidates < 1:
            raise InputError(f"num_candidates={num_candidates} is below 1; the study retrieves 40 to 120")
        if not 0 <= retriever_weight <= MOST:
            raise InputError(f"retriever_weight={retriever_weight} must be 0 (the study's) or a positive number")
        if not -MOST <= repeat_weight <= MOST:
            raise InputError(f"repeat_weight={repeat_weight} must be a number; the study's is 0")
        if retriever.num_items != scorer.num_items:
            raise ArtefactError(
                f"the retriever has {retriever.num_items} items, the ranker {scorer.num_items}; fit both on one log"
            )
        self.retriever, self.scorer = retriever, scorer
        self.num_candidates = num_candidates
        self.retriever_weight, self.repeat_weight = float(retriever_weight), float(repeat_weight)
        self._context = context_of(scorer)

    @property
    def num_items(self) -> int:
        return self.retriever.num_items

    @property
    def ranker(self) -> RankingSearcher:
        """The second stage alone, over whatever items."""
        return RankingSearcher(self.scorer)

    @property
    def needs(self) -> Needs:
        """What either stage looks at."""
        return Needs.joined([self.retriever.needs, _needs(self.scorer, self._context)])

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        began = time.perf_counter()
        wanted = min(max(k, self.num_candidates), self.num_items)
        candidates = self.retriever.search(query, wanted, options)
        between = time.perf_counter()
        first = candidates.items[:, : self.num_candidates]
        scores = _score(self.scorer, self._context, query, first)
        ranked = scores
        if self.repeat_weight != 0:
            ranked = with_repeats(scores, among(first, query.histories), self.repeat_weight)
        hits = interpolated(candidates, ranked, self.retriever_weight, k)
        if not options.explain:
            return hits
        second = Hits(first, scores, hits.scored - candidates.scored)
        parts = (
            PartHits(self.retriever.kind, candidates, between - began),
            PartHits(self.scorer.kind, second, time.perf_counter() - between),
        )
        return replace(hits, parts=parts)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the ranker's score of each given item, retrieved or not; -inf where the index is -1."""
        check_histories(query.histories, self.num_items)
        return _score(self.scorer, self._context, query, items_BM)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Both stages' own exports, told apart by a prefix."""
        retriever, arrays = self.retriever.export()
        ranker, ranker_arrays = self.scorer.export()
        config = {
            "num_candidates": self.num_candidates,
            "retriever_weight": self.retriever_weight,
            "repeat_weight": self.repeat_weight,
            "retriever": {"kind": self.retriever.kind, "config": retriever},
            "ranker": ranker,
        }
        named = {f"retriever.{name}": array for name, array in arrays.items()}
        return config, named | {f"ranker.{name}": array for name, array in ranker_arrays.items()}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        stored = _Stored.model_validate(config)
        first = stored.retriever
        retriever = restore_searcher(first.kind, first.config, _of_stage(arrays, "retriever."))
        fitted = stored.ranker.get("kind") == SearcherScorer.kind
        scorer = (SearcherScorer.restore if fitted else restore_scorer)(stored.ranker, _of_stage(arrays, "ranker."))
        return cls(
            retriever,
            scorer,
            num_candidates=stored.num_candidates,
            retriever_weight=stored.retriever_weight,
            repeat_weight=stored.repeat_weight,
        )


def with_repeats(ranked_BK: NDArray[np.float32], had_BK: BoolArray, repeat_weight: float) -> NDArray[np.float32]:
    """float32[B, K], the ranker's scores with the weight added where the history holds the candidate; -inf stays."""
    return ranked_BK + np.float32(repeat_weight) * had_BK.astype(np.float32)


def interpolated(candidates: Hits, ranked_BK: NDArray[np.float32], retriever_weight: float, k: int) -> Hits:
    """The first K candidates by the ranker's score of each plus the weight times the retriever's, then the others.

    `ranked_BK` -inf where there is no candidate. `Hits.scored` has the K in addition.
    """
    num_ranked = ranked_BK.shape[1]
    first, others = np.split(candidates.items[:, : max(k, num_ranked)], [num_ranked], axis=1)
    if retriever_weight > 0:
        retrieved_BK = candidates.scores[:, :num_ranked]
        added: NDArray[np.float32] = np.float32(retriever_weight) * np.where(first >= 0, retrieved_BK, np.float32(0))
        ranked_BK = ranked_BK + added
    hits = sort_candidates(first, ranked_BK, k)
    stop = num_ranked + others.shape[1]
    below = hits.scores[:, num_ranked - 1 : num_ranked] - np.arange(1, others.shape[1] + 1, dtype=np.float32)
    hits.items[:, num_ranked:stop] = others
    hits.scores[:, num_ranked:stop] = np.where(others >= 0, below, np.float32(-np.inf))
    return Hits(hits.items, hits.scores, candidates.scored + (first >= 0).sum(axis=1))


def _of_stage(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _needs(scorer: PairScorer, encoder: ContextEncoder | None) -> Needs:
    return Needs(scorer.needs_users, scorer.num_users, () if encoder is None else encoder.columns)


def _score(
    scorer: PairScorer, encoder: ContextEncoder | None, query: Query, items_BM: IndexArray
) -> NDArray[np.float32]:
    items = np.asarray(items_BM, np.int64)
    check_pairs(scorer, query, items)
    context_BD = None if encoder is None else query.once(encoder, lambda: encoder.encode(query.context, len(query)))
    missing = items < 0
    # Without a missing place the items go through as they are: a row for all stays one row.
    known = np.where(missing, 0, items) if missing.any() else items
    scores = scorer.score(query.users, query.histories, known, context_BD)
    return np.where(missing, np.float32(-np.inf), scores)
