"""Indexes over item vectors by name: each finds the largest inner products of a query; each is one file.

Shape legend: B rows, N items, D width, k results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

from numpy.typing import NDArray

from beamwood.retrieval.index.exact import ExactIndex
from beamwood.retrieval.index.hnsw import HnswIndex
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = ["INDEXES", "ExactIndex", "HnswIndex", "Index", "IndexName"]


class Index(Protocol):
    """Finds items by the inner product of their vectors, float32[N, D], with a query's.

    What it owes is in `beamwood.testing.IndexContract`. `name` is that of the setting and of a saved folder.
    """

    name: ClassVar[str]

    def __init__(self, vectors_ND: FloatArray, /) -> None: ...

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best found for each row, in the order of `top_k`; fewer only where fewer may be shown."""
        ...

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What it keeps beside the vectors: a JSON-able configuration and plain arrays."""
        ...

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self: ...


INDEXES: dict[str, type[Index]] = {"exact": ExactIndex, "hnsw": HnswIndex}

if TYPE_CHECKING:
    IndexName = str
else:
    IndexName = Literal[tuple(INDEXES)]
