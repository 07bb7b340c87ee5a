"""Plain data that every room shares.

Shape legend: B rows of a batch, L history length, N items, k results asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError

__all__ = [
    "Askers",
    "BoolArray",
    "Estimator",
    "FloatArray",
    "Hits",
    "IndexArray",
    "ItemLists",
    "PersonalSearcher",
    "Searcher",
    "among",
    "context_columns",
    "is_personal",
    "needs_users",
]

IndexArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ItemLists:
    """One list of item indices a row, as compressed rows (CSR): histories, labels, items to exclude.

    `indptr` int64[B + 1] starts at 0 and never falls; row b is `items[indptr[b]:indptr[b + 1]]`, histories
    oldest first. `items` int32, each in [0, N). Raises `InputError` when the arrays do not fit together.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]

    def __post_init__(self) -> None:
        indptr = np.ascontiguousarray(self.indptr, dtype=np.int64)
        items = np.ascontiguousarray(self.items, dtype=np.int32)
        if indptr.ndim != 1 or len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(items):
            raise InputError(
                f"indptr must be one-dimensional, start at 0 and end at len(items)={len(items)}; "
                f"got shape {indptr.shape} ending at {indptr[-1:].tolist()}"
            )
        if np.any(np.diff(indptr) < 0):
            raise InputError("indptr must never fall; build the lists with ItemLists.from_lists")
        if len(items) and int(items.min()) < 0:
            raise InputError(f"item indices must be 0 or more; the smallest is {int(items.min())}")
        object.__setattr__(self, "indptr", indptr)
        object.__setattr__(self, "items", items)

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int] | IndexArray]) -> Self:
        """The lists of an iterable of sequences of item indices."""
        arrays = [np.asarray(row, dtype=np.int32) for row in rows]
        lengths = np.array([len(row) for row in arrays], dtype=np.int64)
        items = np.concatenate(arrays) if arrays else np.empty(0, np.int32)
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), items)

    @classmethod
    def empty(cls, num_rows: int) -> Self:
        """`num_rows` empty lists."""
        return cls(np.zeros(num_rows + 1, np.int64), np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        row %= len(self)
        return self.items[self.indptr[row] : self.indptr[row + 1]]

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """int64[B], the length of each list."""
        return np.diff(self.indptr)

    @property
    def rows(self) -> NDArray[np.int64]:
        """int64[nnz], the row of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.lengths)

    def take(self, rows: IndexArray) -> Self:
        """The lists of the given rows, in that order."""
        rows = np.asarray(rows, dtype=np.int64)
        return self.slices(self.indptr[rows], self.indptr[rows + 1])

    def slices(self, starts: IndexArray, stops: IndexArray) -> Self:
        """Lists `items[start:stop]` for each pair of absolute positions into `items`."""
        lengths = np.asarray(stops, np.int64) - np.asarray(starts, np.int64)
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        positions = np.arange(indptr[-1], dtype=np.int64) + np.repeat(starts - indptr[:-1], lengths)
        return type(self)(indptr, self.items[positions])

    def last(self, length: int) -> Self:
        """The last `length` entries of each list (all of a shorter one)."""
        starts = np.maximum(self.indptr[1:] - length, self.indptr[:-1])
        return self.slices(starts, self.indptr[1:])

    def padded(self, length: int) -> NDArray[np.int32]:
        """int32[B, length]: the last `length` entries of each list, padded on the left with -1."""
        recent = self.last(length)
        padded = np.full((len(self), length), -1, np.int32)
        position = np.arange(len(recent.items)) - np.repeat(recent.indptr[1:], recent.lengths)
        padded[recent.rows, length + position] = recent.items
        return padded

    def distinct(self) -> Self:
        """Each list without repeats, sorted by item index."""
        if len(self.items) == 0:
            return self
        width = np.int64(self.items.max()) + 1
        keys = np.unique(self.rows * width + self.items)
        counts = np.bincount(keys // width, minlength=len(self))
        return type(self)(np.concatenate([[0], np.cumsum(counts)]), (keys % width).astype(np.int32))

    def union(self, other: ItemLists) -> Self:
        """The items of both lists of each row, sorted by index, without repeats. Errors: another number of rows."""
        if len(other) != len(self):
            raise InputError(f"the lists have {len(self)} and {len(other)} rows; give one row each")
        rows = np.concatenate([self.rows, other.rows])
        order = np.argsort(rows, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(self)))])
        return type(self)(indptr, np.concatenate([self.items, other.items])[order]).distinct()

    @classmethod
    def concatenate(cls, parts: Sequence[ItemLists]) -> Self:
        """The rows of several `ItemLists`, one after the other."""
        lengths = np.concatenate([part.lengths for part in parts]) if parts else np.empty(0, np.int64)
        items = np.concatenate([part.items for part in parts]) if parts else np.empty(0, np.int32)
        return cls(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), items)


def among(items_BM: IndexArray, lists: ItemLists) -> BoolArray:
    """bool[B, M], true where an item is in its row's list; -1 (no item) never is."""
    if len(lists.items) == 0:
        return np.zeros(items_BM.shape, np.bool_)
    width = np.int64(max(int(items_BM.max(initial=-1)), int(lists.items.max())) + 1)
    known = np.unique(lists.rows * width + lists.items)
    asked = np.arange(len(items_BM), dtype=np.int64)[:, None] * width + items_BM
    place = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    found: BoolArray = (known[place] == asked) & (items_BM >= 0)
    return found


@dataclass(frozen=True, slots=True)
class Askers:
    """B askers: `users` int64[B] by index (-1 for an unknown one), `histories` one row each.

    `context`: a polars frame of one row each, the circumstances in which they ask, or None where nothing is known.
    """

    users: NDArray[np.int64]
    histories: ItemLists
    context: Any = None

    def __post_init__(self) -> None:
        if len(self.users) != len(self.histories):
            raise InputError(f"{len(self.users)} users and {len(self.histories)} histories; give one history a user")
        if self.context is not None and len(self.context) != len(self.users):
            raise InputError(
                f"the context has {len(self.context)} rows for {len(self.users)} askers; give one row each"
            )

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: IndexArray) -> Self:
        """The askers of the given rows."""
        rows = np.asarray(rows, np.int64)
        context = None if self.context is None else self.context[rows]
        return type(self)(self.users[rows], self.histories.take(rows), context)


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found, best first: score descending, ties by item index ascending.

    `items` int32[B, k], -1 where fewer than k items were allowed; `scores` float32[B, k], -inf there.
    `scored` int64[B], how many nodes or items were scored for each row.
    """

    items: NDArray[np.int32]
    scores: NDArray[np.float32]
    scored: NDArray[np.int64]


@runtime_checkable
class Estimator(Protocol):
    """Scores items by index: all that rectified labels ask of what they are estimated by. Every `Searcher` is one."""

    @property
    def num_items(self) -> int: ...

    def score(self, histories: ItemLists, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        ...


@runtime_checkable
class Searcher(Estimator, Protocol):
    """Finds items by index, without torch and without ids; `Retriever` puts ids and filters around it.

    `kind` names the class in an artefact; `export` gives a JSON-able configuration and plain arrays, from which
    `restore` builds an equal searcher.
    """

    kind: ClassVar[str]

    @property
    def num_items(self) -> int: ...

    def search(
        self,
        histories: ItemLists,
        k: int,
        *,
        excluded: ItemLists | None = None,
        allowed: BoolArray | None = None,
    ) -> Hits:
        """The k best items of each row, none of its `excluded` row, all with `allowed[item]` (bool[N])."""
        ...

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self: ...


@runtime_checkable
class PersonalSearcher(Searcher, Protocol):
    """A searcher that may have to know who asks: if `needs_users`, only `search_askers` and `score_askers` answer.

    `context_columns`: the columns of the askers' circumstances that it looks at, others are no matter to it.
    """

    @property
    def needs_users(self) -> bool: ...

    @property
    def context_columns(self) -> tuple[str, ...]: ...

    def search_askers(
        self,
        askers: Askers,
        k: int,
        *,
        excluded: ItemLists | None = None,
        allowed: BoolArray | None = None,
    ) -> Hits:
        """As `search`, for users and their histories."""
        ...

    def score_askers(self, askers: Askers, items_BM: IndexArray) -> NDArray[np.float32]:
        """As `score`."""
        ...


def is_personal(searcher: Searcher) -> bool:
    """Is this searcher to be asked with `Askers`, for who they are or for their circumstances?"""
    return needs_users(searcher) or bool(context_columns(searcher))


def context_columns(searcher: Estimator) -> tuple[str, ...]:
    """The columns of the askers' circumstances that this searcher looks at."""
    columns: tuple[str, ...] = getattr(searcher, "context_columns", ())
    return columns


def needs_users(searcher: Estimator) -> bool:
    """Must this searcher know who asks?"""
    return bool(getattr(searcher, "needs_users", False))
