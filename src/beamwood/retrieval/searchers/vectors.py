"""Search by vectors: a query encoder and an index over item vectors; without torch.

Shape legend: B rows, N items, D width, M items a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import ENCODERS
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.index import INDEXES, ExactIndex, Index, IndexInputs, IndexSettings, restore_index
from beamwood.retrieval.load import check_names
from beamwood.retrieval.products import products
from beamwood.retrieval.searchers.queries import QUERIES, EncodedHistory, UserBranch, restore_queries
from beamwood.retrieval.searchers.query_vectors import QueryKinds, QueryVectors
from beamwood.retrieval.stored import StoredConfig, StoredPart, exported_part, part_of, prefixed
from beamwood.types import FloatArray, Hits, IndexArray, Query, QueryNeeds, SearchOptions

__all__ = ["VectorSearcher", "searcher_with", "sequence_searcher"]


class _Stored(StoredConfig):
    queries: StoredPart
    index: StoredPart
    # The query encoder's array that equals the item vectors, which are stored once.
    shared: str | None


class VectorSearcher:
    """The k items whose `vectors` [N, D] have the largest inner product with the query's vector, found by an index."""

    kind: ClassVar[str] = "vectors"
    own_indexes: ClassVar[Mapping[str, type[Index]]] = {}
    own_encoders: ClassVar[Mapping[str, Encoder]] = {}
    own_queries: ClassVar[Mapping[str, type[QueryVectors]]] = {}
    """Those that a folder may have beside the package's."""

    def __init__(self, queries: QueryVectors, vectors: FloatArray, index: Index | None = None) -> None:
        num_items, width = shape_of({"vectors": vectors}, "vectors", 2)
        check_floats({"vectors": vectors}, {"vectors": (num_items, width)})
        known, own_width = queries.shape
        if own_width != width or known not in (None, num_items):
            raise ArtefactError(
                f"queries are encoded from {known or 'no'} items to width {own_width}, those searched are {num_items} "
                f"of width {width}; they come from different trainings"
            )
        self.queries, self.vectors = queries, np.ascontiguousarray(vectors, np.float32)
        self.index: Index = ExactIndex(self.vectors) if index is None else index

    def indexed(
        self, index: type[Index], settings: IndexSettings | None = None, inputs: IndexInputs = IndexInputs()
    ) -> VectorSearcher:
        """The same with another index, built over its vectors."""
        return VectorSearcher(self.queries, self.vectors, index(self.vectors, settings, inputs))

    @property
    def num_items(self) -> int:
        return len(self.vectors)

    @property
    def needs(self) -> QueryNeeds:
        """Users, where they have a table; else nothing."""
        return self.queries.needs

    def encode(self, query: Query) -> NDArray[np.float32]:
        """float32[B, D], the vector of each row."""
        return query.once(self, lambda: self.queries.encode(query))

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        return self.index.search(self.encode(query), k, options)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        return products(self.encode(query), self.vectors, items_BM)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        queries, arrays = exported_part(self.queries)
        index, index_arrays = exported_part(self.index)
        shared = next((name for name, array in arrays.items() if array is self.vectors), None)
        own = {name: array for name, array in arrays.items() if name != shared}
        stored = {"queries": queries, "index": index, "shared": shared}
        return stored, {"vectors": self.vectors} | prefixed("query", own) | prefixed("index", index_arrays)

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> VectorSearcher:  # noqa: ARG003
        stored = _Stored.model_validate(config)
        check_floats(arrays, {"vectors": shape_of(arrays, "vectors", 2)})
        # In the final form, so that a shared array stays shared.
        vectors = np.ascontiguousarray(arrays["vectors"], np.float32)
        own = part_of(arrays, "query") | ({} if stored.shared is None else {stored.shared: vectors})
        queries = restore_queries(
            stored.queries, own, QueryKinds(ENCODERS | dict(cls.own_encoders), QUERIES | dict(cls.own_queries))
        )
        index = restore_index(stored.index, vectors, part_of(arrays, "index"), INDEXES | dict(cls.own_indexes))
        # Not of `cls`, which no other process would find where it is sent.
        return VectorSearcher(queries, vectors, index)


def sequence_searcher(encoder: PlainEncoder, branch: UserBranch | None = None) -> VectorSearcher:
    """Exact search with a sequence encoder over the item vectors that it was trained with."""
    return VectorSearcher(EncodedHistory(encoder, branch), encoder.vectors)


def searcher_with(
    *,
    indexes: Sequence[type[Index]] = (),
    encoders: Sequence[Encoder] = (),
    queries: Sequence[type[QueryVectors]] = (),
) -> type[VectorSearcher]:
    """A subclass of `VectorSearcher` whose folders may have these further parts, for `Method.searchers`.

    Errors: `InputError` on a name of the package, or a repeated name.
    """
    check_names("indexes", [index.kind for index in indexes], INDEXES)
    check_names("encoders", [encoder.name for encoder in encoders], ENCODERS)
    check_names("query vectors", [each.kind for each in queries], QUERIES)
    own = {
        "own_indexes": {index.kind: index for index in indexes},
        "own_encoders": {encoder.name: encoder for encoder in encoders},
        "own_queries": {each.kind: each for each in queries},
    }
    return type("VectorSearcher", (VectorSearcher,), own)
