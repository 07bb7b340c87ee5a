"""Search with two towers from saved vectors, without torch: items are stored, users looked up or put together.

Shape legend: B rows, N items, U users, D width, M items a row, k results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, InputError
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.encoders import ENCODERS, EncoderName
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.ann import FaissIndex
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

__all__ = ["TwoTowerSearcher", "UserTower"]

if TYPE_CHECKING:
    UserTower = str
else:
    UserTower = Literal["mf", "mean", EncoderName]


class _Stored(StoredConfig):
    tower: UserTower
    normalise: bool
    temperature: float = Field(gt=0)
    length: int = Field(ge=1, le=MAX_HISTORY)
    sizes: dict[str, int]
    index: Literal["exact", "faiss"] = "exact"
    repeat_weight: float = Field(0.0, ge=-MOST, le=MOST)


class TwoTowerSearcher:
    """The k items of the largest inner product with the user's vector, all items scored, or found by faiss.

    `vectors` [N, D]. The user's vector by `tower`: "mf": `arrays["users"]` [U, D], by who asks; "mean":
    the mean of the history's rows of `arrays["history"]` [N, D]; a sequence encoder's name: that encoder's. It is
    divided by `temperature`, and with `normalise` made of length 1 before. `repeat_weight` is added to the score of
    what the history holds, as in `SequenceSearcher`.
    """

    kind: ClassVar[str] = "two-tower"

    def __init__(
        self,
        vectors: FloatArray,
        arrays: dict[str, NDArray[Any]],
        *,
        tower: UserTower,
        normalise: bool = False,
        temperature: float = 1.0,
        length: int = 69,
        sizes: Mapping[str, int] | None = None,
        index: Literal["exact", "faiss"] = "exact",
        repeat_weight: float = 0.0,
    ) -> None:
        check_floats({"vectors": vectors}, {"vectors": shape_of({"vectors": vectors}, "vectors", 2)})
        self.vectors = np.ascontiguousarray(vectors, np.float32)
        if tower == "mf":
            check_floats(arrays, {"users": (shape_of(arrays, "users", 2)[0], self.vectors.shape[1])})
        elif tower == "mean":
            check_floats(arrays, {"history": self.vectors.shape})
        self.arrays = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
        self.tower, self.normalise, self.temperature = tower, normalise, temperature
        self.length, self.index = length, index
        self.encoder = None
        if tower in ENCODERS:
            self.encoder = PlainEncoder(ENCODERS[tower], self.arrays, sizes or {}, length=length)
        if self.encoder is not None and self.encoder.vectors.shape != self.vectors.shape:
            raise ArtefactError(
                f"the encoder's items have shape {self.encoder.vectors.shape}, those searched {self.vectors.shape}"
            )
        self._ann = FaissIndex(self.vectors) if index == "faiss" else None
        self.repeat_weight = check_repeat_weight(repeat_weight)

    @property
    def num_items(self) -> int:
        return len(self.vectors)

    @property
    def needs(self) -> Needs:
        """Users, of matrix factorisation; else nothing."""
        return Needs(users=True, num_users=len(self.arrays["users"])) if self.tower == "mf" else Needs()

    def encode(self, query: Query) -> NDArray[np.float32]:
        """float32[B, D], the vector of each user, or of each history; an unknown user has the mean of all users'."""
        if self.tower == "mf":
            return query.once(self, lambda: self._of_users(query.users))
        return query.once(self, lambda: self._of_histories(query.histories))

    def _of_users(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        table = self.arrays["users"]
        users = np.asarray(users, np.int64)
        if users.size and (users.max() >= len(table) or users.min() < -1):
            raise InputError(f"users holds an index outside -1..{len(table) - 1}")
        raw = np.where((users < 0)[:, None], table.mean(axis=0, keepdims=True), table[np.maximum(users, 0)])
        return self._scaled(raw)

    def _of_histories(self, histories: ItemLists) -> NDArray[np.float32]:
        if len(histories.items) and int(histories.items.max()) >= self.num_items:
            raise InputError(f"a history holds item index {int(histories.items.max())} of {self.num_items} items")
        if self.encoder is not None:
            return self._scaled(self.encoder.encode(histories.padded(self.length)))
        recent = histories.last(self.length)
        sums = np.zeros((len(recent), self.vectors.shape[1]), np.float32)
        np.add.at(sums, recent.rows, self.arrays["history"][recent.items])
        counts: NDArray[np.float32] = np.maximum(recent.lengths, 1)[:, None].astype(np.float32)
        return self._scaled(np.divide(sums, counts))

    def _scaled(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.normalise:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return (vectors / np.float32(self.temperature)).astype(np.float32)

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row; see `types.Searcher`."""
        return search_with_repeats(
            self._best,
            self.encode(query),
            self.vectors,
            query.histories,
            k,
            options,
            repeat_weight=self.repeat_weight,
        )

    def apart(self, query: Query, k: int) -> Apart:
        """The k best of what a history does not hold, and all that it does, without `repeat_weight`."""
        return find_apart(self._best, self.encode(query), self.vectors, query.histories, k)

    def _best(self, queries_BD: FloatArray, k: int, options: SearchOptions) -> Hits:
        if self._ann is not None:
            return self._ann.search(queries_BD, k, excluded=options.excluded, allowed=options.allowed)
        return best_products(queries_BD, self.vectors, k, excluded=options.excluded, allowed=options.allowed)

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        return scores_with_repeats(
            self.encode(query), self.vectors, query.histories, items_BM, repeat_weight=self.repeat_weight
        )

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        config = {
            "tower": self.tower,
            "normalise": self.normalise,
            "temperature": self.temperature,
            "length": self.length,
            "sizes": {} if self.encoder is None else self.encoder.sizes,
            "index": self.index,
            "repeat_weight": self.repeat_weight,
        }
        return config, {"vectors": self.vectors} | {f"user.{name}": array for name, array in self.arrays.items()}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        user = {name.removeprefix("user."): array for name, array in arrays.items() if name.startswith("user.")}
        return cls(arrays["vectors"], user, **dict(_Stored.model_validate(config)))
