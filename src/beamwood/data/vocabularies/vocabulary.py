"""The ids of users or items, in order; an index is a position in it."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.data.vocabularies.id_table import IdTable, NumberIds, id_table
from beamwood.errors import InputError, UnknownIdError
from beamwood.types import IndexArray
from beamwood.words import counted

__all__ = ["ON_UNKNOWN", "Vocabulary", "check_known"]

ON_UNKNOWN = ("error", "ignore")


class Vocabulary:
    """Distinct ids of one type (integers, strings, dates, ...), none null; index i is `ids[i]`.

    Integers and text are looked up in plain arrays, which may lie in a mapped file; other types in a Polars series.
    Errors: `InputError` on a null or repeated id.
    """

    @naming_arguments
    def __init__(self, ids: pl.Series) -> None:
        if ids.null_count():
            raise InputError(f"a vocabulary holds {counted(ids.null_count(), 'null id')}; remove what is null")
        if ids.n_unique() != len(ids):
            raise InputError(f"a vocabulary holds {counted(len(ids) - ids.n_unique(), 'repeated id')}; keep one each")
        self.ids, self._length, self.dtype = ids, len(ids), ids.dtype

    def __repr__(self) -> str:
        return f"Vocabulary of {counted(len(self), 'id')}, {self.dtype}"

    @classmethod
    def stored(cls, table: IdTable) -> Vocabulary:
        """The vocabulary of a table, which is not checked here: see `IdTable.check`."""
        made = cls.__new__(cls)
        made.table, made._length = table, len(table)
        made.dtype = table.dtype
        return made

    @cached_property
    def ids(self) -> pl.Series:
        """All ids by index."""
        assert self.table is not None
        return self.table.series()

    @cached_property
    def table(self) -> IdTable | None:
        """The ids as plain arrays, None for a type without such a table."""
        return id_table(self.ids)

    @classmethod
    def of(cls, ids: pl.Series) -> Vocabulary:
        """The sorted distinct values of a column."""
        return cls(ids.unique().sort().rename("id"))

    def __len__(self) -> int:
        return self._length

    @naming_arguments
    def encode(self, ids: Sequence[Any] | pl.Series, *, on_unknown: str = "error") -> NDArray[np.int32]:
        """int32[len(ids)], the index of each id. An unknown id is an `InputError`, or -1 with `on_unknown="ignore"`."""
        if on_unknown not in ON_UNKNOWN:
            raise InputError(f"on_unknown='{on_unknown}' is unknown; known: {', '.join(ON_UNKNOWN)}")
        if isinstance(ids, pl.Series):
            indices = self._of_column(ids)
        else:
            indices = None if self.table is None else self.table.find(ids)
        if indices is None:
            indices = self._joined(self.typed(ids, on_unknown))
        if on_unknown == "error":
            try:
                check_known(ids, indices)
            except UnknownIdError:
                if self.dtype == pl.String:
                    self._name_the_meant([str(ids[int(place)]) for place in np.flatnonzero(indices < 0)[:_MOST_NAMED]])
                raise
        return indices

    def decode(self, indices: IndexArray) -> list[Any]:
        """The ids of item or user indices, each in [0, len)."""
        places = np.asarray(indices, dtype=np.int64)
        if self.table is not None:
            return self.table.ids(places)
        return list(self.ids.gather(places.tolist()).to_list())

    def parse(self, text: str) -> Any:
        """Convert text to an id of the vocabulary's type: "12" and "12.0" are 12 where ids are integers."""
        return self.parse_all([text])[0]

    @naming_arguments
    def parse_all(self, texts: Sequence[str], *, on_unknown: str = "error") -> list[Any]:
        """`parse` for many. Text that does not convert is unknown: an `InputError`, or None with "ignore".

        Text ids match exactly, else without surrounding blanks if exactly one id does. The error about an unknown one
        names an id that differs only by leading zeros, case or Unicode form.
        """
        column = pl.Series("id", [str(text) for text in texts], dtype=pl.String)
        dtype = self.dtype
        if dtype == pl.String:
            found = self._but_for_blanks(column)
            if on_unknown != "ignore":
                self._name_the_meant(found)
            return found
        if dtype.is_temporal():
            values = [_from_iso(text.strip(), dtype) for text in column.to_list()]
        else:
            stripped = column if dtype == pl.Binary else column.str.strip_chars()
            if dtype.is_integer():
                # As the reading of a log takes 7.0.
                stripped = stripped.str.replace(r"^(-?\d+)\.0+$", "${1}")
            values = stripped.cast(dtype, strict=False).to_list()
        if None in values and on_unknown != "ignore":
            unknown = column[values.index(None)]
            like = f", such as {self.decode(np.zeros(1, int))[0]}" if len(self) else ""
            raise UnknownIdError(
                f"id {unknown!r} is unknown: the log's ids are of type {dtype}{like}; leave it out or pass "
                "on_unknown='ignore'"
            )
        return values

    def _name_the_meant(self, texts: list[str]) -> None:
        found = self.encode(texts, on_unknown="ignore").tolist()
        unknown = [text for text, place in zip(texts, found, strict=True) if place < 0]
        for text, key in zip(unknown, _plain(pl.Series(unknown, dtype=pl.String)), strict=True):
            alike = self.ids.filter(_may_be(self.ids, key))
            meant = alike.filter(_plain(alike) == key)
            meant = meant.filter(pl.Series(self.encode(meant, on_unknown="ignore") >= 0, dtype=pl.Boolean))
            if len(meant):
                raise UnknownIdError(
                    f"id {text!r} is unknown; did you mean {meant[0]!r}? Else leave it out or pass on_unknown='ignore'"
                )

    def _but_for_blanks(self, texts: pl.Series) -> list[Any]:
        exact = pl.Series(self.encode(texts.to_list(), on_unknown="ignore") >= 0)
        # Only unmatched text is compared with all ids.
        if exact.all():
            return texts.to_list()
        stripped, keys = texts.str.strip_chars(), self.ids.str.strip_chars()
        alike = keys.is_in(stripped.unique().implode())
        known = pl.DataFrame({"id": self.ids.filter(alike), "key": keys.filter(alike)}).unique("key", keep="none")
        asked = pl.DataFrame({"key": stripped})
        near = asked.join(known, on="key", how="left", maintain_order="left")["id"].fill_null(stripped)
        return texts.zip_with(exact, near).to_list()

    @naming_arguments
    def typed(self, ids: Sequence[Any] | pl.Series, on_unknown: str = "error") -> pl.Series:
        """The ids as a series of the vocabulary's type. Another type is an `InputError`, or null with "ignore"."""
        dtype = self.dtype
        if isinstance(ids, pl.Series) and ids.dtype == dtype:
            return ids
        values = list(ids)
        series = _strict(values, dtype)
        if series is not None:
            return series
        values = [value if _fits(value, dtype) else None for value in values]
        if on_unknown == "error":
            raise self._wrong_type(ids[values.index(None)])
        return pl.Series("id", values, dtype=dtype)

    def _wrong_type(self, value: Any) -> InputError:
        like = f"; give ids of that type, such as {self.decode(np.zeros(1, int))[0]!r}" if len(self) else ""
        return InputError(f"id {value!r} is not of type {self.dtype}, which the log's ids have{like}")

    def _of_column(self, ids: pl.Series) -> NDArray[np.int32] | None:
        """The indices by the table, if there is one and a join, which reads all known ids, would take longer."""
        table = self.__dict__.get("table")
        if isinstance(table, NumberIds) and table.near is not None and ids.dtype == self.dtype and not ids.has_nulls():
            return table.find(ids.to_numpy())
        return table.find(ids.to_list()) if table is not None and len(ids) * _JOINED <= len(self) else None

    def _joined(self, ids: pl.Series) -> NDArray[np.int32]:
        known = pl.DataFrame({"id": self.ids, "index": np.arange(len(self), dtype=np.int32)})
        found = pl.DataFrame({"id": ids}).join(known, on="id", how="left", maintain_order="left")
        return np.asarray(found["index"].fill_null(-1).to_numpy(), dtype=np.int32)


