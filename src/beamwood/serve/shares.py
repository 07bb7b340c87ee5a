"""How many of an answer's places new items may have: they are a guess until the next fit."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from beamwood.retrieval.top_k import sort_candidates
from beamwood.serve.snapshot import Snapshot
from beamwood.types import BoolArray, Hits, Query, SearchOptions

__all__ = ["bounded"]


def bounded(
    snapshot: Snapshot, query: Query, hits: Hits, k: int, options: SearchOptions, share: float, most: int
) -> Hits:
    """The hits of one row, with the best new items on at most a share of the first `most` places, rounded up.

    Known items take the other places. Where a filter leaves fewer of them, more new ones stay, so that there are k.
    """
    new = hits.items[0] >= snapshot.known
    room = math.ceil(share * most)
    if np.count_nonzero(new) <= room:
        return hits
    known = options.allowed if options.allowed is not None else np.ones(snapshot.num_items, bool)
    known = known & _fitted(snapshot)
    others = snapshot.searcher.search(query, k, replace(options, allowed=known, prepared=None, explain=False))
    there = np.count_nonzero(others.items[0] >= 0)
    kept = np.flatnonzero(new)[: max(room, k - there)]
    items = np.concatenate([hits.items[:, kept], others.items], axis=1)
    scores = np.concatenate([hits.scores[:, kept], others.scores], axis=1)
    # The rest of the known ones give way, never a new one: what is kept is among the best.
    joined = sort_candidates(items, scores, k)
    return Hits(joined.items, joined.scores, hits.scored + others.scored, hits.parts)


def _fitted(snapshot: Snapshot) -> BoolArray:
    mask: BoolArray = np.arange(snapshot.num_items) < snapshot.known
    return mask
