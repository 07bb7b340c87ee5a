"""The request and answer of a retriever, by id: shared by Python, the command line and the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from beamwood.arguments import is_number
from beamwood.errors import InputError, NotInstalledError, nearest
from beamwood.extras import asking_for
from beamwood.notebook import table
from beamwood.retrieval.stored import MOST
from beamwood.types import BoolArray, ItemLists

__all__ = ["Allowed", "Form", "Ids", "Recommendations", "Request", "Seen", "as_list", "truth_values"]

Ids = Sequence[Any] | NDArray[Any] | pl.Series
Allowed = BoolArray | Ids | Mapping[str, Any]
Seen = Literal["remove", "keep"]
Form = Literal["lists", "polars", "pandas", "arrow"]
_SEEN = get_args(Seen)
_NESTED = (Iterator, Mapping, list, tuple)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The k best items for each history (item ids, oldest first) or each known user.

    With both, the histories replace the stored ones of the users. Ids are lists, arrays or series. `allowed`: item ids,
    {"category": name or names}, or N booleans by item index; `where`: conditions on the stored item columns, such as
    {"price": {"lte": 20}}; both act inside the search. `context`: by column one value a row, where the retriever uses
    it; missing columns count as missing values. `rejected`: "remove" excludes items with a negative last event of the
    user, as stored by the fit. `seen`: "remove" excludes the history's own items, "keep" allows them. `on_unknown`:
    "error" refuses unknown ids, "ignore" drops unknown items and answers unknown users as empty histories. `exclude`:
    ids excluded for all rows. `max_per_category`: the most items of a category, also by name, as {"default": 3, "news":
    1}. `diversity` in 0..1: the weight of dissimilarity to the items above. `promote`: places for the best items of a
    filter, as {"where": {"sale": True}, "share": 0.2, "name": "sale"}. For trees, `effort` in 0..1: 0 the cheapest way
    to search, 1 the full beam, instead of the way chosen by the fit; or `beam_width`, 1 or more: a full beam of that
    width, at least k.

    `Retriever.answer` refuses what does not fit the retriever.
    """

    histories: ItemLists | Sequence[Ids] | None = None
    k: int = 20
    users: Ids | None = None
    allowed: Allowed | None = None
    context: Mapping[str, Sequence[Any]] | None = None
    seen: Seen = "remove"
    on_unknown: str = "error"
    where: Mapping[str, Any] | None = None
    exclude: Ids | None = None
    max_per_category: int | Mapping[str, int] | None = None
    diversity: float = 0.0
    promote: Sequence[Mapping[str, Any]] = ()
    effort: float | None = None
    beam_width: int | None = None
    rejected: Seen = "keep"

    def __post_init__(self) -> None:
        if self.histories is None and self.users is None:
            raise InputError("give histories or users")
        read: dict[str, Any] = {
            "histories": self.histories,
            "users": self.users,
            "allowed": self.allowed,
            "context": self.context,
            "where": self.where,
            "exclude": self.exclude,
            "promote": self.promote,
        }
        for name, given in read.items():
            # What contains itself is refused where it is read.
            with suppress(RecursionError):
                object.__setattr__(self, name, _without_iterators(given))
        if self.seen not in _SEEN:
            raise InputError(f"seen={self.seen!r} is unknown{nearest(str(self.seen), _SEEN)}")
        if self.rejected not in _SEEN:
            raise InputError(f"rejected={self.rejected!r} is unknown{nearest(str(self.rejected), _SEEN)}")
        _check_effort(self.effort, self.beam_width)


