"""Columns of users, items or contexts as arrays: categories, numbers, given vectors; unknown and missing are cases.

Shape legend: R rows, S values a cell, V width of a given vector.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from beamwood.data.labels import as_lists, label_lists
from beamwood.errors import InputError, nearest
from beamwood.types import IndexArray

__all__ = ["FeatureColumn", "FeatureTable", "encode_columns", "fit_columns"]

Kind = Literal["category", "number", "vector"]
KINDS = ("category", "number", "vector")
# A training row lies at most sqrt(rows) deviations from the mean; one further out says no more than that.
_FAR = 1e4
# The largest number in a given vector: its square, and a sum of those, is a float32 still.
_LARGEST = 1e15


class FeatureColumn(BaseModel):
    """How one column becomes numbers, learned from training data.

    "category": code 1 + the place in `values`, 0 for unknown or missing; a cell may hold several, joined with "|" or as
    a list. "number": `(x - mean) / deviation`, within 10,000 of either sign, beside a mark that it is missing.
    "vector": `width` numbers and a mark.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    width: int = 0

    @property
    def size(self) -> int:
        """Rows of the weights that a linear map of this column has."""
        return {"category": len(self.values) + 1, "number": 2, "vector": self.width + 1}[self.kind]


@dataclass(frozen=True)
class FeatureTable:
    """R encoded rows by column name: categories int32[R, S] (-1 padding), numbers float32[R, 2], vectors [R, V + 1]."""

    columns: tuple[FeatureColumn, ...]
    arrays: dict[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values()))) if self.arrays else 0

    def take(self, rows: IndexArray) -> FeatureTable:
        """The given rows."""
        return FeatureTable(self.columns, {name: array[rows] for name, array in self.arrays.items()})

    def with_missing_row(self) -> FeatureTable:
        """One more row at the end, in which everything is missing: an unknown user's."""
        more = {}
        for column in self.columns:
            array = self.arrays[column.name]
            row = np.zeros((1, array.shape[1]), array.dtype)
            if column.kind == "category":
                row[:, 1:] = -1
            else:
                row[:, -1] = 1
            more[column.name] = np.concatenate([array, row])
        return FeatureTable(self.columns, more)


def fit_columns(frame: pl.DataFrame, names: Sequence[str]) -> tuple[FeatureColumn, ...]:
    """Learn the columns named, each as "name" or "name:kind"; without a kind text and truth values are categories,
    numbers are numbers and lists of numbers are vectors.

    Errors: a column that the frame lacks, a kind that does not fit its type, vectors of different lengths.
    """
    fitted = []
    for wanted in names:
        name, _, kind = wanted.partition(":")
        if name not in frame.columns:
            raise InputError(f"the table has no column '{name}'{nearest(name, frame.columns)}")
        if kind and kind not in KINDS:
            raise InputError(f"column '{wanted}': the kind '{kind}' is unknown{nearest(kind, KINDS)}")
        fitted.append(_fit(frame[name], kind or _kind(frame[name].dtype)))
    if len({column.name for column in fitted}) < len(fitted):
        raise InputError(f"columns {list(names)} name one column twice; name each once")
    return tuple(fitted)


def encode_columns(columns: Sequence[FeatureColumn], frame: pl.DataFrame | Mapping[str, Any]) -> FeatureTable:
    """Encode a frame's rows; values that training did not know become code 0, nulls and NaN are marked missing."""
    table = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(dict(frame), strict=False)
    arrays = {}
    for column in columns:
        if column.name not in table.columns:
            raise InputError(f"the rows have no column '{column.name}'{nearest(column.name, table.columns)}")
        series = table[column.name]
        encode = {"category": _categories, "number": _numbers, "vector": _vectors}[column.kind]
        arrays[column.name] = encode(column, series)
    return FeatureTable(tuple(columns), arrays)


def _kind(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List | pl.Array):
        return "vector" if dtype.inner is not None and _is_number(dtype.inner) else "category"
    return "number" if _is_number(dtype) else "category"


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_numeric())


