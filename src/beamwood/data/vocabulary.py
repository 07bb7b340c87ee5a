"""The ids of users or items, in order; an index is a position in it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.types import IndexArray

__all__ = ["ON_UNKNOWN", "Vocabulary"]

ON_UNKNOWN = ("error", "ignore")


# Of a vocabulary so many times as large as what is asked, the ids are searched one by one.
_FEW = 20


@dataclass(frozen=True)
class Vocabulary:
    """Distinct ids of one type (integers, strings, dates, ...), none null; index i is `ids[i]`."""

    ids: pl.Series

    def __post_init__(self) -> None:
        if self.ids.null_count():
            raise InputError(f"a vocabulary holds {self.ids.null_count()} null ids; remove them")
        if self.ids.n_unique() != len(self.ids):
            raise InputError(f"a vocabulary holds {len(self.ids) - self.ids.n_unique()} repeated ids; remove them")

    @classmethod
    def of(cls, ids: pl.Series) -> Vocabulary:
        """The sorted distinct values of a column."""
        return cls(ids.unique().sort().rename("id"))

    def __len__(self) -> int:
        return len(self.ids)

    def encode(self, ids: Sequence[Any] | pl.Series, *, on_unknown: str = "error") -> NDArray[np.int32]:
        """int32, the index of each id. An unknown id is an `InputError`, or -1 with `on_unknown="ignore"`."""
        if on_unknown not in ON_UNKNOWN:
            raise InputError(f"on_unknown='{on_unknown}' is unknown; known: {', '.join(ON_UNKNOWN)}")
        indices = self._indices(self._typed(ids, on_unknown))
        unknown = np.flatnonzero(indices < 0)
        if len(unknown) and on_unknown == "error":
            examples = ", ".join(repr(ids[int(i)]) for i in unknown[:3])
            raise InputError(
                f"{len(unknown)} of {len(indices)} ids are unknown, such as {examples}; "
                "leave them out or pass on_unknown='ignore'"
            )
        return indices

    def decode(self, indices: IndexArray) -> list[Any]:
        """The ids of item or user indices, each in [0, len)."""
        return list(self.ids.gather(np.asarray(indices, dtype=np.int64).tolist()).to_list())

    def parse(self, text: str) -> Any:
        """An id typed as text, in the vocabulary's own type: "12" is 12 where ids are integers."""
        return self.parse_all([text])[0]

    def parse_all(self, texts: Sequence[str], *, on_unknown: str = "error") -> list[Any]:
        """`parse` for many. Text that cannot be of the ids' type is an `InputError`, or None with "ignore".

        Ids of text are taken exactly; where none is equal, blanks around either do not count if only one id is left.
        """
        column = pl.Series("id", [str(text) for text in texts], dtype=pl.String)
        dtype = self.ids.dtype
        if dtype == pl.String:
            return self._but_for_blanks(column).to_list()
        if dtype.is_temporal():
            values = [_from_iso(text.strip(), dtype) for text in column.to_list()]
        else:
            stripped = column if dtype == pl.Binary else column.str.strip_chars()
            values = stripped.cast(dtype, strict=False).to_list()
        if None in values and on_unknown != "ignore":
            raise self._wrong_type(column[values.index(None)])
        return values

    def _but_for_blanks(self, texts: pl.Series) -> pl.Series:
        exact, stripped = texts.is_in(self.ids.implode()), texts.str.strip_chars()
        if exact.all():
            return texts
        known = pl.DataFrame({"id": self.ids, "key": self.ids.str.strip_chars()}).unique("key", keep="none")
        asked = pl.DataFrame({"key": stripped})
        near = asked.join(known, on="key", how="left", maintain_order="left")["id"].fill_null(stripped)
        return texts.zip_with(exact, near)

    def _typed(self, ids: Sequence[Any] | pl.Series, on_unknown: str) -> pl.Series:
        """The ids as a series of the vocabulary's type; None for one that is not, where that is not an error."""
        dtype = self.ids.dtype
        if isinstance(ids, pl.Series) and ids.dtype == dtype:
            return ids
        values = list(ids)
        if _strict(values, dtype) is None:
            values = [value if _fits(value, dtype) else None for value in values]
            if on_unknown == "error":
                raise self._wrong_type(ids[values.index(None)])
        return pl.Series("id", values, dtype=dtype)

    def _wrong_type(self, value: Any) -> InputError:
        like = f"; give ids as the log writes them, such as {self.ids[0]!r}" if len(self) else ""
        return InputError(f"id {value!r} is not of type {self.ids.dtype}, which the log's ids have{like}")

    def _indices(self, ids: pl.Series) -> NDArray[np.int32]:
        if len(ids) * _FEW < len(self) and self._ordered:
            return self._searched(ids)
        known = pl.DataFrame({"id": self.ids, "index": np.arange(len(self), dtype=np.int32)})
        found = pl.DataFrame({"id": ids}).join(known, on="id", how="left", maintain_order="left")
        return np.asarray(found["index"].fill_null(-1).to_numpy(), dtype=np.int32)

    @cached_property
    def _ordered(self) -> bool:
        """Whether a few ids are found by halving, without looking at all."""
        return (self.ids.dtype.is_integer() or self.ids.dtype == pl.String) and self.ids.is_sorted()

    def _searched(self, ids: pl.Series) -> NDArray[np.int32]:
        given = ids.drop_nulls()
        places = np.minimum(self.ids.search_sorted(given).to_numpy(), len(self) - 1)
        found = np.full(len(ids), -1, np.int32)
        equal = (self.ids.gather(places) == given).to_numpy()
        found[ids.is_not_null().to_numpy()] = np.where(equal, places, -1)
        return found


def _strict(values: list[Any], dtype: Any) -> pl.Series | None:
    """The values as a series of exactly that type, None where one is of another; a truth value is no number."""
    try:
        series = pl.Series("id", values, dtype=dtype, strict=True)
    except (TypeError, OverflowError, UnicodeEncodeError, pl.exceptions.PolarsError):
        return None
    return None if series.dtype != dtype or any(isinstance(value, bool) for value in values) else series


def _fits(value: Any, dtype: Any) -> bool:
    return value is not None and _strict([value], dtype) is not None


def _from_iso(text: str, dtype: Any) -> Any:
    """The date, time or both that ISO 8601 text says, None where it says none."""
    try:
        if dtype == pl.Date:
            value: Any = dt.date.fromisoformat(text)
        else:
            value = (dt.time if dtype == pl.Time else dt.datetime).fromisoformat(text)
    except ValueError:
        return None
    return value if _fits(value, dtype) else None
