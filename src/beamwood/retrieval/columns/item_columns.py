"""Item columns for filters, as plain arrays that can be memory-mapped.

Shape legend: N items.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.cells.decimals import as_float64
from beamwood.data.cells.given_vectors import given_vectors, holds_vectors
from beamwood.data.cells.labels import SEPARATOR, TEXTS, label_lists
from beamwood.errors import InputError, nearest
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.columns.number_column import NumberColumn
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.words import followed

__all__ = ["CATEGORY", "Column", "ItemColumns"]

Arrays = dict[str, NDArray[Any]]

CATEGORY = "category"
"""The column whose cells hold several labels with "|" between them."""
Column = NumberColumn | LabelColumn | VectorColumn


@dataclass(frozen=True, slots=True, eq=False)
class ItemColumns:
    """The columns by name, each of N items."""

    num_items: int
    columns: Mapping[str, Column] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: pl.DataFrame) -> ItemColumns:
        """The columns of a frame with one row an item. Errors: a type that filters do not support."""
        return cls(len(frame), {name: _column(frame[name]) for name in frame.columns})

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def get(self, name: str) -> Column | None:
        """A column, None where it was not kept."""
        return self.columns.get(name)

    def first(self, count: int) -> ItemColumns:
        """The columns of the first items; itself for all."""
        if count == self.num_items:
            return self
        return ItemColumns(count, {name: column.first(count) for name, column in self.columns.items()})

    def __getitem__(self, name: str) -> Column:
        """Errors: a column that was not kept, with the nearest that was."""
        if name not in self.columns:
            known = nearest(name, self.columns) if self.columns else "; this artefact keeps none"
            problem = f"where: there is no item column '{name}'{known}"
            raise InputError(followed(problem, "`beamwood fit --keep-columns` keeps more"))
        return self.columns[name]

    def export(self) -> tuple[list[dict[str, str]], Arrays]:
        """Names and kinds, and plain arrays."""
        arrays: Arrays = {}
        for number, column in enumerate(self.columns.values()):
            arrays |= {f"{number}.{name}": array for name, array in column.arrays().items()}
        return [{"name": name, "kind": column.kind} for name, column in self.columns.items()], arrays

    @classmethod
    def restore(cls, num_items: int, config: Any, arrays: Mapping[str, NDArray[Any]], *, verify: bool) -> ItemColumns:
        """The inverse of `export`. Errors: inconsistent arrays; with `verify` also inconsistent content."""
        columns: dict[str, Column] = {}
        for number, about in enumerate(config):
            own = {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{number}.")}
            if not isinstance(about["name"], str):
                raise InputError(f"an item column is called {about['name']!r}, which is not text")
            if about["kind"] == "labels":
                columns[about["name"]] = LabelColumn.restore(num_items, own, verify=verify)
            elif about["kind"] == "vector":
                columns[about["name"]] = VectorColumn.restore(num_items, own)
            elif about["kind"] in ("number", "truth", "time"):
                columns[about["name"]] = NumberColumn.restore(num_items, about["kind"], own)
            else:
                raise InputError(f"an item column is of the kind {about['kind']!r}")
        return cls(num_items, columns)


def _column(series: pl.Series) -> Column:
    column = None if series.name == CATEGORY else _of_type(series)
    try:
        if column is not None:
            return column
        lists = label_lists(series)
        # The mark separates categories inside a list too, as in the tables of a fit.
        return LabelColumn.of(label_lists(lists.list.join(SEPARATOR)) if series.name == CATEGORY else lists)
    except InputError as error:
        raise InputError(f"the item column '{series.name}' cannot be kept: {error}") from None


def _of_type(series: pl.Series) -> Column | None:
    """Vectors, numbers, truth values, times, or one text a cell; None for any other type."""
    dtype = series.dtype
    if holds_vectors(dtype):
        return VectorColumn.of(given_vectors(series, pl.Series(np.arange(len(series)))))
    present = None if series.null_count() == 0 else series.is_not_null().to_numpy()
    if dtype.is_integer() or dtype.is_float() or dtype.is_decimal():
        whole = dtype.is_integer() and dtype != pl.UInt64 and dtype != pl.Int128
        values = (series.cast(pl.Int64) if whole else as_float64(series)).fill_null(0).to_numpy()
        if not whole and np.isnan(values).any():
            known = ~np.isnan(values)
            present, values = known if present is None else present & known, np.where(known, values, 0)
        return NumberColumn("number", values, present)
    if dtype == pl.Boolean:
        return NumberColumn("truth", series.fill_null(False).cast(pl.Int64).to_numpy(), present)
    if dtype in (pl.Date, pl.Datetime):
        values = series.cast(pl.Datetime("us")).to_physical().fill_null(0).to_numpy()
        return NumberColumn("time", values, present)
    if dtype in TEXTS:
        return LabelColumn.of(series.cast(pl.String).reshape((-1, 1)).arr.to_list())
    return None
