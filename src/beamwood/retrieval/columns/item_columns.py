"""Item columns for filters, as plain arrays that can be memory-mapped.

Shape legend: N items, L labels, E entries of all items' labels.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.cells.given_vectors import given_vectors, holds_vectors
from beamwood.data.cells.labels import label_lists
from beamwood.data.vocabularies.id_table import TextIds, restore_ids
from beamwood.errors import InputError, nearest
from beamwood.ragged import indptr_of, ranges
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.types import BoolArray
from beamwood.words import followed

__all__ = ["CATEGORY", "Column", "ItemColumns", "LabelColumn", "NumberColumn", "NumberKind"]

Arrays = dict[str, NDArray[Any]]
NumberKind = Literal["number", "truth", "time"]
"""The meaning of a column's numbers."""

CATEGORY = "category"
"""The column whose cells hold several labels with "|" between them."""
# From so many labels on they are coded by sorting.
_MANY = 10_000
# With more labels no suggestion for a wrong one is searched: comparing texts takes far longer than a search.
_COMPARED = 1000
# So few integers are compared one after another, which is faster than a table of those that occur.
_FEW = 8


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """`values` [N], int64 or float64; `present` bool[N], None where all are. A time is in microseconds since 1970."""

    kind: NumberKind
    values: NDArray[Any]
    present: BoolArray | None = None

    def arrays(self) -> Arrays:
        """The arrays that `ItemColumns.restore` reads."""
        return {"values": self.values} | ({} if self.present is None else {"present": self.present})

    def first(self, count: int) -> NumberColumn:
        """The cells of the first items; no copy."""
        return NumberColumn(self.kind, self.values[:count], None if self.present is None else self.present[:count])

    def compared(self, how: Callable[[Any, Any], Any], value: float) -> BoolArray:
        """bool[N], `how(cell, value)` where a cell has a value."""
        return self._where(how(self.values, value))

    def among(self, wanted: Sequence[int | float]) -> BoolArray:
        """bool[N], the cells that are one of the numbers."""
        if self.values.dtype == np.int64:
            # Together with floats numpy would round long integers.
            whole = [int(each) for each in wanted if isinstance(each, int) or each.is_integer()]
            wanted = [each for each in whole if -(2**63) <= each < 2**63]
        how: Literal["sort"] | None = "sort" if len(wanted) <= _FEW else None
        return self._where(np.isin(self.values, np.array(wanted, self.values.dtype), kind=how))

    def missing(self) -> BoolArray:
        """bool[N], the cells without a value."""
        return np.zeros(len(self.values), bool) if self.present is None else ~self.present

    def _where(self, found: BoolArray) -> BoolArray:
        return found if self.present is None else found & self.present

    def number(self, name: str, value: Any) -> int | float:
        """A condition's value as a number. Errors: a value of another type."""
        if self.kind == "truth" and isinstance(value, bool | np.bool_):
            return int(value)
        if self.kind == "number" and isinstance(value, int | float | np.number) and not isinstance(value, bool):
            if value != value:
                raise InputError(f"where: {name} is compared with NaN; write a number")
            if isinstance(value, int) and abs(value) > sys.float_info.max:
                raise InputError(f"where: {name} holds numbers up to {sys.float_info.max:.2g}; write a smaller one")
            return value.item() if isinstance(value, np.number) else value
        if self.kind == "time" and (stamp := _microseconds(value)) is not None:
            return stamp
        like = {"number": "numbers, such as 20", "truth": "true and false", "time": "times, such as '2026-01-31'"}
        fix = "; write true or false" if self.kind == "truth" else ""
        raise InputError(f"where: {name} holds {like[self.kind]}; {value!r} is none{fix}")


