"""The places of new items in an answer: limited, as their scores are guesses until the next fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from beamwood.kept import Prepared
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.types import BoolArray, FloatArray, Hits, Query, SearchOptions

__all__ = ["with_share_of_new", "order_by_share"]


def with_share_of_new(
    snapshot: Snapshot, query: Query, hits: Hits, k: int, options: SearchOptions, share: float
) -> Hits:
    """The k hits of one row, with the best new items on at most a share of the places, rounded up.

    The j-th of them is at place j / share at the earliest, or at the last one. Where a filter leaves fewer known items,
    more new ones fill up to k.
    """
    new = hits.items[0] >= snapshot.known
    if not new.any():
        return hits
    room = math.ceil(share * k)
    if np.count_nonzero(new) <= room:
        return _in_order(hits, new, share, k)
    known = snapshot.fitted_alone
    if options.allowed is not None:
        # Kept with the filter, as searchers derive arrays from it.
        known = options.of_filter(with_share_of_new, lambda allowed: Prepared(allowed & snapshot.fitted_alone.mask))
    asked = replace(options, allowed=known.mask, prepared=known, explain=False)
    others = snapshot.searcher.search(query, k, asked)
    there = np.count_nonzero(others.items[0] >= 0)
    kept = np.flatnonzero(new)[: max(room, k - there)]
    items = np.concatenate([hits.items[:, kept], others.items[:, :there]], axis=1)
    scores = np.concatenate([hits.scores[:, kept], others.scores[:, :there]], axis=1)
    seconds = hits.rank_seconds + others.rank_seconds
    both = Hits(items, scores, hits.scored + others.scored, hits.parts, seconds)
    return _in_order(both, items[0] >= snapshot.known, share, k)


def _in_order(hits: Hits, new: BoolArray, share: float, k: int) -> Hits:
    # Places without an item stay behind the items.
    there = int(np.count_nonzero(hits.items[0] >= 0))
    order = [*order_by_share(hits.scores[0, :there], new[:there], share, k), *range(there, len(new))]
    return replace(hits, items=hits.items[:, order], scores=hits.scores[:, order])


def order_by_share(scores: FloatArray, new: BoolArray, share: float, k: int) -> list[int]:
    """The positions of `scores`, best first, at most k: a new one no earlier than its share allows.

    After the known ones are used up, new ones follow in order.
    """
    return list(_placed(scores, new, share, k))


def _placed(scores: FloatArray, new: BoolArray, share: float, k: int) -> Iterator[int]:
    order = np.argsort(-np.asarray(scores), kind="stable").tolist()
    fresh = [at for at in order if new[at]]
    known = [at for at in order if not new[at]]
    taken = 0
    for place in range(1, min(k, len(order)) + 1):
        rest = place - 1 - taken
        # For tiny shares the quotient is not finite.
        earliest = min(math.ceil((taken + 1) / share), k) if taken + 1 < share * k else k
        if taken < len(fresh) and (
            rest >= len(known) or (place >= earliest and scores[fresh[taken]] >= scores[known[rest]])
        ):
            yield fresh[taken]
            taken += 1
        else:
            yield known[rest]
