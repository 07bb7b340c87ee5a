"""A blend of several searchers: the sum of their scores, a weight for seen items, and a fallback.

    score = sum_i w_i link_i(score_i) + r [seen]

Shape legend: B rows, M items a row, N items, C candidates a row, k results.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, InputError
from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.products import is_catalogue
from beamwood.retrieval.search_checks import check_histories, check_search
from beamwood.retrieval.searchers.candidates import find_candidates, num_exact
from beamwood.retrieval.stored import MOST, StoredConfig, StoredPart, exported_part, part_of, prefixed
from beamwood.types import (
    BoolArray,
    Hits,
    IndexArray,
    PartHits,
    Query,
    QueryNeeds,
    Searcher,
    SearchOptions,
    among,
)

__all__ = ["LINKS", "Blend", "Part", "sole_part"]

Array = NDArray[np.float32]


def _log_odds(scores: Array) -> Array:
    """The log-odds of log-probabilities, so that their sum with other scores is in logits."""
    with np.errstate(divide="ignore"):
        odds: Array = scores - np.log(-np.expm1(np.minimum(scores, np.float32(-1e-7))))
    return odds


LINKS: dict[str, Callable[[Array], Array]] = {"score": lambda scores: scores, "log-odds": _log_odds}
"""Applied to a part's score before weighting: identity, or log-odds of a log-probability."""


@runtime_checkable
class Extending(Protocol):
    """A searcher with items that are newer than its fit."""

    def known_query(self, query: Query) -> Query:
        """The query with each new item in histories replaced by the known one that it is most of, if any."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a blend: its scores are transformed by `link` and multiplied by `weight`, and 0 where `gate` is closed.

    `gate`: the rows that it can answer, all or those with a history of items that it knows.
    Errors: a weight below 0 or that is not a number.
    """

    searcher: Searcher
    weight: float = 1.0
    link: Literal["score", "log-odds"] = "score"
    gate: Literal["always", "history"] = "always"

    def __post_init__(self) -> None:
        if not 0 <= self.weight <= MOST:
            raise InputError(f"weight={self.weight} must be 0, which leaves a part's score out, or a positive number")

    def is_open(self, query: Query) -> BoolArray:
        """bool[B], whether the gate is open."""
        if self.gate == "always":
            return np.ones(len(query), bool)
        known = self.searcher.known_query(query) if isinstance(self.searcher, Extending) else query
        return known.histories.lengths > 0

    def weighted(self, query: Query, scores_BC: Array) -> Array:
        """float32[B, C], the weighted scores of this part; 0 where its gate is closed."""
        if self.weight == 0:
            return np.zeros(scores_BC.shape, np.float32)
        added = np.float32(self.weight) * LINKS[self.link](scores_BC)
        return added if self.gate == "always" else np.where(self.is_open(query)[:, None], added, np.float32(0))


class _StoredPart(StoredConfig):
    weight: float = Field(ge=0, le=MOST)
    link: Literal["score", "log-odds"]
    gate: Literal["always", "history"]
    searcher: StoredPart


class _Stored(StoredConfig):
    parts: list[_StoredPart] = Field(min_length=1)
    seen_weight: float = Field(ge=-MOST, le=MOST)
    num_candidates: int | None = Field(ge=1, le=MOST)
    fallback: StoredPart | None


