"""Search with any sequence encoder: a history becomes a vector, every item is scored by inner product; without torch.

Shape legend: B rows, N items, D width, M items a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, InputError, nearest
from beamwood.kernels.arrays import check_floats, linear_shapes
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.encoder import Encoder
from beamwood.models.encoders import ENCODERS
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.apart import (
    Apart,
    check_repeat_weight,
    find_apart,
    scores_with_repeats,
    search_with_repeats,
)
from beamwood.retrieval.stored import MOST, StoredConfig
from beamwood.retrieval.vector import best_products
from beamwood.types import FloatArray, Hits, IndexArray, ItemLists, Needs, Query, SearchOptions

__all__ = ["SequenceSearcher", "UserBranch"]


@dataclass(frozen=True, slots=True)
class UserBranch:
    """What is added to the vector h of a history of at most `longest` items: `W h + b`. Source: MELT."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    longest: int


class _Stored(StoredConfig):
    encoder: str
    user_branch: int | None = Field(None, ge=0, le=MOST)
    repeat_weight: float = Field(0.0, ge=-MOST, le=MOST)
    length: int = Field(ge=1, le=MAX_HISTORY)
    sizes: dict[str, int]


class SequenceSearcher:
    """The k items whose vectors have the largest inner product with the encoded history, all items scored.

    `repeat_weight` is added to the score of what the history holds: an item lies nearest to itself, whether or not
    what was had is wanted again, and vectors alone hardly learn which.
    """

    kind: ClassVar[str] = "sequence"
    needs: ClassVar[Needs] = Needs()

    def __init__(
        self, encoder: PlainEncoder, user_branch: UserBranch | None = None, *, repeat_weight: float = 0.0
    ) -> None:
        self.encoder, self.user_branch = encoder, user_branch
        self.repeat_weight = check_repeat_weight(repeat_weight)

    @property
    def num_items(self) -> int:
        return len(self.encoder.vectors)

    @property
    def vectors(self) -> NDArray[np.float32]:
        """float32[N, D], what a history's vector is multiplied with."""
        return self.encoder.vectors

    def encode(self, query: Query) -> NDArray[np.float32]:
        """float32[B, D], the vector of each history; zeros for an empty one."""
        return query.once(self, lambda: self._encode(query.histories))

    def _encode(self, histories: ItemLists) -> NDArray[np.float32]:
        if len(histories.items) and int(histories.items.max()) >= self.num_items:
            raise InputError(f"a history holds item index {int(histories.items.max())} of {self.num_items} items")
        vectors = self.encoder.encode(histories.padded(self.encoder.length))
        branch = self.user_branch
        if branch is not None:
            short = (histories.lengths <= branch.longest) & (histories.lengths > 0)
            vectors[short] += vectors[short] @ branch.weight.T + branch.bias
        return vectors

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row by brute force; see `types.Searcher`."""
        return search_with_repeats(
            self._best,
            self.encode(query),
            self.encoder.vectors,
            query.histories,
            k,
            options,
            repeat_weight=self.repeat_weight,
        )

    def apart(self, query: Query, k: int) -> Apart:
        """The k best of what a history does not hold, and all that it does, without `repeat_weight`."""
        return find_apart(self._best, self.encode(query), self.encoder.vectors, query.histories, k)

    def _best(self, queries_BD: FloatArray, k: int, options: SearchOptions) -> Hits:
        return best_products(queries_BD, self.encoder.vectors, k, excluded=options.excluded, allowed=options.allowed)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        return scores_with_repeats(
            self.encode(query), self.encoder.vectors, query.histories, items_BM, repeat_weight=self.repeat_weight
        )

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        arrays: dict[str, NDArray[Any]] = dict(self.encoder.arrays)
        config: dict[str, Any] = {"encoder": self.encoder.name, "length": self.encoder.length}
        config["sizes"] = self.encoder.sizes
        # `vectors` are those that are searched, whatever the encoder reads.
        arrays["vectors"] = arrays.pop("outputs.weight" if "outputs.weight" in arrays else "items.weight")
        config["repeat_weight"] = self.repeat_weight
        if self.user_branch is not None:
            config["user_branch"] = self.user_branch.longest
            arrays |= {"user_branch.weight": self.user_branch.weight, "user_branch.bias": self.user_branch.bias}
        return config, arrays

    @classmethod
    def restore(
        cls,
        config: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        encoders: Mapping[str, Encoder] = ENCODERS,
    ) -> Self:
        settings, named = _Stored.model_validate(config), dict(arrays)
        name, longest = settings.encoder, settings.user_branch
        if name not in encoders:
            raise ArtefactError(f"encoder '{name}' is unknown{nearest(name, encoders)}; a newer beamwood wrote it?")
        named["outputs.weight" if "items.weight" in named else "items.weight"] = named.pop("vectors")
        branch = None
        if longest is not None:
            width = named["items.weight"].shape[1]
            check_floats(named, linear_shapes("user_branch", width, width))
            branch = UserBranch(named.pop("user_branch.weight"), named.pop("user_branch.bias"), longest)
        encoder = PlainEncoder(encoders[name], named, settings.sizes, length=settings.length)
        return cls(encoder, branch, repeat_weight=settings.repeat_weight)
