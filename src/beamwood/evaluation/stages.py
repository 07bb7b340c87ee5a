"""The errors of two stages: misses of the retriever, errors of the ranker given a hit, and their sum.

Shape legend: Q queries, P pairs of a query and a label, K candidates.

Source: two-stage bounds, proposition 4.1 and corollary 4.2, here at a cut k (the paper's is 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import blocks
from beamwood.data.queries import Queries
from beamwood.errors import InputError
from beamwood.evaluation.protocol import checked_ks
from beamwood.types import BoolArray, Estimator, Hits, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = ["StageReport", "StagesAtCut", "decompose"]

# The queries for which one stage scores the whole catalogue, fewer where that exceeds two million pairs: these take the
# study's DIN a few minutes of one thread.
_ONE_STAGE_QUERIES = 200
_ONE_STAGE_PAIRS = 2_000_000
# Scores of the whole catalogue held at a time (16 MiB).
_BLOCK_CELLS = 2**22
_BATCH = 128


@runtime_checkable
class Staged(Protocol):
    """A two-stage searcher: the second stage orders the candidates of the first, and can score alone."""

    @property
    def num_items(self) -> int: ...
    @property
    def num_candidates(self) -> int | None: ...
    @property
    def is_staged(self) -> bool: ...
    @property
    def ranker(self) -> Estimator: ...
    @property
    def needs(self) -> QueryNeeds: ...
    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits: ...


@dataclass(frozen=True, slots=True)
class StagesAtCut:
    """Of all pairs of a query and a label, at a cut k.

    `rank_error`: share of the retrieved labels that the ranker leaves below place k, None without any. `total_error =
    miss + rank_error (1 - miss)`. `retriever_error`: the same of the retriever's own order, without a ranker.
    `one_stage_error`: the ranker's over the whole catalogue, on some of the queries; `two_stages_better` where the
    total on the same queries is no larger. That is where their miss rate is at most `bound = (one_stage - rank_error) /
    (1 - rank_error)`, which is None where the rank error is None or 1, as the miss rate does not matter.
    """

    k: int
    rank_error: float | None
    total_error: float
    retriever_error: float
    one_stage_error: float | None = None
    one_stage_rank_error: float | None = None
    one_stage_miss: float | None = None
    bound: float | None = None
    two_stages_better: bool | None = None


@dataclass(frozen=True, slots=True)
class StageReport:
    """The decomposition: `miss` of K candidates, the `ceiling` it sets (recall of a ranker that never errs), costs.

    Seconds and scores are means a query; `one_stage_queries` were also ranked over the whole catalogue.
    """

    queries: int
    pairs: int
    num_candidates: int
    miss: float
    ceiling: float
    cuts: tuple[StagesAtCut, ...]
    retrieval_scored: float
    ranking_scored: float
    retrieval_seconds: float
    ranking_seconds: float
    one_stage_queries: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def decompose(
    searcher: Staged,
    queries: Queries,
    *,
    ks: Sequence[int] = (1, 10, 20),
    one_stage_queries: int | None = None,
    seed: int = 0,
) -> StageReport:
    """Measure both stages on queries, seen items removed.

    `one_stage_queries` are drawn to be ranked over the whole catalogue too, 0 leaves corollary 4.2 out; by default 200,
    or as many as need two million scores. Errors: a cut outside 1..K, a searcher of one stage, no query with a label.
    """
    num_candidates, cuts = _checked_cuts(searcher, ks)
    if one_stage_queries is None:
        one_stage_queries = min(_ONE_STAGE_QUERIES, _ONE_STAGE_PAIRS // searcher.num_items)
    if one_stage_queries < 0:
        raise InputError(f"one_stage_queries={one_stage_queries} is below 0; 0 leaves the comparison out")
    judged = queries.labelled()
    if len(judged) == 0:
        raise InputError(f"none of the {len(queries)} queries has a label; nothing can be measured")
    chosen = np.random.default_rng(seed).permutation(len(judged))[:one_stage_queries]
    in_sample = np.zeros(len(judged), bool)
    in_sample[chosen] = True
    found = _label_places(searcher, judged, min(num_candidates, searcher.num_items))
    whole_S = _catalogue_places(searcher, judged.take(np.flatnonzero(in_sample))) if in_sample.any() else None
    in_sample_P = in_sample[judged.labels.rows]
    return StageReport(
        len(judged),
        len(found.rank_P),
        num_candidates,
        float((found.retrieved_P == 0).mean()),
        float((found.retrieved_P > 0).mean()),
        tuple(at_cut(k, found.rank_P, found.retrieved_P, in_sample_P, whole_S) for k in cuts),
        retrieval_scored=float(found.scored[0] / len(judged)),
        ranking_scored=float(found.scored[1] / len(judged)),
        retrieval_seconds=float(found.seconds[0] / len(judged)),
        ranking_seconds=float(found.seconds[1] / len(judged)),
        one_stage_queries=int(in_sample.sum()),
    )


@dataclass(frozen=True, slots=True)
class LabelPlaces:
    """Where each label stands, from 1, 0 where it is not found: `rank_P` by both stages, `retrieved_P` by the first.

    Both int64[P]. `scored` and `seconds`, float64[2]: what the first stage took of all queries, and what the rest did.
    """

    rank_P: NDArray[np.int64]
    retrieved_P: NDArray[np.int64]
    scored: NDArray[np.float64]
    seconds: NDArray[np.float64]


def _label_places(searcher: Staged, queries: Queries, k: int) -> LabelPlaces:
    """The places of the labels among k items, and what finding them took."""
    ranked, retrieved = [], []
    scored, seconds = np.zeros(2), np.zeros(2)
    for rows in blocks(len(queries), _BATCH):
        part = queries.take(rows)
        found = searcher.search(part.query(searcher.needs), k, SearchOptions(part.seen, explain=True))
        first, *others = found.parts
        ranked.append(_places(found.items, part.labels))
        retrieved.append(_places(first.hits.items, part.labels))
        scored += [first.hits.scored.sum(), sum(part.hits.scored.sum() for part in others)]
        seconds += [first.seconds, sum(part.seconds for part in others)]
    return LabelPlaces(np.concatenate(ranked), np.concatenate(retrieved), scored, seconds)


def _checked_cuts(searcher: Staged, ks: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """K, and the cuts in their order. Errors: a cut outside 1..K, a searcher of one stage or without a K of its own."""
    if not isinstance(searcher, Staged) or not searcher.is_staged:
        raise InputError(
            f"{type(searcher).__name__} has one stage, so there is nothing to divide; give the searcher of a sum, such "
            "as dtr+ease, or of two_stage"
        )
    num_candidates = searcher.num_candidates
    if num_candidates is None:
        raise InputError("the searcher orders as many candidates as are asked for; give it num_candidates")
    cuts = checked_ks(ks, None)
    if cuts[-1] > num_candidates:
        raise InputError(f"k={cuts[-1]} is above {num_candidates}, the number of candidates; give lower cuts")
    return num_candidates, cuts


def _places(items_BK: NDArray[np.int32], labels: ItemLists) -> NDArray[np.int64]:
    """int64[P], the place of each label in its query's list, from 1; 0 where it is not there."""
    same = items_BK[labels.rows] == labels.items[:, None]
    return np.where(same.any(axis=1), same.argmax(axis=1) + 1, 0)


