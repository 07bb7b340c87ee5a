"""From the ids of a request to a query by index: the only place where a request is checked against a retriever."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.features import encode_context
from beamwood.data.vocabularies.vocabulary import Vocabulary, has_unknown
from beamwood.errors import InputError, UnknownIdError, nearest
from beamwood.ragged import indptr_of
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.request import Ids, Request, as_list
from beamwood.types import BoolArray, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = ["Names", "of_users", "rows_of_ids"]

_ONE = np.full(1, -1, np.int64)
_ONE.setflags(write=False)


@dataclass(frozen=True, slots=True)
class Names:
    """The meaning of ids and filters: the catalogue, its columns, and known users (None where none are stored).

    `erased`: items removed from every known user's history. `rejected`: the items with a negative last event of each
    user.
    """

    items: Vocabulary
    filters: Filters
    users: Vocabulary | None = None
    histories: ItemLists | None = None
    erased: BoolArray | None = None
    rejected: ItemLists | None = None

    def resolve(self, request: Request, needs: QueryNeeds) -> tuple[Query, int, SearchOptions]:
        """The query of a request for a searcher with these needs, k, and the options of its search.

        Errors: any part of the request that does not fit the retriever.
        """
        if needs.users_alone and request.users is None:
            raise InputError(
                "this retriever knows users, not histories alone (by a vector or columns of each); give users, with "
                "on_unknown='ignore' also unknown ones"
            )
        if request.histories is None:
            users = self._rows(request.users, request.on_unknown, needs)
            histories = self._kept(users)
        else:
            histories = self.known(request.histories, on_unknown=request.on_unknown)
            given = self.users is not None and request.users is not None
            users = self._rows(request.users, request.on_unknown, needs) if given else _nobody(len(histories))
        k = self.checked_k(request.k)
        filtered = self.filters.prepared(request.allowed, request.where, on_unknown=request.on_unknown)
        frame = None if request.context is None else _context_frame(request.context, needs, len(histories))
        query = Query(users, histories, encode_context(needs.context, frame, len(histories)))
        excluded = histories if request.seen == "remove" else None
        if request.exclude is not None:
            banned = self.items.encode(as_list("exclude", request.exclude), on_unknown=request.on_unknown)
            each = ItemLists.from_lists([banned[banned >= 0]] * len(histories))
            excluded = each.distinct() if excluded is None else excluded.union(each)
        if request.rejected == "remove":
            unwanted = self._rejected_by(users)
            excluded = unwanted if excluded is None else excluded.union(unwanted)
        allowed = None if filtered is None else filtered.mask
        return query, k, SearchOptions(excluded, allowed, request.beam_width, effort=request.effort, prepared=filtered)

    def known(
        self,
        histories: ItemLists | Sequence[Ids] | None,
        users: Ids | None = None,
        *,
        on_unknown: str = "error",
    ) -> ItemLists:
        """Histories by item index, of given lists of ids or of known users."""
        if isinstance(histories, ItemLists):
            return histories
        if histories is not None:
            given = rows_of_ids("histories", histories)
            if len(given) == 1:
                one = self.items.encode(given[0], on_unknown=on_unknown)
                one = one if on_unknown == "error" else one[one >= 0]
                return ItemLists.unchecked(np.array([0, len(one)], np.int64), one)
            flat = self.items.encode([item for row in given for item in row], on_unknown=on_unknown)
            lengths = np.array([len(row) for row in given], np.int64)
            if on_unknown != "error":
                rows = np.repeat(np.arange(len(given)), lengths)[flat >= 0]
                flat, lengths = flat[flat >= 0], np.bincount(rows, minlength=len(given))
            return ItemLists.unchecked(indptr_of(lengths), flat)
        return self._kept(self._rows(users, on_unknown, QueryNeeds()))

    def _rows(self, users: Ids | None, on_unknown: str, needs: QueryNeeds) -> NDArray[np.int64]:
        """int64[B], the row of each user, -1 for an unknown one."""
        if self.users is None:
            raise _keeps_no_users()
        if isinstance(users, Set | Mapping):
            raise InputError(f"users is a {type(users).__name__}, which has no order; give a list, one user a row")
        with of_users(needs):
            return self.users.encode(as_list("users", users), on_unknown=on_unknown).astype(np.int64)

    def history_of(self, row: int) -> NDArray[np.int32]:
        """int32[L], the stored items of a user's row, without erased ones."""
        assert self.histories is not None
        own = self.histories[row]
        return own if self.erased is None else own[~self.erased[own]]

    def _kept(self, rows: NDArray[np.int64]) -> ItemLists:
        """The stored histories of these rows; empty for -1."""
        if self.histories is None:
            raise _keeps_no_users()
        return self._alive(self.histories, rows)

    def check_rejected(self) -> None:
        """Errors: no negative events are stored."""
        if self.rejected is None:
            stored = "" if self.users is not None else " and without --without-histories"
            raise InputError(
                "this retriever stores no negative events, so none can be left out; fit it with --negative-events"
                f"{stored}, in Python read_log(negative_events=[...])"
            )

    def rejected_of(self, users: Ids, *, on_unknown: str) -> ItemLists:
        """The items with a negative last event of each user id; empty for unknown ones."""
        return self._rejected_by(self._rows(users, on_unknown, QueryNeeds()))

    def _rejected_by(self, users: NDArray[np.int64]) -> ItemLists:
        """The items with a negative last event of each user; empty for unknown ones."""
        self.check_rejected()
        assert self.rejected is not None
        return self._alive(self.rejected, users)

    def _alive(self, lists: ItemLists, rows: NDArray[np.int64]) -> ItemLists:
        """The lists of these rows without erased items; empty for -1."""
        if has_unknown(rows):
            known = rows >= 0
            # An unknown user has an empty slice.
            within = np.where(known, rows, 0)
            starts = lists.indptr[within]
            lists = lists.slices(starts, np.where(known, lists.indptr[within + 1], starts))
        else:
            lists = lists.take(rows)
        return lists if self.erased is None else lists.keeping(~self.erased[lists.items])

    def checked_k(self, k: Any) -> int:
        """k as an int. Errors: another type, or outside 1..N."""
        try:
            number = None if isinstance(k, bool) else operator.index(k)
        except TypeError:
            number = None
        if number is None:
            raise InputError(f"k={k!r} is not a whole number; give one of 1..{len(self.items)}, such as k=10")
        if not 1 <= number <= len(self.items):
            raise InputError(f"k={k} is outside 1..{len(self.items)}, the number of items")
        return number