@dataclass(frozen=True, eq=False)
class LabelColumn:
    """Item i has the labels `codes[indptr[i]:indptr[i + 1]]`, label l the items `items[starts[l]:starts[l + 1]]`."""

    labels: TextIds
    indptr: NDArray[np.int64]
    codes: NDArray[np.int32]
    starts: NDArray[np.int64]
    items: NDArray[np.int32]
    kind = "labels"

    @classmethod
    def of(cls, lists: pl.Series) -> LabelColumn:
        """The column of lists of text; null and empty text are not labels."""
        frame = pl.DataFrame({"item": np.arange(len(lists), dtype=np.int32), "label": lists}).explode("label")
        frame = frame.filter(pl.col("label").is_not_null() & (pl.col("label") != ""))
        rows = frame["item"].to_numpy()
        # Only an item of several labels can have one twice.
        if (rows[1:] == rows[:-1]).any():
            frame = frame.unique(maintain_order=True)
            rows = frame["item"].to_numpy()
        names, codes = _coded(frame["label"])
        indptr = indptr_of(np.bincount(rows, minlength=len(lists)))
        starts = indptr_of(np.bincount(codes, minlength=len(names)))
        # Short integers are sorted by their digits, in one pass.
        short = codes.astype(np.uint16) if len(names) < 2**16 else codes
        return cls(TextIds.of(names), indptr, codes, starts, rows[np.argsort(short, kind="stable")].astype(np.int32))

    def arrays(self) -> Arrays:
        """The arrays that `ItemColumns.restore` reads."""
        own: Arrays = {"indptr": self.indptr, "codes": self.codes, "starts": self.starts, "items": self.items}
        return own | {f"labels.{name}": array for name, array in self.labels.arrays().items()}

    @property
    def num_items(self) -> int:
        """N."""
        return len(self.indptr) - 1

    def first(self, count: int) -> LabelColumn:
        """The cells of the first items, with all labels; itself for all items."""
        if count == self.num_items:
            return self
        kept = self.items < count
        counts = np.bincount(np.repeat(np.arange(len(self.labels)), np.diff(self.starts))[kept], None, len(self.labels))
        codes = self.codes[: self.indptr[count]]
        return LabelColumn(self.labels, self.indptr[: count + 1], codes, indptr_of(counts), self.items[kept])

    def missing(self) -> BoolArray:
        """bool[N], the items without a label."""
        return np.equal(self.indptr[1:], self.indptr[:-1])

    def codes_of(self, name: str, wanted: Sequence[Any]) -> NDArray[np.int32]:
        """int32[len(wanted)], the code of each label. Errors: a label that no item has."""
        found = self.labels.find(wanted)
        if found is None or (len(found) and found.min() < 0):
            plain = [isinstance(each, str) and each in self for each in wanted]
            wrong = wanted[plain.index(False)]
            if not len(self.labels):
                known = "; no item has one, as each cell of the column is empty"
            elif len(self.labels) <= _COMPARED:
                known = nearest(str(wrong), self.names, quoted=True)
            else:
                known = f"; {len(self.labels):,} are known, such as {self.labels.ids(np.zeros(1, int))[0]!r}"
            raise InputError(f"{name} {wrong!r} is unknown{known}")
        return found

    def __contains__(self, label: str) -> bool:
        found = self.labels.find([label])
        return found is not None and int(found[0]) >= 0

    @cached_property
    def names(self) -> list[str]:
        """All labels."""
        return self.labels.ids(np.arange(len(self.labels)))

    def having(self, codes: Iterable[int]) -> BoolArray:
        """bool[N], the items with any of the labels."""
        mask = np.zeros(self.num_items, bool)
        # Each label once: a caller may repeat one of half the items thousands of times.
        mask[self.items_of(dict.fromkeys(codes))] = True
        return mask

    def items_of(self, codes: Iterable[int]) -> NDArray[np.int32]:
        """int32[M], the items of the labels; an item of several as often."""
        parts = (self.items[self.starts[code] : self.starts[code + 1]] for code in codes)
        return np.concatenate([np.empty(0, np.int32), *parts])

    def lists(self) -> pl.Series:
        """The labels of each item, as lists of text."""
        names = np.asarray([*self.names], object)[self.codes]
        return pl.Series([each.tolist() for each in np.split(names, self.indptr[1:-1])], dtype=pl.List(pl.String))

    def of_item(self, item: int) -> list[int]:
        """The codes of an item's labels."""
        codes: list[int] = self.codes[self.indptr[item] : self.indptr[item + 1]].tolist()
        return codes

    def of_items(self, items: NDArray[np.int32]) -> NDArray[np.int32]:
        """int32[E], the codes of the items' labels, one item after another."""
        starts = self.indptr[items]
        return self.codes[ranges(starts, self.indptr[items + 1] - starts)]

    def most_common(self, items: NDArray[np.int32], count: int) -> list[tuple[int, int]]:
        """The codes of the most frequent labels of items, and how many have each; ties by the first that comes."""
        found, first, counts = np.unique(self.of_items(items), return_index=True, return_counts=True)
        best = np.lexsort((first, -counts))[:count]
        return list(zip(found[best].tolist(), counts[best].tolist(), strict=True))