def _fit(series: pl.Series, kind: str) -> FeatureColumn:
    name = series.name
    if kind == "category":
        values = label_lists(series).explode().drop_nulls().unique().sort()
        return FeatureColumn(name=name, kind="category", values=tuple(values.filter(values != "").to_list()))
    if kind == "number":
        numbers = _finite(series)
        known = numbers[np.isfinite(numbers)]
        if len(known) == 0:
            raise InputError(f"column '{name}' holds no number; leave it out")
        with np.errstate(over="ignore"):
            spread = float(known.std())
        if not np.isfinite(spread):
            raise InputError(
                f"column '{name}' holds numbers up to {np.abs(known).max():g}; mend them, or scale them down"
            )
        return FeatureColumn(
            name=name, kind="number", mean=float(known.mean()), deviation=spread if spread > 0 else 1.0
        )
    if _kind(series.dtype) != "vector":
        raise InputError(f"column '{name}' is of type {series.dtype}; a vector column holds lists of numbers")
    lengths = as_lists(series).list.len().drop_nulls().unique().to_list()
    if len(lengths) != 1 or lengths[0] == 0:
        raise InputError(f"column '{name}' holds vectors of lengths {sorted(lengths)[:5]}; give vectors of one length")
    return FeatureColumn(name=name, kind="vector", width=int(lengths[0]))


def _finite(series: pl.Series) -> NDArray[np.float64]:
    """The numbers of a column, NaN where there is none. Errors: a value that is no number."""
    dtype = series.dtype
    if dtype.is_nested() or dtype in (pl.Duration, pl.Binary, pl.Object):
        raise InputError(f"column '{series.name}' of type {dtype} holds no numbers; make it numbers, or leave it out")
    numbers = series.cast(pl.Float64, strict=False)
    wrong = series.filter(numbers.is_null() & series.is_not_null())
    if len(wrong):
        raise InputError(
            f"column '{series.name}' holds {len(wrong)} values that are no numbers, such as {wrong[0]!r}; mend them, "
            f"or take the column as {series.name}:category"
        )
    return np.asarray(numbers.fill_null(np.nan).to_numpy(), np.float64)


def _categories(column: FeatureColumn, series: pl.Series) -> NDArray[np.int32]:
    cells = pl.DataFrame({"row": np.arange(len(series)), "value": label_lists(series)}).explode("value")
    known = pl.DataFrame(
        {"value": pl.Series(column.values, dtype=pl.String), "code": np.arange(1, len(column.values) + 1)}
    )
    joined = cells.join(known, on="value", how="left", maintain_order="left")
    rows, codes = joined["row"].to_numpy(), joined["code"].fill_null(0).to_numpy()
    place = np.arange(len(rows)) - np.searchsorted(rows, rows)
    encoded = np.full((len(series), int(place.max(initial=0)) + 1), -1, np.int32)
    encoded[rows, place] = codes
    return encoded


def _numbers(column: FeatureColumn, series: pl.Series) -> NDArray[np.float32]:
    values = _finite(series)
    missing = ~np.isfinite(values)
    with np.errstate(over="ignore"):
        scaled = np.where(missing, 0.0, (np.where(missing, 0.0, values) - column.mean) / column.deviation)
    return np.stack([np.clip(scaled, -_FAR, _FAR), missing], axis=1).astype(np.float32)


def _vectors(column: FeatureColumn, series: pl.Series) -> NDArray[np.float32]:
    encoded = np.zeros((len(series), column.width + 1), np.float32)
    for row, cell in enumerate(as_lists(series).to_list()):
        if cell is None or any(value is None or not np.isfinite(value) for value in cell):
            encoded[row, -1] = 1
        elif len(cell) != column.width:
            raise InputError(f"column '{column.name}' row {row} has {len(cell)} numbers, training had {column.width}")
        elif max(map(abs, cell)) > _LARGEST:
            raise InputError(f"column '{column.name}' row {row} holds a number beyond {_LARGEST:g}; scale it down")
        else:
            encoded[row, :-1] = cell
    return encoded
