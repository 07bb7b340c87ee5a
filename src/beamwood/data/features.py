"""User, item and context columns as arrays: categories, numbers and given vectors, with unknown and missing values.

Shape legend: R rows, S values a cell, V width of a given vector.
"""

from __future__ import annotations

import functools
import hashlib
import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from beamwood.data.cells.decimals import pointed
from beamwood.data.cells.labels import arrays_as_lists, inner_type, label_lists, unnamed, without_categories
from beamwood.errors import InputError, nearest
from beamwood.types import ContextColumn, IndexArray
from beamwood.words import counted

__all__ = ["FeatureColumn", "FeatureTable", "encode_columns", "encode_context", "fit_columns", "name_and_kind"]

Kind = Literal["category", "number", "vector"]
Written = Literal["number", "truth", "date", "datetime"]
_KINDS: tuple[Kind, ...] = get_args(Kind)
_WRITTEN: dict[Any, Written] = {pl.Boolean: "truth", pl.Date: "date", pl.Datetime: "datetime"}
_EXAMPLES = {
    "number": "numbers, as 1.5",
    "truth": "true or false",
    "date": "dates, as 2024-05-01",
    "datetime": "dates and times, as 2024-05-01T12:30:00",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Scaled numbers are clipped here: a training row lies at most sqrt(rows) deviations from the mean. Vectors with larger
# numbers are scaled.
_FAR = 1e4
# The largest number in a scaled vector: its third powers, which attention forms, still fit float32.
_LARGEST = 1e9


class FeatureColumn(BaseModel):
    """The encoding of one column, learned from training data.

    "category": code 1 + the place in `values`, 0 for unknown or missing; a cell may hold several, joined with "|" or as
    a list. "number": `(x - mean) / deviation`, within 10,000 of either sign, beside a mark that it is missing. Truth
    values, dates (in days) and times (in microseconds, UTC) are numbers too; `written` says so, and text of that form
    can stand for them. "vector": `width` numbers, over `deviation`, and a mark.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    width: int = 0
    written: Written = "number"

    @property
    def size(self) -> int:
        """The rows of the weight matrix of a linear map of this column."""
        return {"category": len(self.values) + 1, "number": 2, "vector": self.width + 1}[self.kind]

    @functools.cached_property
    def key(self) -> str:
        """The key of its encoded values in a query: the name and a digest of the encoding."""
        return f"{self.name}#{hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]}"

    def encode(self, values: pl.Series | None, num_rows: int) -> NDArray[Any]:
        """[num_rows, ..], see `encode_columns`; None: all missing. Errors: as there."""
        if values is not None:
            encoded: NDArray[Any] = _ENCODE[self.kind](self, values)
            return encoded
        if self.kind == "category":
            return np.zeros((num_rows, 1), np.int32)
        missing = np.zeros((num_rows, self.size), np.float32)
        missing[:, -1] = 1
        return missing

    def unseen(self, text: str) -> str | None:
        """See `types.ContextColumn`; numbers and vectors have no unseen values."""
        if self.kind != "category":
            return None
        cells: list[str] = label_lists(pl.Series([text])).explode().drop_nulls().to_list()
        unknown = next((value for value in cells if value not in self.values), None)
        if unknown is None:
            return None
        near = nearest(unknown, self.values, quoted=True)
        return f"'{self.name}': training had no value {unknown!r}, so it counts as missing{near}"


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
        """One more row at the end with all values missing, for unknown users."""
        more = {}
        for column in self.columns:
            array = self.arrays[column.name]
            missing = column.encode(None, 1)
            # A cell may hold several categories; the rest is padding.
            row = np.pad(missing, ((0, 0), (0, array.shape[1] - missing.shape[1])), constant_values=-1)
            more[column.name] = np.concatenate([array, row])
        return FeatureTable(self.columns, more)


def name_and_kind(wanted: str) -> tuple[str, str]:
    """Split "name:kind" at its last colon; the kind is "" where none is given."""
    name, colon, kind = wanted.rpartition(":")
    return (name, kind) if colon else (wanted, "")


def fit_columns(frame: pl.DataFrame, names: Sequence[str]) -> tuple[FeatureColumn, ...]:
    """Learn the encodings of columns, each "name" or "name:kind"; a name with a colon needs its kind.

    Without a kind text and truth values are categories, numbers are numbers and lists of numbers are vectors.
    Errors: a missing column, a kind that does not fit its type, vectors of different lengths.
    """
    fitted = []
    for wanted in names:
        name, kind = name_and_kind(wanted)
        if kind not in ("", *_KINDS) and wanted in frame.columns:
            raise InputError(f"column '{wanted}' contains a colon; give its kind too, as '{wanted}:category'")
        if name not in frame.columns:
            raise InputError(f"the table has no column '{name}'{nearest(name, frame.columns)}")
        if kind and kind not in _KINDS:
            raise InputError(f"column '{wanted}': the kind '{kind}' is unknown{nearest(kind, _KINDS)}")
        fitted.append(_fit(name, frame[name], kind or _kind(frame[name].dtype)))
    if len({column.name for column in fitted}) < len(fitted):
        raise InputError(f"columns {list(names)} name one column twice; name each once")
    return tuple(fitted)


def encode_columns(columns: Sequence[FeatureColumn], frame: pl.DataFrame | Mapping[str, Any]) -> FeatureTable:
    """Encode a frame's rows; categories unknown in training become code 0, nulls and NaN are marked missing.

    Text is parsed as numbers, truth values, dates or times where training had these, and as JSON lists for vectors.
    Errors: a missing column, cells that do not parse, vectors of another length, vectors with far larger numbers.
    """
    table = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(dict(frame), strict=False)
    arrays = {}
    for column in columns:
        if column.name not in table.columns:
            raise InputError(f"the rows have no column '{column.name}'{nearest(column.name, table.columns)}")
        arrays[column.name] = column.encode(table[column.name], len(table))
    return FeatureTable(tuple(columns), arrays)


def encode_context(
    columns: Sequence[ContextColumn], frame: pl.DataFrame | None, num_rows: int
) -> dict[str, NDArray[Any]] | None:
    """The context of a `types.Query` from a frame of `num_rows` rows: encoded values by key; None without columns.

    Columns that the frame lacks, or all without a frame, are missing. Errors: values that cannot be encoded.
    """
    if not columns:
        return None
    given = {} if frame is None else {name: frame[name] for name in frame.columns}
    return {column.key: column.encode(given.get(column.name), num_rows) for column in columns}


def _kind(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List | pl.Array):
        return "vector" if dtype.inner is not None and _is_number(dtype.inner) else "category"
    return "number" if _is_number(dtype) else "category"


def _is_number(dtype: Any) -> bool:
    return bool(dtype.is_numeric())


def _fit(name: str, series: pl.Series, kind: str) -> FeatureColumn:
    if kind == "category":
        values = label_lists(series).explode().drop_nulls().unique().sort()
        return FeatureColumn(name=name, kind="category", values=tuple(values.filter(values != "").to_list()))
    return _fit_numbers(name, series) if kind == "number" else _fit_vectors(name, series)


def _fit_numbers(name: str, series: pl.Series) -> FeatureColumn:
    written = _WRITTEN.get(series.dtype.base_type(), "number")
    numbers = _finite(name, series, written, fix=f"give {_EXAMPLES[written]}, or take the column as {name}:category")
    known = numbers[np.isfinite(numbers)]
    if len(known) == 0:
        raise InputError(f"column '{name}' holds no number; leave it out")
    with np.errstate(over="ignore"):
        spread = float(known.std())
    if not np.isfinite(spread):
        raise InputError(f"column '{name}' holds numbers up to {np.abs(known).max():g}; mend them, or scale them down")
    deviation = spread if spread > 0 else 1.0
    return FeatureColumn(name=name, kind="number", mean=float(known.mean()), deviation=deviation, written=written)


def _fit_vectors(name: str, series: pl.Series) -> FeatureColumn:
    if _kind(series.dtype) != "vector":
        raise InputError(f"column '{name}' is of type {series.dtype}; a vector column holds lists of numbers")
    cells = arrays_as_lists(series)
    lengths = cells.list.len().drop_nulls().unique().to_list()
    if len(lengths) != 1 or lengths[0] == 0:
        raise InputError(f"column '{name}' holds vectors of lengths {sorted(lengths)[:5]}; give vectors of one length")
    width = int(lengths[0])
    rows = cells.drop_nulls().explode().cast(pl.Float64).fill_null(np.nan).to_numpy().reshape(-1, width)
    known = np.abs(rows[np.isfinite(rows).all(axis=1)])
    largest = float(known.max(initial=0.0))
    # One scale for the whole vector, so that its direction stays.
    deviation = 1.0 if largest <= _FAR else largest * float(np.sqrt(np.mean((known / largest) ** 2)))
    return FeatureColumn(name=name, kind="vector", width=width, deviation=deviation)


def _finite(name: str, series: pl.Series, written: Written, *, fix: str) -> NDArray[np.float64]:
    """The numbers of a column, NaN where there is none. Errors: a value that is not a number."""
    cells = without_categories(unnamed(series))
    dtype = cells.dtype
    if dtype.is_nested() or dtype in (pl.Duration, pl.Binary, pl.Object):
        raise InputError(f"column '{name}' of type {dtype} holds no numbers; make it numbers, or leave it out")
    if written in ("date", "datetime") and dtype in (pl.Date, pl.Datetime):
        cells = cells.cast(pl.Date if written == "date" else pl.Datetime("us"))
    if dtype == pl.String:
        cells = cells.str.strip_chars().replace("", None)
    numbers = (pointed(cells) if dtype == pl.String else cells).cast(pl.Float64, strict=False)
    if written != "number" and dtype == pl.String:
        said = pl.Series([_of_text(text, written) for text in cells.to_list()], dtype=pl.Float64)
        numbers = said.zip_with(said.is_not_null(), numbers)
    wrong = cells.filter(numbers.is_null() & cells.is_not_null())
    if len(wrong):
        values = counted(len(wrong), "value that is no number", "values that are not numbers")
        raise InputError(f"column '{name}' holds {values}, such as {wrong[0]!r}; {fix}")
    return np.asarray(numbers.fill_null(np.nan).to_numpy(), np.float64)


def _of_text(text: str | None, written: Written) -> float | None:
    """A truth value, date or time as its number, None where the text does not parse."""
    text = (text or "").strip()
    if written == "truth":
        return {"true": 1.0, "false": 0.0}.get(text.lower())
    try:
        moment = datetime.fromisoformat(text)
        since = (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    return float(since.days if written == "date" else since // timedelta(microseconds=1))


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
    values = _finite(column.name, series, column.written, fix=f"give {_EXAMPLES[column.written]}")
    missing = ~np.isfinite(values)
    with np.errstate(over="ignore"):
        scaled = np.where(missing, 0.0, (np.where(missing, 0.0, values) - column.mean) / column.deviation)
    return np.stack([np.clip(scaled, -_FAR, _FAR), missing], axis=1).astype(np.float32)


def _vectors(column: FeatureColumn, series: pl.Series) -> NDArray[np.float32]:
    cells = _lists_of_numbers(column, series)
    lengths = cells.list.len().fill_null(0).to_numpy()
    rows = np.repeat(np.arange(len(cells)), lengths)
    numbers = cells.filter(lengths > 0).explode().fill_null(np.nan).to_numpy()
    known = cells.is_not_null().to_numpy().copy()
    known[rows[~np.isfinite(numbers)]] = False
    wrong = np.flatnonzero(known & (lengths != column.width))
    if len(wrong):
        found = counted(int(lengths[wrong[0]]), "number")
        raise InputError(
            f"column '{column.name}' row {wrong[0]} has {found}, training had {column.width}; give as many"
        )
    scaled = numbers[known[rows]].reshape(-1, column.width) / column.deviation
    far = np.flatnonzero((np.abs(scaled) > _LARGEST).any(axis=1))
    if len(far):
        row, most = np.flatnonzero(known)[far[0]], _LARGEST * column.deviation
        raise InputError(f"column '{column.name}' row {row} holds a number beyond {most:g}; scale it down")
    encoded = np.zeros((len(series), column.width + 1), np.float32)
    encoded[known, :-1], encoded[~known, -1] = scaled, 1
    return encoded


def _lists_of_numbers(column: FeatureColumn, series: pl.Series) -> pl.Series:
    """The cells of a vector column as lists of float64, those of text read as JSON. Errors: a cell that is no list."""
    cells, inner = arrays_as_lists(series), inner_type(series)
    if series.dtype == pl.Null or (inner is not None and (_is_number(inner) or inner == pl.Null)):
        return cells.cast(pl.List(pl.Float64))
    written = cells.to_list()
    lists = [_of_json(cell) if isinstance(cell, str) else None for cell in written]
    wrong = [cell for cell, found in zip(written, lists, strict=True) if cell is not None and found is None]
    if wrong:
        example = ", ".join(map(str, range(1, min(column.width, 3) + 1))) + (", ..." if column.width > 3 else "")
        raise InputError(
            f"column '{column.name}' holds {reprlib.repr(wrong[0])}, which is not a list of numbers; give a list of "
            f"{column.width} numbers, as [{example}]"
        )
    return pl.Series(lists, dtype=pl.List(pl.Float64))


def _of_json(text: str) -> list[float] | None:
    """The numbers of a JSON list, None where the text does not parse."""
    try:
        found = json.loads(text)
        numbers = isinstance(found, list) and all(type(value) in (int, float) for value in found)
        return [float(value) for value in found] if numbers else None
    except (ValueError, OverflowError, RecursionError):
        return None


_ENCODE: dict[Kind, Callable[[FeatureColumn, pl.Series], NDArray[Any]]] = {
    "category": _categories,
    "number": _numbers,
    "vector": _vectors,
}
