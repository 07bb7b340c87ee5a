"""Inverted lists: items in the bucket of their nearest centre; a search opens the buckets with the best centres.

Shape legend: N items, D width, C buckets, k results.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.retrieval.index.buckets import Buckets, best_inside
from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, by_row, own_settings
from beamwood.retrieval.index.fields import NumBuckets, NumProbed, StoredProbes, probed_of
from beamwood.retrieval.index.kmeans import kmeans, nearest_centres
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = [
    "IvfIndex",
    "IvfSettings",
    "bucketed",
    "restored_buckets",
]


class IvfSettings(IndexSettings):
    """The number of buckets, and the number that a search opens."""

    num_buckets: NumBuckets = None
    num_probed: NumProbed = None


class IvfIndex:
    """C buckets by k-means (squared distance); exact products in the `num_probed` buckets with the best centres.

    It saves two thirds of the products or more, at a recall set by `num_probed`; all buckets are exact search.
    """

    kind: ClassVar[str] = "ivf"
    Settings: ClassVar[type[IndexSettings]] = IvfSettings
    modules: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[bool] = False

    def __init__(
        self, vectors_ND: FloatArray, settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> None:
        given = own_settings(IvfSettings, settings)
        self.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        rng = np.random.default_rng(inputs.seed)
        self.centres, self.buckets = bucketed(self.vectors, given.num_buckets, rng, inputs.seconds)
        self.num_probed = probed_of(given.num_probed, len(self.centres))

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `Index`; `scored` counts products with centres and with items."""
        return by_row(self._row, len(self.vectors), queries_BD, k, options)

    def _row(self, query_D: FloatArray, k: int, options: SearchOptions) -> Hits:
        order_C = np.argsort(-(self.centres @ query_D), kind="stable")
        hits = best_inside(self.buckets, self.vectors, query_D, order_C, self.num_probed, k, options)
        return Hits(hits.items, hits.scores, hits.scored + len(self.centres))

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The centres and the items of each bucket."""
        return {"num_probed": self.num_probed}, {"centres": self.centres} | self.buckets.arrays()

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        restored = cls.__new__(cls)
        restored.num_probed = StoredProbes.model_validate(config).num_probed
        restored.vectors = np.ascontiguousarray(vectors_ND, np.float32)
        restored.centres, restored.buckets = restored_buckets(arrays, vectors_ND)
        return restored


def bucketed(
    vectors_ND: FloatArray, num_buckets: int | None, rng: np.random.Generator, seconds: float | None = None
) -> tuple[NDArray[np.float32], Buckets]:
    """float32[C, D] centres by k-means, and the items of each; C as given (None: the square root of N), at most N.

    K-means has half of the `seconds`.
    """
    count = num_buckets or max(1, round(math.sqrt(len(vectors_ND))))
    centres = kmeans(vectors_ND, count, rng, seconds=None if seconds is None else seconds / 2)
    return centres, Buckets.of(nearest_centres(vectors_ND, centres)[0], len(centres))


def restored_buckets(arrays: dict[str, NDArray[Any]], vectors_ND: FloatArray) -> tuple[NDArray[np.float32], Buckets]:
    """Centres float32[C, D] and buckets of a saved folder. Errors: not as wide, or as many, as `vectors_ND`."""
    shape = shape_of(arrays, "centres", 2)[0], vectors_ND.shape[1]
    check_floats(arrays, {"centres": shape})
    return np.ascontiguousarray(arrays["centres"], np.float32), Buckets.restore(arrays, len(vectors_ND), shape[0])
