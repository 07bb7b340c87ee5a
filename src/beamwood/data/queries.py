"""Test and validation queries of a split."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.features import encode_context
from beamwood.errors import InputError
from beamwood.ragged import whole_numbers
from beamwood.types import IndexArray, ItemLists, Query, QueryNeeds, pairs_in
from beamwood.words import counted

__all__ = ["Queries"]


@dataclass(frozen=True)
class Queries:
    """Q test or validation queries: `users` int64[Q], their `histories`, and the distinct `labels` to find.

    `seen`: the items that the view "seen items removed" excludes. `context`: where the log has context columns, one row
    a query, that of its first label.
    """

    users: NDArray[np.int64]
    histories: ItemLists
    labels: ItemLists
    seen: ItemLists
    context: pl.DataFrame | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "users", whole_numbers("users", self.users, np.int64))
        lists = {"histories": self.histories, "labels": self.labels, "seen": self.seen}
        for name, rows in (lists | {"context": self.context}).items():
            if name in lists and not isinstance(rows, ItemLists):
                raise InputError(f"{name} is no ItemLists; make them with ItemLists.from_lists(rows), of item indices")
            if rows is not None and len(rows) != len(self):
                raise InputError(f"{len(self)} users and {len(rows)} rows of {name}; give one row of {name} a user")

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"Queries of {counted(len(self), 'user')} with {counted(len(self.labels.items), 'label')}"

    def query(self, needs: QueryNeeds) -> Query:
        """The query for a searcher with these needs, with its context columns encoded."""
        return Query(self.users, self.histories, encode_context(needs.context, self.context, len(self)))

    @property
    def labels_seen(self) -> int:
        """The number of labels that their query has seen, which the view "seen items removed" cannot find."""
        return int(pairs_in(self.labels.rows, self.labels.items, self.seen).sum())

    def labels_outside(self, histories: ItemLists) -> int:
        """The number of labels whose item is in none of the histories, such as those that train."""
        return int(np.isin(self.labels.items, np.unique(histories.items), invert=True).sum())

    def take(self, rows: IndexArray) -> Self:
        """The queries of the given rows."""
        rows = np.asarray(rows, np.int64)
        return replace(
            self,
            users=self.users[rows],
            histories=self.histories.take(rows),
            labels=self.labels.take(rows),
            seen=self.seen.take(rows),
            context=None if self.context is None else self.context[rows],
        )

    def labelled(self) -> Self:
        """The queries that have labels, in their order."""
        return self.take(np.flatnonzero(self.labels.lengths > 0))

    def sample(self, num: int, *, seed: int) -> Self:
        """At most `num` random queries, in their order."""
        return self.take(np.sort(np.random.default_rng(seed).permutation(len(self))[:num]))