def _catalogue_places(searcher: Staged, queries: Queries) -> NDArray[np.int64]:
    """int64[P], the place of each label where the ranker orders every item that was not seen; 0 for a seen one."""
    num_items, parts = searcher.num_items, [np.empty(0, np.int64)]
    for rows in blocks(len(queries), _BLOCK_CELLS // num_items):
        part = queries.take(rows)
        every = np.broadcast_to(np.arange(num_items, dtype=np.int64), (len(part), num_items))
        scores = searcher.ranker.score(part.query(searcher.needs), every).copy()
        scores[part.seen.rows, part.seen.items] = -np.inf
        # A stable order: of equal scores the lower item comes first.
        order, place = np.argsort(-scores, axis=1, kind="stable"), np.empty(scores.shape, np.int64)
        np.put_along_axis(place, order, np.arange(1, num_items + 1)[None, :], axis=1)
        pairs = part.labels.rows, part.labels.items
        parts.append(np.where(np.isfinite(scores[pairs]), place[pairs], 0))
    return np.concatenate(parts)


def at_cut(
    k: int,
    rank_P: NDArray[np.int64],
    retrieved_P: NDArray[np.int64],
    sampled_P: BoolArray,
    whole_S: NDArray[np.int64] | None,
) -> StagesAtCut:
    """The errors at one cut; `whole_S` belongs to the pairs of `sampled_P`."""
    hit = retrieved_P > 0
    wrong = ~((rank_P > 0) & (rank_P <= k))
    own_order = float((~(hit & (retrieved_P <= k))).mean())
    rank_error = _share(wrong, hit)
    if whole_S is None:
        return StagesAtCut(k, rank_error, float(wrong.mean()), own_order)
    one_stage = float((~((whole_S > 0) & (whole_S <= k))).mean())
    error, miss = _share(wrong, hit & sampled_P), float((~hit)[sampled_P].mean())
    bound = None if error is None or error == 1 else (one_stage - error) / (1 - error)
    better = float(wrong[sampled_P].mean()) <= one_stage
    return StagesAtCut(k, rank_error, float(wrong.mean()), own_order, one_stage, error, miss, bound, better)


def _share(what: BoolArray, among: BoolArray) -> float | None:
    """The share of `what` among the given; None where there is none."""
    return float(what[among].mean()) if among.any() else None
