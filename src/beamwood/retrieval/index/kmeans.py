"""Lloyd's k-means, and the nearest centre of each vector.

Shape legend: N vectors, D width, C centres.
"""

from __future__ import annotations

import math
import time

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.types import FloatArray

__all__ = ["kmeans", "nearest_centres"]

# Distances held at a time (16 MiB), and the most vectors a centre is learned from.
_CELLS, _SAMPLE = 2**22, 256
# The most centres initialised by k-means++, which takes a pass for each.
_APART = 1024
# Candidates among which the best initial centre is chosen.
_TRIED = 4


def kmeans(
    vectors_ND: FloatArray,
    num_centres: int,
    rng: np.random.Generator,
    *,
    rounds: int = 20,
    seconds: float | None = None,
) -> NDArray[np.float32]:
    """float32[C, D], `num_centres` centres (at most as many as vectors) with small squared distances.

    They are learned from at most 256 vectors a centre. An empty centre moves to the vector farthest from its own. Up to
    C vectors are their own centres. After `seconds` no further round begins, and initial centres are drawn uniformly.
    """
    until = math.inf if seconds is None else time.monotonic() + seconds
    vectors_ND = np.asarray(vectors_ND, np.float32)
    if len(vectors_ND) <= num_centres:
        return vectors_ND.copy()
    most = _SAMPLE * num_centres
    if len(vectors_ND) > most:
        vectors_ND = vectors_ND[np.sort(rng.choice(len(vectors_ND), most, replace=False))]
    centres_CD = _start(vectors_ND, num_centres, rng, until)
    before: NDArray[np.int32] | None = None
    for _ in range(rounds):
        if time.monotonic() > until:
            break
        nearest, distances = nearest_centres(vectors_ND, centres_CD)
        if before is not None and np.array_equal(nearest, before):
            break
        before = nearest
        counts = np.bincount(nearest, minlength=num_centres)
        order, full = np.argsort(nearest, kind="stable"), np.flatnonzero(counts)
        starts = np.concatenate([[0], np.cumsum(counts[full])[:-1]])
        sums = np.add.reduceat(vectors_ND[order], starts, axis=0, dtype=np.float64)
        centres_CD[full] = sums / counts[full, None]
        empty = np.flatnonzero(counts == 0)
        centres_CD[empty] = vectors_ND[np.argsort(-distances, kind="stable")[: len(empty)]]
    return centres_CD


def _start(
    vectors_ND: NDArray[np.float32], num_centres: int, rng: np.random.Generator, until: float
) -> NDArray[np.float32]:
    """Initial centres drawn from the vectors, the best of a few by squared distance (k-means++); many uniformly, and
    those that are not drawn at the time `until`.

    Source: Arthur and Vassilvitskii, "k-means++: The Advantages of Careful Seeding".
    """
    if num_centres > _APART:
        return vectors_ND[rng.choice(len(vectors_ND), num_centres, replace=False)].copy()
    drawn, norms_N = [int(rng.integers(len(vectors_ND)))], np.square(vectors_ND).sum(axis=1)
    away_N = _away(vectors_ND, norms_N, np.array(drawn))[:, 0]
    while len(drawn) < num_centres:
        if time.monotonic() > until:
            others = np.delete(np.arange(len(vectors_ND)), drawn)
            drawn += rng.choice(others, num_centres - len(drawn), replace=False).tolist()
            break
        total_N = np.cumsum(away_N, dtype=np.float64)
        tried = np.minimum(np.searchsorted(total_N, rng.random(_TRIED) * total_N[-1], side="right"), len(away_N) - 1)
        left_NT = np.minimum(away_N[:, None], _away(vectors_ND, norms_N, tried))
        best = int(left_NT.sum(axis=0, dtype=np.float64).argmin())
        drawn.append(int(tried[best]))
        away_N = left_NT[:, best]
    return vectors_ND[drawn].copy()


def _away(
    vectors_ND: NDArray[np.float32], norms_N: NDArray[np.float32], places_T: NDArray[np.integer]
) -> NDArray[np.float32]:
    """float32[N, T], the squared distances to the vectors at `places_T`."""
    away_NT: NDArray[np.float32] = norms_N[:, None] - 2 * (vectors_ND @ vectors_ND[places_T].T) + norms_N[places_T]
    away_NT[places_T, np.arange(len(places_T))] = 0
    return np.maximum(away_NT, 0, out=away_NT)


def nearest_centres(vectors_ND: FloatArray, centres_CD: FloatArray) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """int32[N] the nearest centre of each vector, ties to the first, and float32[N] the squared distance.

    Computed in blocks: memory does not depend on N.
    """
    nearest = np.empty(len(vectors_ND), np.int32)
    distances = np.empty(len(vectors_ND), np.float32)
    norms_C = np.square(centres_CD).sum(axis=1)
    for rows in slices(len(vectors_ND), _CELLS // max(1, len(centres_CD))):
        some = np.asarray(vectors_ND[rows], np.float32)
        away = norms_C - 2 * (some @ centres_CD.T)
        best = away.argmin(axis=1)
        nearest[rows] = best
        own = np.take_along_axis(away, best[:, None], axis=1)[:, 0] + np.square(some).sum(axis=1)
        distances[rows] = np.maximum(own, 0)
    return nearest, distances
