"""Columns of an item table that answers show and filters use.

Shape legend: N items.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.cells.decimals import as_float64
from beamwood.data.cells.labels import TEXTS
from beamwood.data.columns import find_column
from beamwood.data.files.layout import OF_TABLES
from beamwood.data.files.source import open_source, reading
from beamwood.data.kept_columns import has_text, kept_column
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError, nearest
from beamwood.retrieval.columns.item_columns import CATEGORY, Column, ItemColumns
from beamwood.retrieval.columns.number_column import NumberColumn, NumberKind
from beamwood.serve.problems import Problem

__all__ = ["ItemFields"]

_TITLES = ("title", "name", "label")


@dataclass(frozen=True, slots=True, eq=False)
class ItemFields:
    """A frame of N rows in the order of the catalogue, null where the table lacks an item; None without a table.

    `more`: the rows of new items, which come after these.
    """

    frame: pl.DataFrame | None = None
    more: Sequence[pl.DataFrame] = ()

    @classmethod
    def read(
        cls, path: Path, items: Vocabulary, fitted: Sequence[str] = (), kept: Mapping[str, str] = MappingProxyType({})
    ) -> ItemFields:
        """The table of a file of any kind that `fit --items` reads; `fitted`: names of the fit's id column.

        `kept`: by column the kind under which the fit kept it, by which its text is read. Errors: an unreadable file,
        one without item ids or without a known item.
        """
        try:
            source = open_source(str(path), OF_TABLES)
            with reading(source.name):
                frame = source.frame.collect()
        except InputError as error:
            raise InputError(f"--items {error}") from None
        column = next((name for name in fitted if name in frame.columns), None)
        column = column or find_column("item", None, frame.columns, f"--items {path}", also=("id",), fix="rename one")
        if column is None:
            has = ", ".join(frame.columns)
            raise InputError(f"--items {path} has no column of item ids; it has: {has}. Call it item_id")
        for name, kind in kept.items():
            dtype = None if name in (column, CATEGORY) else frame.schema.get(name)
            if dtype is not None and _is_read_as_kept(dtype, kind):
                as_fitted = "text" if kind == "labels" else kind
                frame = frame.with_columns(_as_kept(frame.select(name, item=column), f"{name}:{as_fitted}"))
        frame = frame.with_columns(
            as_float64(cell) for cell in frame if cell.dtype == pl.Float32 and cell.name != column
        )
        if source.is_text:
            # What the fit reads as text keeps its writing: "1.50" and "3" are no labels 1.5 and 3.0.
            texts = {column, CATEGORY, *(name for name, kind in kept.items() if kind == "labels")}
            frame = frame.select(cell if cell.name in texts else _typed(cell) for cell in frame)
        return cls(_in_order(frame, column, items, path))

    @property
    def names(self) -> Sequence[str]:
        """The columns."""
        return [] if self.frame is None else self.frame.columns

    @property
    def title(self) -> str | None:
        """The title column, if any: one whose cells have a text."""
        schema = {} if self.frame is None else self.frame.schema
        by_lower = {name.lower(): name for name, dtype in schema.items() if has_text(dtype)}
        return next((by_lower[name] for name in _TITLES if name in by_lower), None)

    def columns(self) -> Mapping[str, Column]:
        """The columns for filters; those of other types are only shown."""
        kept: dict[str, Column] = {}
        for name in self.names:
            assert self.frame is not None
            try:
                kept[name] = ItemColumns.of(self.frame.select(name))[name]
            except InputError:
                if name == CATEGORY:
                    raise
        return kept

    def check(self, wanted: Sequence[str]) -> None:
        """Errors: `Problem` on an unknown field."""
        names = self.names
        for name in dict.fromkeys(wanted):
            if name not in names:
                known = nearest(name, names) if names else "; start the service with --items to have some"
                raise Problem("invalid_request", f"fields: the column '{name}' does not exist{known}", field="fields")

    def of(self, indices: NDArray[Any], wanted: Sequence[str]) -> list[dict[str, Any]]:
        """The wanted columns of each item, JSON-able."""
        assert self.frame is not None
        names, places = list(dict.fromkeys(wanted)), np.asarray(indices, np.int64)
        new = np.flatnonzero(places >= len(self.frame)).tolist()
        known = places[places < len(self.frame)] if new else places
        rows = self.frame.select(names)[known].rows(named=True)
        stops = np.cumsum([len(part) for part in self.more if new])
        for at in new:
            place = int(places[at]) - len(self.frame)
            part = int(np.searchsorted(stops, place, side="right"))
            # From the end of the part, as its place is negative.
            rows.insert(at, self.more[part].select(names).row(place - int(stops[part]), named=True))
        return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def texts(self, name: str) -> pl.Series:
        """A column of all items as text."""
        assert self.frame is not None
        return pl.concat([part[name].cast(pl.String) for part in (self.frame, *self.more)])

    def rows_of(self, rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        """The cells of new items. Errors: `InputError` on a value of another type."""
        columns = [] if self.frame is None else self.frame.get_columns()
        return pl.DataFrame([_of_new(cells, [row.get(cells.name) for row in rows]) for cells in columns])

    def with_rows(self, known: int, parts: Sequence[pl.DataFrame]) -> ItemFields:
        """The rows of the known items, then those of new ones; see `rows_of`."""
        return self if self.frame is None else ItemFields(self.frame.head(known), parts)


def _of_new(cells: pl.Series, values: list[Any]) -> pl.Series:
    """Further cells of a column; integers are floats where one of these has a fraction."""
    dtype = cells.dtype
    kind: NumberKind | None
    kind = "number" if dtype.is_numeric() else "truth" if dtype == pl.Boolean else "time" if _is_time(dtype) else None
    if kind is not None:
        column = NumberColumn(kind, np.empty(0))
        values = [None if value is None else column.number(cells.name, value) for value in values]
    if kind == "number":
        whole = all(value is None or (value == value // 1 and abs(value) < 2**63) for value in values)
        dtype = pl.Int64() if dtype.is_integer() and whole else pl.Float64()
        values = [None if value is None else int(value) if dtype == pl.Int64 else float(value) for value in values]
    elif kind == "truth":
        values = [None if value is None else bool(value) for value in values]
    elif isinstance(dtype, pl.Categorical | pl.Enum):
        dtype = pl.String()
    elif isinstance(dtype, pl.List):
        values = [[value] if isinstance(value, str) else value for value in values]
    try:
        new = pl.Series(values, dtype=pl.Int64).cast(pl.Datetime("us")) if kind == "time" else values
        # Without its name, which Polars may read as a pattern.
        return pl.Series("", new, dtype=dtype).alias(cells.name)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        raise InputError(f"the column {cells.name} is of type {dtype}; give such values, or leave it out") from None


def _is_time(dtype: pl.DataType) -> bool:
    return dtype == pl.Date or isinstance(dtype, pl.Datetime)


def _is_read_as_kept(dtype: pl.DataType, kind: str) -> bool:
    """Whether cells of a type may be of another kind than that of the fit: vectors in any form, and text."""
    if kind == "labels":
        return has_text(dtype)
    return kind == "vector" or (kind in ("number", "truth", "time") and dtype in TEXTS)


def _as_kept(frame: pl.DataFrame, wanted: str) -> pl.Series:
    try:
        read = kept_column(frame, wanted)
    except InputError as error:
        raise InputError(f"--items: {error}") from None
    # An item without a vector is shown without one.
    return pl.select(pl.when(frame[read.name].is_not_null()).then(read).alias(read.name)).to_series()


def _typed(cells: pl.Series) -> pl.Series:
    """The cells of a text file by their common type: integers, numbers, booleans, or text.

    A leading 0 means a code, which would change as a number.
    """
    if cells.dtype != pl.String or cells.null_count() == len(cells) or cells.str.contains(r"^\s*0\d").any():
        return cells
    for dtype in (pl.Int64, pl.Float64):
        with suppress(pl.exceptions.PolarsError):
            return cells.cast(dtype)
    lower = cells.str.to_lowercase()
    return lower == "true" if lower.drop_nulls().is_in(["true", "false"]).all() else cells


def _in_order(frame: pl.DataFrame, column: str, items: Vocabulary, path: Path) -> pl.DataFrame:
    ids = frame[column]
    if ids.dtype != items.dtype:
        ids = ids.cast(items.dtype, strict=False)
    known = ids.is_not_null()
    at = np.full(len(frame), -1, np.int32)
    at[known.to_numpy()] = items.encode(ids.filter(known), on_unknown="ignore")
    if not (at >= 0).any():
        raise InputError(f"--items {path} names no item of the model in its column '{column}'")
    places = np.full(len(items), -1, np.int64)
    # Of several rows of an item the last one stays.
    places[at[at >= 0]] = np.flatnonzero(at >= 0)
    rows = pl.Series(places).set(pl.Series(places < 0), None)
    return frame.drop(column).select(pl.all().gather(rows.cast(pl.UInt32)))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    return value if isinstance(value, str | int | float | bool | list | dict | None) else str(value)
