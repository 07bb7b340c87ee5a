"""From the ids of a request to a query by index: the one place where a request is checked against a retriever."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.features import encode_context
from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import InputError, nearest
from beamwood.retrieval.request import Allowed, Ids, Request
from beamwood.types import BoolArray, ItemLists, Needs, Query, SearchOptions

__all__ = ["Names", "rows_of_ids"]


@dataclass(frozen=True, slots=True)
class Names:
    """What ids and filters mean: the catalogue, its categories, and what is known of users (None where nothing is)."""

    items: Vocabulary
    users: Vocabulary | None = None
    histories: ItemLists | None = None
    categories: pl.Series | None = None

    def resolve(self, request: Request, needs: Needs) -> tuple[Query, int, SearchOptions]:
        """What a searcher with these needs is asked, for how many items, and the options of its search.

        Errors: whatever of the request does not fit the retriever.
        """
        if needs.users and request.histories is not None:
            raise InputError(
                "this retriever knows users, not histories alone (by a vector or columns of each); give users, with "
                "on_unknown='ignore' also unknown ones"
            )
        histories = self.known(request.histories, request.users, on_unknown=request.on_unknown)
        k = self.checked_k(request.k)
        allowed = self.allowed_mask(request.allowed, on_unknown=request.on_unknown)
        users = np.full(len(histories), -1, np.int64)
        if self.users is not None and request.users is not None:
            listed = _listed("users", request.users)
            users = np.asarray(self.users.encode(listed, on_unknown=request.on_unknown), np.int64)
        frame = None if request.context is None else _context_frame(request.context, needs, len(histories))
        query = Query(users, histories, encode_context(needs.context, frame, len(histories)))
        return query, k, SearchOptions(histories.distinct() if request.seen == "remove" else None, allowed)

    def known(
        self, histories: ItemLists | Sequence[Ids] | None, users: Ids | None, *, on_unknown: str = "error"
    ) -> ItemLists:
        """The histories by item index, of given lists of ids or of known users."""
        if isinstance(histories, ItemLists):
            return histories
        if histories is not None:
            given = rows_of_ids("histories", histories)
            flat = self.items.encode([item for row in given for item in row], on_unknown=on_unknown)
            stops = np.cumsum([len(row) for row in given], dtype=np.int64)
            rows = np.split(np.asarray(flat, np.int32), stops[:-1]) if len(stops) else []
            return ItemLists.from_lists([row[row >= 0] for row in rows])
        if self.users is None or self.histories is None:
            raise InputError("this artefact keeps no users; give histories, or fit with users kept")
        rows_of_users = np.asarray(self.users.encode(_listed("users", users), on_unknown=on_unknown))
        padded = ItemLists.concatenate([self.histories, ItemLists.empty(1)])
        return padded.take(np.where(rows_of_users < 0, len(self.histories), rows_of_users))

    def allowed_mask(self, allowed: Allowed | None, *, on_unknown: str = "error") -> BoolArray | None:
        """bool[N] of a filter, or None where everything is allowed."""
        if allowed is None:
            return None
        if isinstance(allowed, Mapping):
            return self._category_mask(allowed)
        given = allowed if isinstance(allowed, np.ndarray) else _listed("allowed", allowed)
        flags = _truth_values(given)
        if flags is not None:
            if flags.shape != (len(self.items),):
                raise InputError(f"allowed has shape {flags.shape}; give one bool for each of {len(self.items)} items")
            return flags
        indices = np.asarray(self.items.encode(list(given), on_unknown=on_unknown))
        mask = np.zeros(len(self.items), bool)
        mask[indices[indices >= 0]] = True
        return mask

    def _category_mask(self, allowed: Mapping[str, Any]) -> BoolArray:
        unknown = set(allowed) - {"category"}
        if unknown or not allowed:
            raise InputError(f"allowed has keys {sorted(allowed)}; the known key is 'category'")
        if self.categories is None:
            raise InputError("this artefact has no categories; fit with an item table that has a 'category' column")
        wanted = allowed["category"]
        names = [wanted] if isinstance(wanted, str) else _listed("category", wanted)
        parts = self.categories.cast(pl.String).fill_null("").str.split("|")
        present = set(parts.explode().drop_nulls().unique().to_list()) - {""}
        for name in names:
            if not isinstance(name, str) or name not in present:
                raise InputError(f"category {name!r} is unknown{nearest(str(name), present)}")
        matches = parts.list.eval(pl.element().is_in(names)).list.any()
        return np.asarray(matches.fill_null(False).to_numpy(), dtype=np.bool_)

    def checked_k(self, k: Any) -> int:
        """k as a number. Errors: what is none, or outside 1..N."""
        try:
            number = None if isinstance(k, bool) else operator.index(k)
        except TypeError:
            number = None
        if number is None:
            raise InputError(f"k={k!r} is no whole number; give one of 1..{len(self.items)}, such as k=10")
        if not 1 <= number <= len(self.items):
            raise InputError(f"k={k} is outside 1..{len(self.items)}, the number of items")
        return number


def rows_of_ids(name: str, rows: Any) -> list[list[Any]]:
    """A list for each row. Errors: a row that is a single id, as in a flat list."""
    # Of whatever library.
    if type(rows).__name__ == "DataFrame":
        raise InputError(f"{name} is a DataFrame; give a list of ids for each row, such as its column of lists")
    given = _listed(name, rows)
    for row in given:
        if isinstance(row, str | bytes) or not isinstance(row, Iterable):
            raise InputError(f"{name} holds {row!r}, which is no list; give a list of ids for each row, as [[{row!r}]]")
    return [list(row) for row in given]


def _listed(name: str, values: Any) -> list[Any]:
    """The values of a list, an array or a series. Errors: a single value, or text, in its place."""
    if not isinstance(values, str | bytes):
        try:
            return list(values)
        except TypeError:
            pass
    raise InputError(f"{name}={values!r} is no list; write [{values!r}]")


def _truth_values(values: NDArray[Any] | list[Any]) -> BoolArray | None:
    """Values that are truth values throughout as an array, None where any is an id."""
    if isinstance(values, np.ndarray):
        return values if values.dtype == np.bool_ else None
    return np.array(values, np.bool_) if values and all(isinstance(v, bool | np.bool_) for v in values) else None


def _context_frame(context: Mapping[str, Sequence[Any]], needs: Needs, num_rows: int) -> pl.DataFrame:
    """The columns of the context as a frame. Errors: a column that nobody looks at, values that no column can hold."""
    if not needs.context:
        raise InputError("this retriever looks at no context; leave context out")
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
