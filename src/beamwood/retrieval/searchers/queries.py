"""Query vectors without torch: from a table of users, the mean of the history, or a sequence encoder.

Shape legend: B rows, L history length, N items, U users, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from beamwood.errors import ArtefactError, UnknownSearcherError, nearest
from beamwood.kernels.arrays import check_floats, linear_shapes, shape_of
from beamwood.kernels.din import MAX_HISTORY
from beamwood.models.ops import unit
from beamwood.models.plain_encoder import PlainEncoder
from beamwood.retrieval.search_checks import check_histories, check_users
from beamwood.retrieval.searchers.encoded import StoredEncoded
from beamwood.retrieval.searchers.folded import FoldedUsers
from beamwood.retrieval.searchers.query_vectors import Arrays, QueryKinds, QueryVectors
from beamwood.retrieval.stored import MOST, StoredConfig, StoredPart, exported_part
from beamwood.types import FloatArray, Query, QueryNeeds

__all__ = [
    "QUERIES",
    "EncodedHistory",
    "HistoryMean",
    "Scaled",
    "UserBranch",
    "UserVectors",
    "restore_queries",
]


class UserVectors:
    """`users` [U, D] by user: matrix factorisation; an unknown user gets the mean of all."""

    kind: ClassVar[str] = "users"

    def __init__(self, users: FloatArray) -> None:
        check_floats({"users": users}, {"users": shape_of({"users": users}, "users", 2)})
        self.users = np.ascontiguousarray(users, np.float32)

    @property
    def needs(self) -> QueryNeeds:
        return QueryNeeds(users=True, num_users=len(self.users))

    @property
    def shape(self) -> tuple[int | None, int]:
        return None, self.users.shape[1]

    def encode(self, query: Query) -> NDArray[np.float32]:
        """See `QueryVectors`."""
        users = np.asarray(query.users, np.int64)
        check_users(users, len(self.users))
        known = self.users[np.maximum(users, 0)]
        return np.where((users < 0)[:, None], self._mean, known) if (users < 0).any() else known

    @cached_property
    def _mean(self) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = self.users.mean(axis=0, keepdims=True)
        return mean

    def export(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {"users": self.users}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, known: QueryKinds) -> Self:  # noqa: ARG003
        StoredConfig.model_validate(config)
        return cls(_only(arrays, "users"))


class _StoredMean(StoredConfig):
    length: int = Field(ge=1, le=MAX_HISTORY)


class HistoryMean:
    """The mean of the rows of `items` [N, D] of a history's last `length` items."""

    kind: ClassVar[str] = "mean"
    needs: ClassVar[QueryNeeds] = QueryNeeds()

    def __init__(self, items: FloatArray, *, length: int = 69) -> None:
        check_floats({"history": items}, {"history": shape_of({"history": items}, "history", 2)})
        self.items, self.length = np.ascontiguousarray(items, np.float32), length

    @property
    def shape(self) -> tuple[int | None, int]:
        return len(self.items), self.items.shape[1]

    def encode(self, query: Query) -> NDArray[np.float32]:
        """See `QueryVectors`."""
        check_histories(query.histories, len(self.items))
        recent = query.histories.last(self.length)
        sums = np.zeros((len(recent), self.items.shape[1]), np.float32)
        np.add.at(sums, recent.rows, self.items[recent.items])
        counts: NDArray[np.float32] = np.maximum(recent.lengths, 1)[:, None].astype(np.float32)
        return np.divide(sums, counts)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        return {"length": self.length}, {"history": self.items}

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, known: QueryKinds) -> Self:  # noqa: ARG003
        return cls(_only(arrays, "history"), length=_StoredMean.model_validate(config).length)


@dataclass(frozen=True, slots=True)
class UserBranch:
    """Added to the vector h of a history of at most `longest` items: `W h + b`. Source: MELT."""

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    longest: int


class _StoredEncoder(StoredEncoded):
    user_branch: int | None = Field(ge=0, le=MOST)