@dataclass(frozen=True, slots=True)
class Recommendations:
    """For each row the item ids found, best first, and their scores; `rank` counts from 1.

    A row is shorter than k only where fewer items were allowed. `promotions`: the name of each item's promotion, or
    None; empty where the request had none. `empty`: by row, why it has no items. `item_type`: the Polars type of ids,
    None where it follows from the values. With diversity or promotions the scores need not decrease.
    """

    item_ids: list[list[Any]]
    scores: list[list[float]]
    promotions: list[list[str | None]] = field(default_factory=list)
    empty: dict[int, str] = field(default_factory=dict)
    item_type: Any = field(default=None, compare=False, repr=False)

    @property
    def rank(self) -> list[list[int]]:
        """Ranks from 1, a list for each row."""
        return [list(range(1, len(row) + 1)) for row in self.item_ids]

    def to(self, form: Form, users: Ids | None = None) -> Any:
        """The item ids as "lists", or `as_frame` of "polars", "pandas" or "arrow"; `users`: one a row."""
        if form not in get_args(Form):
            raise InputError(f"as_={form!r} is unknown{nearest(str(form), get_args(Form))}")
        if form == "lists":
            return self.item_ids
        frame = self.as_frame(users)
        if form == "polars":
            return frame
        with asking_for(f"as_={form!r}"):
            import pyarrow  # noqa: F401
        if form == "arrow":
            return frame.to_arrow()
        try:
            return frame.to_pandas()
        except ImportError as error:
            raise NotInstalledError("as_='pandas' needs pandas, which is not installed: pip install pandas") from error

    def _repr_html_(self) -> str:
        rows = [
            (row, rank, str(item), float(score))
            for row, (items, scores) in enumerate(zip(self.item_ids, self.scores, strict=True))
            for rank, (item, score) in enumerate(zip(items, scores, strict=True), start=1)
        ]
        why = "; ".join(f"row {row} has no items, as {reason}" for row, reason in self.empty.items())
        return table(("row", "rank", "item", "score"), rows, caption=why)

    def as_frame(self, users: Ids | None = None) -> pl.DataFrame:
        """One line a recommendation: row, rank, item, score, and first the user where `users` are given, one a row."""
        if users is not None and len(users) != len(self.item_ids):
            raise InputError(f"{len(users)} users and {len(self.item_ids)} rows; give one user a row")
        lengths = [len(row) for row in self.item_ids]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        who = {} if users is None else {"user": _series(users).gather(rows)}
        return pl.DataFrame(
            {
                **who,
                "row": rows,
                "rank": pl.Series([rank for row in self.rank for rank in row], dtype=pl.Int64),
                "item": _series([item for row in self.item_ids for item in row], self.item_type),
                "score": pl.Series([score for row in self.scores for score in row], dtype=pl.Float64),
            }
        )


def _without_iterators(given: Any) -> Any:
    """The same with lists in place of iterators, also within others, as a request may be read several times."""
    if isinstance(given, Iterator):
        given = list(given)
    if isinstance(given, Mapping):
        return {name: _without_iterators(each) for name, each in given.items()}
    # By type, as a row may hold many ids.
    if isinstance(given, list | tuple) and any(issubclass(kind, _NESTED) for kind in {*map(type, given)}):
        return [_without_iterators(each) for each in given]
    return given


def _series(values: Ids, dtype: Any = None) -> pl.Series:
    return values if isinstance(values, pl.Series) else pl.Series(values, dtype=dtype, strict=False)


def _check_effort(effort: Any, beam_width: Any) -> None:
    if effort is not None and beam_width is not None:
        raise InputError(f"effort={effort!r} and beam_width={beam_width!r} contradict each other; leave one out")
    if effort is not None and not (is_number(effort) and 0 <= effort <= 1):
        raise InputError(f"effort={effort!r} is outside 0..1; 1 is the full beam, 0 the cheapest way to search")
    if beam_width is not None and not (is_number(beam_width, whole=True) and 1 <= beam_width <= MOST):
        raise InputError(f"beam_width={beam_width!r} is outside 1..{MOST}; give a whole number of nodes, such as 150")


def as_list(name: str, values: Any) -> list[Any]:
    """The values of a list, an array or a series. Errors: a single value or a string."""
    if type(values) is list:
        return values
    if sparse.issparse(values):
        raise InputError(f"{name} is a sparse matrix, which has no ids; give a list of ids for each row")
    # Frames of any library: their list would be columns or names.
    if type(values).__name__ in ("DataFrame", "LazyFrame", "Table"):
        raise InputError(f"{name} is a {type(values).__name__}; give one of its columns")
    if type(values).__module__.startswith("pyarrow"):
        return list(values.to_pylist())
    if not isinstance(values, str | bytes):
        try:
            return list(values)
        except TypeError:
            pass
    raise InputError(f"{name}={values!r} is not a list; write [{values!r}]")


def truth_values(values: NDArray[Any] | list[Any]) -> BoolArray | None:
    """An array of booleans if all values are, None otherwise."""
    if isinstance(values, np.ndarray):
        return values if values.dtype == np.bool_ else None
    return np.array(values, np.bool_) if values and all(isinstance(v, bool | np.bool_) for v in values) else None
