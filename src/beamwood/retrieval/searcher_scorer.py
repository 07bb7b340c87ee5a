"""Any fitted retriever as the second of two stages: its own scores of what the first brings.

Shape legend: B rows, M items a row, D width.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.retrieval.load import restore_searcher
from beamwood.retrieval.stored import StoredConfig
from beamwood.types import ItemLists, Query, Searcher

__all__ = ["SearcherScorer", "StoredStage"]


class StoredStage(StoredConfig):
    """A searcher within another's configuration."""

    kind: str
    config: dict[str, Any]


class _Stored(StoredConfig):
    kind: str
    searcher: StoredStage


class SearcherScorer:
    """The scores of a searcher, as a `scorers.PairScorer`; it looks at no context."""

    kind: ClassVar[str] = "searcher"
    width: ClassVar[int] = 1

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self.config: dict[str, Any] = {}
        self.arrays: dict[str, NDArray[Any]] = {}

    @property
    def needs_users(self) -> bool:
        return self.searcher.needs.users

    @property
    def num_items(self) -> int:
        return self.searcher.num_items

    @property
    def num_users(self) -> int:
        """U, 0 where the searcher knows no users."""
        return self.searcher.needs.num_users

    def score(
        self,
        users_B: NDArray[np.int64],
        histories: ItemLists,
        items_BM: NDArray[np.int64],
        context_BD: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """See `scorers.PairScorer`."""
        del context_BD
        return self.searcher.score(Query(users_B, histories), items_BM)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        config, arrays = self.searcher.export()
        return {"kind": self.kind, "searcher": {"kind": self.searcher.kind, "config": config}}, arrays

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        stored = _Stored.model_validate(config)
        return cls(restore_searcher(stored.searcher.kind, stored.searcher.config, arrays))