def _plain(texts: pl.Series) -> pl.Series:
    """Text normalised for comparison: no leading zeros, lower case, NFKC."""
    bare = texts.str.normalize("NFKC").str.to_lowercase().str.strip_chars()
    return bare.str.replace_all(r"(^|\D)0+(\d)", "${1}${2}")


def _may_be(ids: pl.Series, key: str) -> pl.Series:
    """Whether `_plain` of an id may be this: its last run of digits, or of others, is there, unless it is not ASCII."""
    end = re.search(r"(\d+|\D*)$", key)
    assert end is not None, "a text ends in digits or others"
    ends = ids.str.strip_chars().str.to_lowercase().str.ends_with(end[0])
    return ends | (ids.str.len_bytes() != ids.str.len_chars())


# A column with fewer ids than the known ones over this is looked up in the table.
_JOINED = 8
# Up to this many indices a list is faster than a reduction.
_FEW = 256
_MOST_NAMED = 3


def has_unknown(indices: IndexArray) -> bool:
    """Whether any index is -1."""
    return -1 in indices.tolist() if len(indices) <= _FEW else bool((indices < 0).any())


def check_known(ids: Sequence[Any] | pl.Series, indices: NDArray[np.int32]) -> None:
    """Errors: indices of -1, with some of their ids."""
    if has_unknown(indices):
        unknown = np.flatnonzero(indices < 0)
        examples = ", ".join(repr(ids[int(i)]) for i in unknown[:3])
        raise UnknownIdError(
            f"{len(unknown)} of {len(indices)} ids are unknown, such as {examples}; "
            "leave them out or pass on_unknown='ignore'"
        )


def _strict(values: list[Any], dtype: Any) -> pl.Series | None:
    """The values as a series of exactly that type, None where one is of another; booleans are not integers."""
    try:
        series = pl.Series("id", values, dtype=dtype, strict=True)
    except (
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ):
        # Polars raises many kinds of errors on nested values.
        return None
    return None if series.dtype != dtype or bool in set(map(type, values)) else series


def _fits(value: Any, dtype: Any) -> bool:
    return value is not None and _strict([value], dtype) is not None


def _from_iso(text: str, dtype: Any) -> Any:
    """The date, time or datetime of ISO 8601 text, None where it does not parse."""
    try:
        if dtype == pl.Date:
            value: Any = dt.date.fromisoformat(text)
        else:
            value = (dt.time if dtype == pl.Time else dt.datetime).fromisoformat(text)
    except ValueError:
        return None
    return value if _fits(value, dtype) else None
