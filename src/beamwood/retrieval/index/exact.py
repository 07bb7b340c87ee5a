"""Exact search: all items are scored, at a cost proportional to the catalogue."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from numpy.typing import NDArray

from beamwood.retrieval.index.contract import IndexInputs, IndexSettings, own_settings
from beamwood.retrieval.products import best_products
from beamwood.retrieval.stored import StoredConfig
from beamwood.types import FloatArray, Hits, SearchOptions

__all__ = ["ExactIndex"]


class ExactIndex:
    """`best_products` of the vectors; without state or settings."""

    kind: ClassVar[str] = "exact"
    Settings: ClassVar[type[IndexSettings]] = IndexSettings
    modules: ClassVar[tuple[str, ...]] = ()
    trains: ClassVar[bool] = False

    def __init__(
        self,
        vectors_ND: FloatArray,
        settings: IndexSettings | None = None,
        inputs: IndexInputs = IndexInputs(),  # noqa: ARG002
    ) -> None:
        own_settings(IndexSettings, settings)
        self.vectors = vectors_ND

    def search(self, queries_BD: FloatArray, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best of each row."""
        return best_products(queries_BD, self.vectors, k, excluded=options.excluded, allowed=options.allowed)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {}

    @classmethod
    def restore(cls, vectors_ND: FloatArray, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:  # noqa: ARG003
        StoredConfig.model_validate(config)
        return cls(vectors_ND)
