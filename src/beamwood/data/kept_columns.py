"""Columns of the item table that a fitted retriever keeps, each as "name" or "name:kind": for filters, and vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import polars as pl

from beamwood.data.cells.decimals import pointed
from beamwood.data.cells.given_vectors import given_vectors, holds_vectors
from beamwood.data.cells.labels import unnamed, without_categories
from beamwood.data.features import name_and_kind
from beamwood.errors import InputError, nearest
from beamwood.words import counted

__all__ = ["KEPT_KINDS", "checked_kept", "has_text", "kept_column", "kept_name", "numbers_as_text"]

KEPT_KINDS = ("number", "truth", "time", "text", "vector")
"""The kinds of kept columns. Without one the column's type decides, which is text in text files."""


def has_text(dtype: pl.DataType) -> bool:
    """Whether the cells of a type have a text."""
    return not dtype.is_nested() and dtype not in (pl.Binary, pl.Duration, pl.Object)


_TYPED: dict[str, Callable[[pl.DataType], bool]] = {
    "number": lambda dtype: dtype.is_numeric(),
    "truth": lambda dtype: dtype == pl.Boolean,
    "time": lambda dtype: dtype in (pl.Date, pl.Datetime),
    "text": has_text,
}
# Integers up to here are exact as float64.
_EXACT = 2**53
# pandas converts integers to floats where one is missing.
_TRUTH = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}


def kept_name(wanted: str) -> str:
    """The column name of "name:kind"."""
    return _name_and_kind(wanted)[0]


def _name_and_kind(wanted: str) -> tuple[str, str]:
    """The two parts, the kind "" where none is given: a name may contain a colon itself."""
    name, kind = name_and_kind(wanted)
    return (name, kind) if kind in KEPT_KINDS else (wanted, "")


def checked_kept(wanted: Sequence[str], frame: pl.DataFrame) -> tuple[str, ...]:
    """The columns to keep. Errors: a missing column, an unknown kind, one column as two kinds, a keyword of conditions
    or that of the ids as name, those of `kept_column`."""
    known = [name for name in frame.columns if name != "item"]
    names = [kept_name(each) for each in wanted]
    for name, each in zip(names, wanted, strict=True):
        bare, kind = name_and_kind(each)
        if name == "item":
            raise InputError("the column 'item' cannot be kept: it holds the ids; keep another, or rename that one")
        if name not in known and bare in known:
            raise InputError(f"the kind '{kind}' of the column '{bare}' is unknown{nearest(kind, KEPT_KINDS)}")
        if name not in known:
            raise InputError(f"the item table has no column '{name}' to keep{nearest(name, known)}")
        if name in ("all", "any", "not"):
            raise InputError(f"the column '{name}' cannot be kept: it is a keyword of conditions; rename it")
        if names.count(name) > 1 and len({each for each in wanted if kept_name(each) == name}) > 1:
            raise InputError(f"the column '{name}' is kept as two kinds; name it once")
        kept_column(frame, each)
    return tuple(wanted)


def kept_column(frame: pl.DataFrame, wanted: str) -> pl.Series:
    """The column converted to its kind. Errors: cells that are not of the kind, with the first one and its item."""
    name, kind = _name_and_kind(wanted)
    cells = frame[name]
    if kind == "vector" or (not kind and holds_vectors(cells.dtype)):
        return pl.Series(name, given_vectors(cells, frame["item"]))
    if kind in ("", "number") and (cells.dtype in (pl.UInt64, pl.Int128) or _is_whole_decimal(cells.dtype)):
        return _as_whole(name, cells, frame["item"])
    if not kind:
        return cells
    cells = without_categories(cells)
    if cells.dtype != pl.String and not _TYPED[kind](cells.dtype):
        raise InputError(f"{name}:{kind}: the column is of type {cells.dtype}; leave the kind out")
    if kind == "text":
        return cells.cast(pl.String)
    if cells.dtype != pl.String:
        return cells
    empty = cells.is_null() | (cells.str.strip_chars() == "")
    said = _read(cells.str.strip_chars(), kind)
    wrong = said.is_null() & ~empty
    if wrong.any():
        at = int(wrong.arg_true()[0])
        mend = "give numbers, as 1.5" if kind == "number" else "mend them"
        raise InputError(
            f"{name}:{kind}: {counted(int(wrong.sum()), 'cell is', 'cells are')} not of kind {kind}, the first "
            f"{cells[at]!r} of item {frame['item'][at]!r}; {mend}, or keep it as {name}:text"
        )
    return said.alias(name)


def _is_whole_decimal(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Decimal) and dtype.scale == 0


def _as_whole(name: str, cells: pl.Series, items: pl.Series) -> pl.Series:
    """Wide integers as int64. Errors: one beyond 64 bits, which float64 would not hold exactly."""
    whole = cells.cast(pl.Int64, strict=False)
    wrong = whole.is_null() & cells.is_not_null()
    if wrong.any():
        at = int(wrong.arg_true()[0])
        raise InputError(
            f"{name}: {counted(int(wrong.sum()), 'number is', 'numbers are')} too long to be held exactly, the first "
            f"{cells[at]} of item {items[at]!r}; keep it as {name}:text"
        )
    return whole


def _read(cells: pl.Series, kind: str) -> pl.Series:
    if kind == "truth":
        return cells.str.to_lowercase().replace_strict(_TRUTH, default=None, return_dtype=pl.Boolean)
    if kind == "time":
        return pl.Series([_moment(text) for text in cells.to_list()], dtype=pl.Datetime("us"))
    cells = pointed(cells)
    whole = cells.cast(pl.Int64, strict=False)
    numbers = cells.cast(pl.Float64, strict=False)
    # As floats, several such long integers, which may be ids, would be equal.
    longer = cells.str.contains(r"^[+-]?\d+$") & (numbers.abs() > _EXACT)
    if (whole.is_not_null() | (numbers.is_null() & ~longer)).all():
        return whole
    return numbers.set(~numbers.is_finite() | longer, None)


def _moment(text: str | None) -> datetime | None:
    """The time of ISO 8601 text in UTC; None where it does not parse."""
    try:
        moment = datetime.fromisoformat(text or "")
        return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):  # a zone can move a time beyond the years 1 to 9999
        return None


def numbers_as_text(wanted: Sequence[str], frame: pl.DataFrame) -> list[str]:
    """The columns kept as text without a given kind, though every non-empty cell is a number."""
    found = []
    for each in wanted:
        if kept_name(each) == each and each != "category" and frame[each].dtype == pl.String:
            cells = unnamed(frame[each]).drop_nulls().str.strip_chars()
            cells = pointed(cells.filter(cells != ""))
            # A leading 0 means a code, which would change as a number.
            plain = cells.cast(pl.Float64, strict=False).is_not_null() & ~cells.str.contains(r"^0\d")
            if len(cells) and plain.all():
                found.append(each)
    return list(dict.fromkeys(found))