class EncodedHistory:
    """A sequence encoder's vector of a history; `branch` (MELT's) corrects that of a short one."""

    kind: ClassVar[str] = "encoder"
    needs: ClassVar[QueryNeeds] = QueryNeeds()

    def __init__(self, encoder: PlainEncoder, branch: UserBranch | None = None) -> None:
        self.encoder, self.branch = encoder, branch

    @property
    def shape(self) -> tuple[int | None, int]:
        return self.encoder.num_items, self.encoder.width

    def encode(self, query: Query) -> NDArray[np.float32]:
        """See `QueryVectors`."""
        histories, branch = query.histories, self.branch
        check_histories(histories, self.encoder.num_items)
        vectors = self.encoder.encode(histories.padded(self.encoder.length))
        if branch is not None:
            short = (histories.lengths <= branch.longest) & (histories.lengths > 0)
            vectors[short] += vectors[short] @ branch.weight.T + branch.bias
        return vectors

    def export(self) -> tuple[dict[str, Any], Arrays]:
        config, arrays, branch = StoredEncoded.of(self.encoder), dict(self.encoder.arrays), self.branch
        if branch is None:
            return config | {"user_branch": None}, arrays
        own = {"user_branch.weight": branch.weight, "user_branch.bias": branch.bias}
        return config | {"user_branch": branch.longest}, arrays | own

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, known: QueryKinds) -> Self:
        stored, named = _StoredEncoder.model_validate(config), dict(arrays)
        branch, longest = None, stored.user_branch
        if longest is not None:
            width = shape_of(named, "items.weight", 2)[1]
            check_floats(named, linear_shapes("user_branch", width, width))
            branch = UserBranch(named.pop("user_branch.weight"), named.pop("user_branch.bias"), longest)
        return cls(stored.restored(named, known.encoders), branch)


class _StoredScale(StoredConfig):
    normalise: bool
    temperature: float = Field(gt=0)
    of: StoredPart


class Scaled:
    """The vectors of `of` divided by `temperature`, with `normalise` scaled to length 1 first."""

    kind: ClassVar[str] = "scaled"

    def __init__(self, of: QueryVectors, *, normalise: bool = False, temperature: float = 1.0) -> None:
        self.of, self.normalise, self.temperature = of, normalise, temperature

    @property
    def needs(self) -> QueryNeeds:
        return self.of.needs

    @property
    def shape(self) -> tuple[int | None, int]:
        return self.of.shape

    def encode(self, query: Query) -> NDArray[np.float32]:
        """See `QueryVectors`."""
        vectors = self.of.encode(query)
        if self.normalise:
            vectors = unit(vectors)
        return (vectors / np.float32(self.temperature)).astype(np.float32)

    def export(self) -> tuple[dict[str, Any], Arrays]:
        of, arrays = exported_part(self.of)
        return {"normalise": self.normalise, "temperature": self.temperature, "of": of}, arrays

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: Arrays, known: QueryKinds) -> Self:
        stored = _StoredScale.model_validate(config)
        of = restore_queries(stored.of, arrays, known)
        return cls(of, normalise=stored.normalise, temperature=stored.temperature)


QUERIES: dict[str, type[QueryVectors]] = {
    "users": UserVectors,
    "mean": HistoryMean,
    "encoder": EncodedHistory,
    "scaled": Scaled,
    "folded": FoldedUsers,
}


def restore_queries(stored: StoredPart, arrays: Arrays, known: QueryKinds) -> QueryVectors:
    """The query vectors from their `export`. Errors: an unknown kind, arrays that do not fit."""
    if stored.kind not in known.queries:
        raise UnknownSearcherError(
            f"query vectors of kind {stored.kind!r} are unknown{nearest(stored.kind, known.queries)}"
        )
    return known.queries[stored.kind].restore(stored.config, arrays, known)


def _only(arrays: Arrays, name: str) -> NDArray[Any]:
    """The only array. Errors: another one."""
    shape_of(arrays, name, 2)
    others = sorted(set(arrays) - {name})
    if others:
        raise ArtefactError(f"the array '{others[0]}' is not expected beside '{name}'")
    return arrays[name]
