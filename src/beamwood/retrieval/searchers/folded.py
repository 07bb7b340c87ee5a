"""Users of a graph: trained ones by their own vectors, all others folded in by their history.

Shape legend: B rows, N items, U users, D width.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_floats, shape_of
from beamwood.retrieval.search_checks import check_histories, check_users
from beamwood.retrieval.searchers.query_vectors import QueryKinds
from beamwood.retrieval.stored import StoredConfig
from beamwood.types import FloatArray, Query, QueryNeeds

__all__ = ["FoldedUsers"]


class FoldedUsers:
    """`1 / sqrt(n) sum of items[i]` over the n distinct items of a history; a known user has a row of `users`.

    `items` [N, D]: the contribution of an edge to each item; `users` [U, D]: zeros for a user without a vector. Without
    `users` all are folded in. Source: LightGCN's propagation to a user whose own vector is 0.
    """

    kind: ClassVar[str] = "folded"

    def __init__(self, items: FloatArray, users: FloatArray | None = None) -> None:
        num_items, width = shape_of({"items": items}, "items", 2)
        check_floats({"items": items}, {"items": (num_items, width)})
        self.items, self.users = np.ascontiguousarray(items, np.float32), None
        if users is not None:
            check_floats({"users": users}, {"users": (len(users), width)})
            self.users = np.ascontiguousarray(users, np.float32)

    @property
    def needs(self) -> QueryNeeds:
        """Users, where they have vectors; others are answered by history."""
        return (
            QueryNeeds() if self.users is None else QueryNeeds(users=True, num_users=len(self.users), or_history=True)
        )

    @property
    def shape(self) -> tuple[int | None, int]:
        return len(self.items), self.items.shape[1]

    def encode(self, query: Query) -> NDArray[np.float32]:
        """float32[B, D], zeros for an unknown user without a history."""
        check_histories(query.histories, len(self.items))
        each = query.histories.distinct()
        vectors = np.zeros((len(each), self.items.shape[1]), np.float32)
        for row, items in enumerate(each):
            self.items[items].sum(axis=0, out=vectors[row])
        vectors /= np.sqrt(np.maximum(each.lengths, 1)).astype(np.float32)[:, None]
        if self.users is None:
            return vectors
        users_B = np.asarray(query.users, np.int64)
        check_users(users_B, len(self.users))
        own = self.users[np.maximum(users_B, 0)]
        known = (users_B >= 0) & own.any(axis=1)
        return np.where(known[:, None], own, vectors)

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {}, {"items": self.items} | ({} if self.users is None else {"users": self.users})

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], known: QueryKinds) -> Self:  # noqa: ARG003
        StoredConfig.model_validate(config)
        others = sorted(set(arrays) - {"items", "users"})
        if others:
            raise ArtefactError(f"the array '{others[0]}' is not expected beside 'items' and 'users'")
        shape_of(arrays, "items", 2)
        if "users" in arrays:
            shape_of(arrays, "users", 2)
        return cls(arrays["items"], arrays.get("users"))
