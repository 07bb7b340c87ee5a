"""A training task whose weights form a searcher, as validation by full ranking needs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from beamwood.training.budget import Clock
from beamwood.training.trainable import Trainable

__all__ = ["SearchedTask"]

Batch = TypeVar("Batch")


class SearchedTask(Trainable[Batch]):
    """A trainable whose weights form a searcher."""

    @abstractmethod
    def searcher(self) -> Any:
        """The searcher of the current weights."""

    def sample(self, clock: Clock) -> tuple[Any, float]:
        """A searcher that takes as long to search as `searcher()`, and the seconds that building one takes."""
        began = clock()
        return self.searcher(), clock() - began
