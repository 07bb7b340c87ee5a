"""The native core's `Searcher` in numpy: the same methods, arguments and tuples of arrays, without its checks.

Shape legend: B rows, M nodes a row, L history length.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels import reference, steering
from beamwood.kernels.din import DinWeights
from beamwood.kernels.light import Way
from beamwood.kernels.reference import LiveCounts, SearchResult
from beamwood.kernels.steering import Visited
from beamwood.tree.tree import Shape
from beamwood.types import IndexArray

__all__ = ["NumpySearcher"]

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NumpySearcher:
    """Searches a tree of this shape; `indptr` and `banned` are the two arrays of `reference.ExcludedLeaves`."""

    weights: DinWeights
    shape: Shape
    by_path: bool

    def queue(self) -> tuple[int, int, int]:
        """The counts of `search.Queue`: no caller waits for another."""
        return 0, 0, 0

    def beam(
        self, history_BL: IndexArray, beam_width: int, k: int, live: LiveCounts, indptr: Int64, banned: Int32
    ) -> SearchResult:
        """See `reference.beam_search`."""
        return reference.beam_search(
            self.weights,
            self.shape,
            history_BL,
            beam_width=beam_width,
            k=k,
            live=live,
            excluded=(indptr, banned),
            by_path=self.by_path,
        )

    def steered(
        self,
        history_BL: IndexArray,
        way: tuple[int, int, bool, bool],
        k: int,
        live: LiveCounts,
        indptr: Int64,
        banned: Int32,
    ) -> SearchResult:
        """See `steering.steered_search`. `way`: beam_width, judged, whether it is a cascade, and `again`."""
        beam_width, judged, cascade, again = way
        return steering.steered_search(
            self.weights,
            self.shape,
            history_BL,
            Way("cascade" if cascade else "steer", beam_width, judged),
            k=k,
            live=live,
            excluded=(indptr, banned),
            again=again,
        )

    def exact(self, history_BL: IndexArray, k: int, live: LiveCounts, indptr: Int64, banned: Int32) -> SearchResult:
        """See `reference.exact_search`."""
        return reference.exact_search(self.weights, self.shape, history_BL, k, live=live, excluded=(indptr, banned))

    def visit(
        self,
        history_BL: IndexArray,
        beam_width: int,
        steered: bool,
        most: int,
        offsets: NDArray[np.float64],
        live: LiveCounts,
    ) -> Visited:
        """See `steering.visit`."""
        return steering.visit(
            self.weights,
            self.shape,
            history_BL,
            beam_width=beam_width,
            steered=steered,
            most=most,
            offsets=offsets,
            live=live,
        )

    def score(self, history_BL: IndexArray, level: int, nodes_BM: IndexArray) -> NDArray[np.float32]:
        """See `reference.score_given`."""
        return reference.score_given(self.weights, self.shape, level, history_BL, nodes_BM, by_path=self.by_path)
