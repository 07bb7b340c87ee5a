"""The cost of an answer: milliseconds for one user, and the megabytes of a searcher."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from beamwood.blocks import evenly
from beamwood.data.queries import Queries
from beamwood.types import Searcher, SearchOptions

__all__ = ["Cost", "measure_cost"]

# The most users that are timed, and the seconds after which no further one is.
_MOST_QUERIES, _MOST_SECONDS = 100, 3.0


@dataclass(frozen=True, slots=True)
class Cost:
    """`milliseconds`: the median over `queries` users, one at a time, seen items removed, excluding time taken by
    other programs; `p99`: the 99th percentile; `scored`: mean nodes or items scored; `megabytes`: 1e6 bytes of the
    searcher's arrays.
    """

    milliseconds: float
    p99: float
    scored: float
    megabytes: float
    queries: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def measure_cost(searcher: Searcher, queries: Queries, k: int, *, seconds: float = _MOST_SECONDS) -> Cost:
    """The cost of the k best for one user, over at most 100 of the queries or `seconds`."""
    _, arrays = searcher.export()
    rows = evenly(len(queries), _MOST_QUERIES)
    taken, gone = list[float](), 0.0
    scored: list[int] = []
    # The first answer is a warm-up.
    for row in (rows[0], *rows):
        part = queries.take(np.array([row]))
        query, options = part.query(searcher.needs), SearchOptions(part.seen)
        began, worked = time.perf_counter(), time.process_time()
        hits = searcher.search(query, k, options)
        wall = time.perf_counter() - began
        # CPU time exceeds wall time with several threads; wall time exceeds it on a shared CPU.
        taken.append(min(wall, time.process_time() - worked))
        gone += wall
        scored.append(int(hits.scored[0]))
        if gone > seconds and len(taken) > 1:
            break
    ms = 1000 * np.array(taken[1:])
    size = sum(array.nbytes for array in arrays.values()) / 1e6
    return Cost(float(np.median(ms)), float(np.quantile(ms, 0.99)), float(np.mean(scored[1:])), size, len(ms))