def _coded(labels: pl.Series) -> tuple[pl.Series, NDArray[np.int32]]:
    """The distinct labels in order, and int32[E], which of them each is."""
    if len(labels) < _MANY or pl.select(pl.lit(labels).approx_n_unique()).item() * 2 < len(labels):
        names = labels.unique().sort()
        return names, labels.cast(pl.Enum(names)).to_physical().to_numpy().astype(np.int32)
    # Where most differ, as titles do, one sort takes less than two tables of them.
    order, codes = labels.arg_sort().to_numpy(), np.empty(len(labels), np.int32)
    ascending = labels.gather(order)
    first = ascending.ne_missing(ascending.shift())
    codes[order] = np.cumsum(first.to_numpy(), dtype=np.int32) - 1
    return ascending.filter(first), codes


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
                columns[about["name"]] = _labels(num_items, own, verify=verify)
            elif about["kind"] == "vector":
                columns[about["name"]] = VectorColumn.restore(num_items, own)
            elif about["kind"] in ("number", "truth", "time"):
                columns[about["name"]] = _numbers(num_items, about["kind"], own)
            else:
                raise InputError(f"an item column is of the kind {about['kind']!r}")
        return cls(num_items, columns)


def _column(series: pl.Series) -> Column:
    column = None if series.name == CATEGORY else _of_type(series)
    try:
        return LabelColumn.of(label_lists(series)) if column is None else column
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
        values = series.cast(pl.Int64 if whole else pl.Float64).fill_null(0).to_numpy()
        if not whole and np.isnan(values).any():
            known = ~np.isnan(values)
            present, values = known if present is None else present & known, np.where(known, values, 0)
        return NumberColumn("number", values, present)
    if dtype == pl.Boolean:
        return NumberColumn("truth", series.fill_null(False).cast(pl.Int64).to_numpy(), present)
    if dtype in (pl.Date, pl.Datetime):
        values = series.cast(pl.Datetime("us")).to_physical().fill_null(0).to_numpy()
        return NumberColumn("time", values, present)
    if dtype in (pl.String, pl.Categorical):
        return LabelColumn.of(series.cast(pl.String).reshape((-1, 1)).arr.to_list())
    return None


def _numbers(num_items: int, kind: NumberKind, arrays: Mapping[str, NDArray[Any]]) -> NumberColumn:
    values, present = arrays["values"], arrays.get("present")
    if values.shape != (num_items,) or values.dtype not in (np.int64, np.float64):
        raise InputError(f"an item column is {values.dtype} of shape {values.shape} for {num_items} items")
    if present is not None and (present.shape != (num_items,) or present.dtype != np.bool_):
        raise InputError("an item column's mask of present values is not one bool an item")
    return NumberColumn(kind, values, present)


def _labels(num_items: int, arrays: Mapping[str, NDArray[Any]], *, verify: bool) -> LabelColumn:
    parts = {"indptr": np.int64, "codes": np.int32, "starts": np.int64, "items": np.int32}
    for name, dtype in parts.items():
        if arrays[name].ndim != 1 or arrays[name].dtype != dtype:
            raise InputError(f"an item column's {name} are {arrays[name].dtype} of shape {arrays[name].shape}")
    table = restore_ids({n.removeprefix("labels."): array for n, array in arrays.items() if n.startswith("labels.")})
    if not isinstance(table, TextIds):
        raise InputError("the labels of an item column are not text")
    column = LabelColumn(table, arrays["indptr"], arrays["codes"], arrays["starts"], arrays["items"])
    if len(column.indptr) != num_items + 1 or len(column.starts) != len(table) + 1:
        raise InputError(f"an item column has {len(column.indptr) - 1} cells for {num_items} items")
    if verify:
        table.check()
        for stops, of, bound in (
            (column.indptr, column.codes, len(table)),
            (column.starts, column.items, num_items),
        ):
            if stops[0] != 0 or stops[-1] != len(of) or (np.diff(stops) < 0).any():
                raise InputError("the arrays of an item column are inconsistent")
            if len(of) and (of.min() < 0 or of.max() >= bound):
                raise InputError("an item column has entries out of range")
    return column


def _microseconds(value: Any) -> int | None:
    """The microseconds since 1970 of a date, datetime, numpy datetime or ISO 8601 text; None for anything else."""
    if isinstance(value, np.datetime64):
        # None for NaT.
        value = value.astype("datetime64[us]").item()
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    if not isinstance(value, dt.datetime):
        return None
    zone = value.tzinfo or dt.UTC
    return (value.replace(tzinfo=zone) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
