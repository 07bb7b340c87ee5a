"""The first part of many blends: its searches for validation users are made once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from beamwood.data.split import Split
from beamwood.fitting.ranking.settings import StagesConfig
from beamwood.fitting.stages import FirstStage
from beamwood.recipes.portfolio.validation import Validation
from beamwood.retrieval.retriever import Retriever
from beamwood.retrieval.searchers.blend import Blend
from beamwood.training.budget import Budget
from beamwood.types import Hits, IndexArray, Query, QueryNeeds, Searcher, SearchOptions

__all__ = ["FirstPart", "Remembered"]

# The most validation users on whom the weights of a blend are chosen; all of them measure it.
_CHOOSING = 4000


class FirstPart:
    """A fitted retriever as the first part of blends: weights are chosen behind it, and the blends are measured.

    `names`: of its own parts.
    """

    def __init__(
        self, names: tuple[str, ...], fitted: Retriever, split: Split, validation: Validation, *, seed: int
    ) -> None:
        choose = {"validation_users": min(len(validation), _CHOOSING), "monitor": validation.monitor}
        self.names = names
        self._stage = FirstStage(fitted, split, StagesConfig.model_validate({"choose": choose}), seed=seed)
        self._remembered = Remembered(fitted.searcher)

    @property
    def is_searched(self) -> bool:
        """Whether its searches for measuring were made."""
        return len(self._remembered) > 0

    def behind(self, second: Retriever, budget: Budget) -> Retriever:
        """The blend of both with the best weights; see `FirstStage.behind`."""
        return self._stage.behind(second, budget)

    def measured(self, blend: Retriever) -> Searcher:
        """The searcher of a blend made by `behind`, for measuring: the first part's searches are made once."""
        searcher = blend.searcher
        assert isinstance(searcher, Blend)
        first, *others = searcher.parts
        return replace(searcher, parts=[replace(first, searcher=cast(Searcher, self._remembered)), *others])


class Remembered:
    """A searcher whose equal searches are made once. It is for measuring, and is not saved."""

    def __init__(self, searcher: Searcher) -> None:
        self.searcher = searcher
        self._found: dict[bytes, Hits] = {}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def num_items(self) -> int:
        """N."""
        return self.searcher.num_items

    @property
    def needs(self) -> QueryNeeds:
        """The needs of the searcher."""
        return self.searcher.needs

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """See `types.Searcher`; answers are shared, so their arrays must not be changed."""
        key = self._key(query, k, options)
        if key not in self._found:
            self._found[key] = self.searcher.search(query, k, options)
        return self._found[key]

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """See `types.Searcher`."""
        return self.searcher.score(query, items_BM)

    def _key(self, query: Query, k: int, options: SearchOptions) -> bytes:
        plain = (k, options.beam_width, options.effort, options.num_exact, options.explain)
        made = hashlib.blake2b(repr(plain).encode())
        for array in self._arrays(query, options):
            made.update(f"{array.dtype} {array.shape}".encode())
            made.update(np.ascontiguousarray(array).data)
        return made.digest()

    def _arrays(self, query: Query, options: SearchOptions) -> Iterator[NDArray[Any]]:
        yield query.users
        for lists in (query.histories, options.excluded):
            if lists is not None:
                yield from (lists.indptr, lists.items)
        context = query.context or {}
        yield from (context[column.key] for column in self.needs.context if column.key in context)
        if options.allowed is not None:
            yield options.allowed
