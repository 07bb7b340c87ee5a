"""Plain data that all parts of the package share.

Shape legend: B rows of a batch, L history length, N items, k results asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kept import Kept, Prepared
from beamwood.ragged import indptr_of, is_in, ranges, sorted_distinct, whole_numbers

__all__ = [
    "BoolArray",
    "ContextColumn",
    "Estimator",
    "FloatArray",
    "Hits",
    "IndexArray",
    "ItemLists",
    "PartHits",
    "Query",
    "QueryNeeds",
    "SearchOptions",
    "Searcher",
    "among",
    "pairs_in",
]

_T = TypeVar("_T")
IndexArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ItemLists:
    """One list of item indices a row, as compressed rows (CSR): histories, labels, items to exclude.

    `indptr` int64[B + 1] starts at 0 and does not decrease; row b is `items[indptr[b]:indptr[b + 1]]`, histories
    oldest first. `items` int32, each in [0, N). Raises `InputError` when the arrays are inconsistent.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]

    def __post_init__(self) -> None:
        indptr, items = whole_numbers("indptr", self.indptr, np.int64), whole_numbers("items", self.items, np.int32)
        if indptr.ndim != 1 or items.ndim != 1 or len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != len(items):
            raise InputError(f"indptr must be 1-d, start at 0 and end at len(items)={len(items)}; got {indptr[-1:]}")
        if (indptr[1:] < indptr[:-1]).any() or items.min(initial=0) < 0:
            raise InputError("indptr must not decrease, items must be 0 or more; build them with ItemLists.from_lists")
        for name, array in (("indptr", indptr), ("items", items)):
            object.__setattr__(self, name, array)

    @classmethod
    def unchecked(cls, indptr: NDArray[np.int64], items: NDArray[np.int32]) -> Self:
        """Lists from contiguous int64 and int32 arrays that are known to be valid, or are checked later."""
        made = object.__new__(cls)
        for name, array in (("indptr", indptr), ("items", items)):
            object.__setattr__(made, name, array)
        return made

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int] | IndexArray]) -> Self:
        """Lists from an iterable of sequences of item indices."""
        arrays = [whole_numbers("items", row, np.int32) for row in rows]
        if any(array.ndim > 1 for array in arrays):
            raise InputError("a row is a table; give one list of item indices a row, as [[5, 9], [2]]")
        return cls(indptr_of([len(row) for row in arrays]), np.concatenate([np.empty(0, np.int32), *arrays]))

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
        one = len(rows) == 1
        return self._one(self[int(rows[0])]) if one else self.slices(self.indptr[rows], self.indptr[rows + 1])

    def _one(self, items: NDArray[np.int32]) -> Self:
        # Most requests have a single row, which needs no arithmetic over rows.
        return type(self).unchecked(np.array([0, len(items)], np.int64), items)

    def slices(self, starts: IndexArray, stops: IndexArray) -> Self:
        """Lists `items[start:stop]` for each pair of absolute positions into `items`."""
        lengths = np.asarray(stops, np.int64) - np.asarray(starts, np.int64)
        return type(self)(indptr_of(lengths), self.items[ranges(np.asarray(starts), lengths)])

    def keeping(self, kept: BoolArray) -> Self:
        """The lists reduced to the entries where `kept` bool[nnz] is true."""
        return type(self).unchecked(indptr_of(kept)[self.indptr], self.items[kept])

    def last(self, length: int) -> Self:
        """The last `length` entries of each list, or all of a shorter one."""
        if len(self) == 1:
            return self if len(self.items) <= length else self._one(self.items[-length:] if length else self.items[:0])
        starts = np.maximum(self.indptr[1:] - length, self.indptr[:-1])
        return self.slices(starts, self.indptr[1:])

    def padded(self, length: int) -> NDArray[np.int32]:
        """int32[B, length]: the last `length` entries of each list, padded on the left with -1."""
        recent = self.last(length)
        padded = np.full((len(self), length), -1, np.int32)
        if len(self) == 1:
            padded[0, length - len(recent.items) :] = recent.items
            return padded
        position = np.arange(len(recent.items)) - np.repeat(recent.indptr[1:], recent.lengths)
        padded[recent.rows, length + position] = recent.items
        return padded

    def distinct(self) -> Self:
        """Each list without repeats, sorted by item index."""
        if len(self.items) == 0:
            return self
        if len(self) == 1:
            return self._one(sorted_distinct(self.items))
        width = np.int64(self.items.max()) + 1
        keys = sorted_distinct(self.rows * width + self.items)
        counts = np.bincount(keys // width, minlength=len(self))
        return type(self)(indptr_of(counts), (keys % width).astype(np.int32))

    def union(self, other: ItemLists) -> Self:
        """The union of both lists of each row, sorted by index. Errors: different numbers of rows."""
        if len(other) != len(self):
            raise InputError(f"the lists have {len(self)} and {len(other)} rows; give one row each")
        if len(self) == 1:
            return self._one(sorted_distinct(np.concatenate([self.items, other.items])))
        order = np.argsort(np.concatenate([self.rows, other.rows]), kind="stable")
        indptr = self.indptr + other.indptr
        return type(self)(indptr, np.concatenate([self.items, other.items])[order]).distinct()

    @classmethod
    def concatenate(cls, parts: Sequence[ItemLists]) -> Self:
        """The rows of several `ItemLists`, one after the other."""
        lengths = np.concatenate([np.empty(0, np.int64), *(part.lengths for part in parts)])
        items = np.concatenate([np.empty(0, np.int32), *(part.items for part in parts)])
        return cls(indptr_of(lengths), items)


def among(items_BM: IndexArray, lists: ItemLists) -> BoolArray:
    """bool[B, M], true where an item is in its row's list; -1 (no item) never is. Errors: not one list a row."""
    items_BM = np.asarray(items_BM)
    if items_BM.ndim != 2 or len(items_BM) != len(lists):
        raise InputError(f"items of shape {items_BM.shape} and {len(lists)} lists; give a row of items for each list")
    return pairs_in(np.arange(len(items_BM))[:, None], items_BM, lists)


def pairs_in(rows: IndexArray, items: IndexArray, lists: ItemLists) -> BoolArray:
    """bool of the shape of `items`, true where an item is in the list of its row; -1 (no item) never is."""
    if len(lists.items) == 0:
        return np.zeros(items.shape, np.bool_)
    width = np.int64(max(int(items.max(initial=-1)), int(lists.items.max())) + 1)
    return is_in(rows.astype(np.int64) * width + items, lists.rows * width + lists.items) & (items >= 0)


class ContextColumn(Protocol):
    """A context column: its name in a frame, and how its values are encoded."""

    @property
    def name(self) -> str:
        """The column of a frame."""
        ...

    @property
    def key(self) -> str:
        """The key of its encoded values; two parts may encode one column differently."""
        ...

    def encode(self, values: Any | None, num_rows: int) -> NDArray[Any]:
        """[num_rows, ..], the encoded values of a polars series; None: all missing. Errors: values of another type."""
        ...

    def unseen(self, text: str) -> str | None:
        """A note where the text holds values that training did not have, which count as missing; else None."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """B rows to answer: `users` int64[B], by index (-1: unknown), and one history each.

    `context`: encoded values by column key, one row each; None or an absent key means missing values.
    """

    users: NDArray[np.int64]
    histories: ItemLists
    context: Mapping[str, NDArray[Any]] | None = None
    _kept: Kept = field(default_factory=Kept, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.users) != len(self.histories):
            raise InputError(f"{len(self.users)} users and {len(self.histories)} histories; give one history a user")
        for key, values in (self.context or {}).items():
            if len(values) != len(self):
                raise InputError(f"the context '{key}' has {len(values)} rows for {len(self)} users; give one row each")

    @classmethod
    def of(cls, histories: ItemLists) -> Self:
        """A query of histories alone, with unknown users."""
        return cls(np.full(len(histories), -1, np.int64), histories)

    def __len__(self) -> int:
        return len(self.users)

    def take(self, rows: IndexArray) -> Self:
        """The query of the given rows."""
        rows = np.asarray(rows, np.int64)
        context = None if self.context is None else {key: values[rows] for key, values in self.context.items()}
        return type(self)(self.users[rows], self.histories.take(rows), context)

    def once(self, owner: object, make: Callable[[], _T]) -> _T:
        """The cached result of `make` for this query and owner, so that each encoder runs once a query."""
        return self._kept.once(owner, make)


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """Exclusions, filter, effort and explanation of one search.

    `excluded`: a list of items a row; `allowed` bool[N], for all rows; `effort`: of a tree's search, 0 (cheapest way)
    to 1 (full beam), instead of the way chosen at the fit; `beam_width`: of a full beam; `explain`: fill `Hits.parts`;
    `prepared`: a cache for this `allowed`, shared by searches; `num_exact`: how many of the results have to be
    the best (None: all); a tree may fill the rest with others.
    """

    excluded: ItemLists | None = None
    allowed: BoolArray | None = None
    beam_width: int | None = None
    explain: bool = False
    effort: float | None = None
    prepared: Prepared | None = None
    num_exact: int | None = None

    def take(self, rows: IndexArray) -> Self:
        """The options of the given rows."""
        return self if self.excluded is None else replace(self, excluded=self.excluded.take(rows))

    def of_filter(self, owner: object, make: Callable[[BoolArray], _T]) -> _T:
        """The result of `make(allowed)`, cached in `prepared` where that belongs to the same filter."""
        assert self.allowed is not None
        mask, kept = self.allowed, self.prepared
        return make(mask) if kept is None or kept.mask is not mask else kept.once(owner, lambda: make(mask))

    @property
    def num_allowed(self) -> int:
        """How many items `allowed` allows, counted once for a `prepared` filter."""
        return self.of_filter(_num_true, _num_true)


def _num_true(mask: BoolArray) -> int:
    return int(np.count_nonzero(mask))


@dataclass(frozen=True, slots=True)
class QueryNeeds:
    """What a searcher reads besides histories.

    `users`: it needs user indices below `num_users` (None: it does not say), or -1 for an unknown user; `context`: the
    columns that it reads; `or_history`: an unknown user is answered by the history alone.
    """

    users: bool = False
    num_users: int | None = None
    context: tuple[ContextColumn, ...] = ()
    or_history: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, each once."""
        return tuple(dict.fromkeys(column.name for column in self.context))

    @property
    def users_alone(self) -> bool:
        """Whether it answers known users only, and no history alone."""
        return self.users and not self.or_history

    @classmethod
    def joined(cls, parts: Iterable[QueryNeeds]) -> Self:
        """The needs of all parts together, for users that each part knows."""
        needs = list(parts)
        columns = {column.key: column for each in needs for column in each.context}
        num_users = min((each.num_users for each in needs if each.users and each.num_users is not None), default=None)
        users, alone = any(each.users for each in needs), any(each.users_alone for each in needs)
        return cls(users, num_users, tuple(columns.values()), users and not alone)


@dataclass(frozen=True, slots=True)
class PartHits:
    """The result of one part of a searcher: its `hits` in its own order, and its seconds."""

    hits: Hits
    seconds: float


@dataclass(frozen=True, slots=True)
class Hits:
    """The results of a search, best first: score descending, ties by item index ascending.

    `items` int32[B, k], -1 where fewer than k items were allowed; `scores` float32[B, k], -inf there.
    `scored` int64[B], the number of nodes or items scored for each row. `parts`: with `SearchOptions.explain` the
    results of each part of the searcher, first the one that finds candidates; else empty. `rank_seconds`: those that
    the parts after the first took.
    """

    items: NDArray[np.int32]
    scores: NDArray[np.float32]
    scored: NDArray[np.int64]
    parts: tuple[PartHits, ...] = ()
    rank_seconds: float = 0.0


@runtime_checkable
class Estimator(Protocol):
    """Scores items by index, as rectified labels need it. Every `Searcher` is one."""

    @property
    def num_items(self) -> int: ...

    def score(self, query: Query, items_BM: IndexArray) -> NDArray[np.float32]:
        """float32[B, M], the score of each given item; -inf where the item index is -1."""
        ...


@runtime_checkable
class Searcher(Estimator, Protocol):
    """Finds items by index, without torch and without ids; `Retriever` adds ids and filters.

    `kind` names the class in an artefact; `export` returns a JSON-able configuration and plain arrays, from which
    `restore` builds an equal searcher. `threads`: rows searched at once, over all callers together.
    """

    kind: ClassVar[str]

    @property
    def needs(self) -> QueryNeeds:
        """What it reads besides histories."""
        ...

    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits:
        """The k best items of each row, without its row of `options.excluded`, within `options.allowed`."""
        ...

    def export(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]: ...

    @classmethod
    def restore(cls, config: dict[str, Any], arrays: dict[str, NDArray[Any]], *, threads: int = 1) -> Self: ...
