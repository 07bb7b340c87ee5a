"""Search with a ranker: over the whole catalogue, or over what a retriever brings.

Shape legend: B rows, M items a row, N items, k results.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.scorers import ContextEncoder, PairScorer, check_pairs, context_of, restore_scorer
from beamwood.retrieval.searcher_scorer import SearcherScorer, StoredStage
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.top_k import check_search, join_hits, sort_candidates, top_k
from beamwood.types import (
    Askers,
    BoolArray,
    Hits,
    IndexArray,
    ItemLists,
    PersonalSearcher,
    Searcher,
    among,
    context_columns,
    is_personal,
    needs_users,
)

__all__ = ["RankingSearcher", "StagedHits", "TwoStageSearcher", "interpolated", "retrieve", "with_repeats"]

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
    def context_columns(self) -> tuple[str, ...]:
        """The columns of the askers' circumstances that the ranker looks at."""
        return () if self._context is None else self._context.names

    @property
    def needs_users(self) -> bool:
        """Does the ranker know users by a vector each?"""
        return self.scorer.needs_users

    def search(
        self, histories: ItemLists, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
    ) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        return self.search_askers(_nobody(self, histories), k, excluded=excluded, allowed=allowed)

    def search_askers(
        self, askers: Askers, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
    ) -> Hits:
        """The k best items of each asker; see `types.PersonalSearcher`."""
        check_search(len(askers), self.num_items, k, excluded=excluded, allowed=allowed)
        _check_histories(askers.histories, self.num_items)
        items_N = np.arange(self.num_items) if allowed is None else np.flatnonzero(allowed)
        # A ranker may hold a vector for each pair that it scores.
        block, parts = max(1, _BLOCK_CELLS // max(1, self.num_items * self.scorer.width)), []
        for start in range(0, len(askers), block):
            rows = np.arange(start, min(start + block, len(askers)))
            scores = np.full((len(rows), self.num_items), -np.inf, np.float32)
            scores[:, items_N] = _score(
                self.scorer, self._context, askers.take(rows), np.broadcast_to(items_N, (len(rows), len(items_N)))
            )
            parts.append(top_k(scores, k, excluded=None if excluded is None else excluded.take(rows)))
        return join_hits(parts, k)

    def score(self, histories: ItemLists, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        return self.score_askers(_nobody(self, histories), items_BM)

    def score_askers(self, askers: Askers, items_BM: IndexArray) -> NDArray[np.float32]:
        """As `score`, for users and their histories."""
        _check_histories(askers.histories, self.num_items)
        return _score(self.scorer, self._context, askers, items_BM)

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


@dataclass(frozen=True, slots=True)
class StagedHits:
    """Both stages of a search: `candidates` in the retriever's order, `hits` in the ranker's, seconds of each."""

    candidates: Hits
    hits: Hits
    retrieval_seconds: float
    ranking_seconds: float


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
    def context_columns(self) -> tuple[str, ...]:
        """The columns of the askers' circumstances that either stage looks at."""
        own = () if self._context is None else self._context.names
        return tuple(dict.fromkeys((*context_columns(self.retriever), *own)))

    @property
    def num_items(self) -> int:
        return self.retriever.num_items

    @property
    def needs_users(self) -> bool:
        """Does either stage know users by a vector each?"""
        return needs_users(self.retriever) or self.scorer.needs_users

    def stages(
        self,
        askers: Askers,
        k: int,
        *,
        excluded: ItemLists | None = None,
        allowed: BoolArray | None = None,
    ) -> StagedHits:
        """What each stage found."""
        began = time.perf_counter()
        wanted = min(max(k, self.num_candidates), self.num_items)
        candidates = retrieve(self.retriever, askers, wanted, excluded=excluded, allowed=allowed)
        between = time.perf_counter()
        first = candidates.items[:, : self.num_candidates]
        scores = _score(self.scorer, self._context, askers, first)
        if self.repeat_weight != 0:
            scores = with_repeats(scores, among(first, askers.histories), self.repeat_weight)
        hits = interpolated(candidates, scores, self.retriever_weight, k)
        return StagedHits(candidates, hits, between - began, time.perf_counter() - between)

    def search(
        self, histories: ItemLists, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
    ) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        return self.stages(_nobody(self, histories), k, excluded=excluded, allowed=allowed).hits

    def search_askers(
        self, askers: Askers, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
    ) -> Hits:
        """The k best items of each asker; see `types.PersonalSearcher`."""
        return self.stages(askers, k, excluded=excluded, allowed=allowed).hits

    def score(self, histories: ItemLists, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the ranker's score of each given item, retrieved or not; -inf where the index is -1."""
        return self.score_askers(_nobody(self, histories), items_BM)

    def score_askers(self, askers: Askers, items_BM: IndexArray) -> NDArray[np.float32]:
        """As `score`, for users and their histories."""
        _check_histories(askers.histories, self.num_items)
        return _score(self.scorer, self._context, askers, items_BM)

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


def retrieve(
    searcher: Searcher, askers: Askers, k: int, *, excluded: ItemLists | None = None, allowed: BoolArray | None = None
) -> Hits:
    """What a searcher of either sort finds for the askers."""
    if is_personal(searcher):
        assert isinstance(searcher, PersonalSearcher)
        return searcher.search_askers(askers, k, excluded=excluded, allowed=allowed)
    return searcher.search(askers.histories, k, excluded=excluded, allowed=allowed)


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


def _nobody(searcher: Any, histories: ItemLists) -> Askers:
    if searcher.needs_users:
        raise InputError("this ranker knows users, not histories alone; ask with users")
    return Askers(np.full(len(histories), -1, np.int64), histories)


def _check_histories(histories: ItemLists, num_items: int) -> None:
    if len(histories.items) and int(histories.items.max()) >= num_items:
        raise InputError(f"a history holds item index {int(histories.items.max())} of {num_items} items")


def _score(
    scorer: PairScorer, encoder: ContextEncoder | None, askers: Askers, items_BM: IndexArray
) -> NDArray[np.float32]:
    items = np.asarray(items_BM, np.int64)
    check_pairs(scorer, askers, items)
    context_BD = None if encoder is None else encoder.encode(askers.context, len(askers))
    missing = items < 0
    # Without a missing place the items go through as they are: a row for all stays one row.
    known = np.where(missing, 0, items) if missing.any() else items
    scores = scorer.score(askers.users, askers.histories, known, context_BD)
    return np.where(missing, np.float32(-np.inf), scores)