def _nobody(num_rows: int) -> NDArray[np.int64]:
    """int64[B], -1: unknown users."""
    return _ONE if num_rows == 1 else np.full(num_rows, -1, np.int64)


def _keeps_no_users() -> InputError:
    return InputError("this artefact keeps no users; give histories, or fit with users kept")


@contextmanager
def of_users(needs: QueryNeeds) -> Iterator[None]:
    """A context in which an unknown id is a user's, so that the error says how to ask for new users, if possible."""
    try:
        yield
    except UnknownIdError as error:
        new = "" if needs.users_alone else ", or give the histories of new users"
        raise UnknownIdError(f"users: {error}{new}") from None


def rows_of_ids(name: str, rows: Any) -> list[list[Any]]:
    """A list for each row. Errors: a row that is a single id, as in a flat list, or without an order, as a set."""
    # Frames of any library.
    if type(rows).__name__ == "DataFrame":
        raise InputError(f"{name} is a DataFrame; give a list of ids for each row, such as its column of lists")
    given = as_list(name, rows)
    for row in given:
        # Most rows are lists, which need none of the slow checks.
        if type(row) is list:
            continue
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise InputError(f"{name} holds {row!r}, which is not a list; give a list of ids a row, as [[{row!r}]]")
        if isinstance(row, Set | Mapping):
            raise InputError(f"{name} holds a {type(row).__name__}, which has no order; give a list of ids a row")
    return [row if type(row) is list else list(row) for row in given]


def _context_frame(context: Mapping[str, Sequence[Any]], needs: QueryNeeds, num_rows: int) -> pl.DataFrame:
    """The context columns as a frame. Errors: a column that the retriever does not use, unreadable values."""
    if not needs.context:
        raise InputError("this retriever uses no context; leave it out")
    columns = []
    for name, values in context.items():
        if name not in needs.names:
            raise InputError(f"the context has a column '{name}'{nearest(name, needs.names)}")
        if isinstance(values, str) or not isinstance(values, Sized) or len(values) != num_rows:
            raise InputError(f"the context's column '{name}' needs a list of {num_rows} values, one a row")
        try:
            columns.append(pl.Series(name, values, strict=False))
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"the context's column '{name}' cannot be read ({reason}); give text, numbers or lists of numbers, of "
                "one kind"
            ) from error
    return pl.DataFrame(columns)