@dataclass(eq=False, repr=False)
class Blend:
    """The candidates of the first part, ordered by the sum of all parts' scores.

    Candidates are the first part's `num_candidates` best (None: as many as requested) and, unless `seen_weight` is 0,
    all allowed seen items, to whose scores it is added: an item is most similar to itself, whether or not the user
    wants it again. A search for k above `num_candidates` returns k; further ones follow in the first's order, with
    scores that only keep that order (the lowest less 1, 2, 3, ..). A tree need not find all candidates exactly
    (`candidates.num_exact`); for more than its beam it widens it, and may find others. Rows whose first gate is closed
    are answered by the `fallback`, with scores 0. `Hits.scored` sums all parts. Source of two stages: two-stage bounds,
    section 3, where the second's score counts alone.
    """

    kind: ClassVar[str] = "blend"
    parts: Sequence[Part]
    _: KW_ONLY
    seen_weight: float = 0.0
    num_candidates: int | None = None
    fallback: Searcher | None = None

    def __post_init__(self) -> None:
        if self.num_candidates is not None and self.num_candidates < 1:
            raise InputError(f"num_candidates={self.num_candidates} is below 1; the study retrieves 40 to 120")
        if not -MOST <= self.seen_weight <= MOST:
            raise InputError(f"seen_weight={self.seen_weight} must be a number; 0 leaves scores as they are")
        if not any(part.weight for part in self.parts):
            raise InputError("no part has a weight above 0; give one at least")
        self.seen_weight = float(self.seen_weight)
        others = [part.searcher for part in self.parts[1:]]
        for other in (*others, *(() if self.fallback is None else (self.fallback,))):
            if other.num_items != self.num_items:
                raise ArtefactError(
                    f"the first part has {self.num_items} items, another {other.num_items}; fit both on one log"
                )

    @property
    def num_items(self) -> int:
        return self.first.num_items

    @property
    def needs(self) -> QueryNeeds:
        """The needs of all parts."""
        return QueryNeeds.joined(part.searcher.needs for part in self.parts)

    @property
    def first(self) -> Searcher:
        """The part that finds the candidates."""
        return self.parts[0].searcher

    @property
    def ranker(self) -> Searcher:
        """The last part: the second of two stages."""
        return self.parts[-1].searcher

    @property
    def is_staged(self) -> bool:
        """Whether there are two stages or more: a part that orders the candidates of the first."""
        return len(self.parts) > 1

    def known_query(self, query: Query) -> Query:
        """See `Extending`; all parts have the same new items."""
        return self.first.known_query(query) if isinstance(self.first, Extending) else query

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        check_search(len(query), self.num_items, k, excluded=options.excluded, allowed=options.allowed)
        judged = min(k if self.num_candidates is None else self.num_candidates, self.num_items)
        wanted = min(max(k, judged), self.num_items)
        exact = num_exact(wanted, k if options.num_exact is None else options.num_exact)
        quiet = replace(options, explain=False, num_exact=exact)
        began = time.perf_counter()
        found = find_candidates(self.first, query, wanted, quiet, apart=self.seen_weight != 0)
        seconds = time.perf_counter() - began
        items_BC = found.items_BC(judged)
        totals_BC, others = self.parts[0].weighted(query, found.scores_BC(judged)), []
        for part in self.parts[1:]:
            began = time.perf_counter()
            scores_BC = found.scores_by(part.searcher, query, judged)
            own = Hits(items_BC, scores_BC, (items_BC >= 0).sum(axis=1))
            totals_BC += part.weighted(query, own.scores)
            others.append(PartHits(own, time.perf_counter() - began))
        hits = found.best(totals_BC, self.seen_weight, k)
        hits = replace(
            hits,
            scored=sum((part.hits.scored for part in others), hits.scored),
            rank_seconds=sum(part.seconds for part in others),
        )
        if options.explain:
            hits = replace(hits, parts=(PartHits(found.by_own_scores(), seconds), *others))
        return self._with_fallback(hits, query, k, quiet)

    def _with_fallback(self, hits: Hits, query: Query, k: int, options: SearchOptions) -> Hits:
        """The hits, replaced by the fallback's where the first part's gate is closed."""
        rows = np.flatnonzero(~self.parts[0].is_open(query))
        if self.fallback is None or len(rows) == 0:
            return hits
        items = self.fallback.search(query.take(rows), k, options.take(rows)).items
        hits.items[rows], hits.scores[rows] = items, np.where(items >= 0, np.float32(0), np.float32(-np.inf))
        return hits

    def score(self, query: Query, items_BM: IndexArray) -> Array:
        """float32[B, M], the blended score of each given item, candidate or not; -inf where the item index is -1."""
        items_BM, histories = np.asarray(items_BM), query.histories
        check_histories(histories, self.num_items)
        weighed = [part.weighted(query, part.searcher.score(query, items_BM)) for part in self.parts if part.weight]
        totals_BM = functools.reduce(np.add, weighed)
        if self.seen_weight != 0 and is_catalogue(items_BM, self.num_items):
            seen = histories.distinct()
            totals_BM[seen.rows, seen.items] += np.float32(self.seen_weight)
        elif self.seen_weight != 0:
            totals_BM[among(items_BM, histories)] += np.float32(self.seen_weight)
        totals_BM[items_BM < 0] = -np.inf
        return totals_BM

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The exports of all parts, with prefixed names."""
        parts, arrays = [], dict[str, NDArray[Any]]()
        for number, part in enumerate(self.parts):
            stored, own = exported_part(part.searcher)
            parts.append({"weight": part.weight, "link": part.link, "gate": part.gate, "searcher": stored})
            arrays |= prefixed(str(number), own)
        fallback = None
        if self.fallback is not None:
            fallback, own = exported_part(self.fallback)
            arrays |= prefixed("fallback", own)
        config = {"parts": parts, "seen_weight": self.seen_weight, "num_candidates": self.num_candidates}
        return config | {"fallback": fallback}, arrays

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Self:
        stored = _Stored.model_validate(config)

        def restored(part: StoredPart, prefix: str) -> Searcher:
            return restore_searcher(part.kind, part.config, part_of(arrays, prefix), threads=threads)

        parts = [
            Part(restored(part.searcher, str(number)), part.weight, part.link, part.gate)
            for number, part in enumerate(stored.parts)
        ]
        fallback = stored.fallback
        return cls(
            parts,
            seen_weight=stored.seen_weight,
            num_candidates=stored.num_candidates,
            fallback=None if fallback is None else restored(fallback, "fallback"),
        )


def sole_part(searcher: Searcher) -> Searcher:
    """The only part of a blend; any other searcher itself."""
    return searcher.first if isinstance(searcher, Blend) and not searcher.is_staged else searcher
