"""Reading an interaction log: who took what and when. Nothing is dropped unasked; what is wrong is an error.

Polars' streaming engine goes over the columns that are used, first to check them and then to convert them, so that
only the converted columns are ever whole in memory.

Budget: 100 bytes a row, so 10 GB for 100 million. Measured as resident memory at the peak on 5 million unsorted rows
with 250,000 users, 200,000 items, a time and 4 bytes a row that are no longer kept: reading takes 49 bytes a row from
Parquet with 32-bit ids, 62 with text ids, 68 from CSV; a `Dataset` of it, the log kept beside it, 88, 100 and 99.
"""

from __future__ import annotations

import math
import reprlib
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import polars as pl

from beamwood.data.columns import ColumnNames
from beamwood.data.source import Source, open_source, reading
from beamwood.data.times import time_expression
from beamwood.errors import InputError

__all__ = ["CONTEXT", "ColumnNames", "Log", "ReadReport", "id_expression", "read_log"]

# The one way to write a whole number: "007" and "+7" are other ids than 7.
_WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})$"
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64)
_TEXTS = (pl.String, pl.Binary, pl.Categorical, pl.Enum)
CONTEXT = "context."
_HISTORY, _FUTURE = ["history", "train", "true", "1"], ["future", "test", "false", "0"]


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What was read: rows of the source, and which column served as what.

    `duplicates` repeat another row and are kept; `time` says what orders a history, `weight` what the weights did.
    `below_min_weight` rows had too small a weight and are left out; `notes`: what else to look at.
    """

    source: str
    rows: int
    columns: dict[str, str]
    duplicates: int
    time: str
    weight: str = "none; each row counts once"
    below_min_weight: int = 0
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The report for machines."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people."""
        used = ", ".join(f"{role}={name}" for role, name in self.columns.items())
        lines = [f"{self.source}: {self.rows:,} rows ({used})", f"time: {self.time}"]
        if "weight" in self.columns:
            lines.append(f"weight: {self.weight}")
        if self.duplicates:
            lines.append(f"{self.duplicates:,} rows repeat another one exactly; kept")
        return lines + list(self.notes)


@dataclass(frozen=True)
class Log:
    """`frame` has the columns user, item, and time (Int64), history (Boolean) where known.

    Columns of the context are there as "context." and their name.
    """

    frame: pl.DataFrame
    report: ReadReport = field(repr=False)


def read_log(source: Any, *, columns: ColumnNames | None = None, min_weight: float | None = None) -> Log:
    """Read a log from a file, a pandas or Polars frame, or an Arrow table; see `open_source`.

    `columns.boundary` names a column that says which rows are a user's history (true, 1, "history", "train"). The
    others are the future to be predicted (false, 0, "future", "test"). `min_weight` keeps the rows of at least that
    weight, such as ratings from 4; without it weights are not read and each row counts once. Errors: `InputError`
    naming the file, the column, how many rows and the fix: columns that are missing or ambiguous, no rows, null ids,
    times, weights or boundaries that cannot be read.
    """
    table, columns = open_source(source), ColumnNames() if columns is None else columns
    if not isinstance(columns, ColumnNames):
        raise InputError(f"columns={reprlib.repr(columns)} is no ColumnNames; write ColumnNames(user=..., item=...)")
    chosen = columns.resolve(table.column_names, table.name, weighed=min_weight is not None)
    with reading(table.name):
        rows = int(table.frame.select(pl.len()).collect(engine="streaming").item())
    if rows == 0:
        raise InputError(f"{table.name} has no rows; give a log with at least two users")
    used: list[pl.Expr | None] = [id_expression(table, chosen[role], role) for role in ("user", "item")]
    time_kind = "none; the order of a user's rows is their order"
    if "time" in chosen:
        time, time_kind = time_expression(table, chosen["time"])
        used.append(time)
    if "boundary" in chosen:
        used.append(_boundary_expression(table, chosen["boundary"]))
    used += [table.column(name).alias(f"{CONTEXT}{name}") for name in dict.fromkeys(columns.context)]
    kept, weight_kind = _heavy_enough(table, chosen.get("weight"), min_weight)
    with reading(table.name):
        frame = kept.select(e for e in used if e is not None).collect(engine="streaming")
    left_out = rows - len(frame)
    duplicates, notes = _count_duplicates(frame), _swallowed(table, chosen)
    report = ReadReport(table.name, rows, chosen, duplicates, time_kind, weight_kind, left_out, notes)
    return Log(frame, report)


def id_expression(table: Source, name: str, role: str) -> pl.Expr:
    """Ids as they are, as the column `role`; whole numbers where the source is text and nothing is lost by it.

    Bytes are read as text. Errors: null, empty or not finite ids; numbers with fractions or beyond 64 bits; bytes that
    are no UTF-8; text with a line break in a text file; times finer than a microsecond; types that are no ids.
    """
    dtype, column = table.schema[name], table.column(name)
    if dtype in _TEXTS:
        return _text_ids(table, name, role).alias(role)
    missing = column.is_null()
    if dtype.is_float():
        missing = missing | ~column.is_finite()
    _refuse(table, name, missing, f"rows with no {role} id", "remove or fill them")
    # pandas makes floats of whole numbers once one is missing, a database makes decimals of them.
    if (dtype.is_float() or dtype.is_decimal()) and not _all(table, column == column.floor()):
        raise InputError(f"{table.name}: column '{name}' holds {role} ids that are not whole numbers; write them so")
    if dtype.is_float() or dtype.is_decimal() or dtype == pl.Int128:
        narrow = column.cast(pl.Int64, strict=False)
        _refuse(table, name, narrow.is_null(), f"{role} ids beyond 64 bits", "write them as text")
        return narrow.alias(role)
    if dtype == pl.Time or (isinstance(dtype, pl.Datetime) and dtype.time_unit == "ns"):
        finer = column.dt.nanosecond() % 1000 != 0
        _refuse(table, name, finer, f"{role} ids finer than a microsecond", "write them as text or whole numbers")
    if dtype in _INTEGERS or dtype in (pl.Date, pl.Time, pl.Datetime):
        return column.alias(role)
    raise InputError(f"{table.name}: column '{name}' of type {dtype} holds no {role} ids; use numbers or strings")


def _text_ids(table: Source, name: str, role: str) -> pl.Expr:
    dtype, column = table.schema[name], table.column(name).cast(pl.String)
    if dtype == pl.Binary:
        try:
            table.frame.select(column.str.len_bytes().sum()).collect(engine="streaming")
        except pl.exceptions.PolarsError as error:
            raise InputError(
                f"{table.name}: column '{name}' holds {role} ids of bytes that are no UTF-8; write them as text"
            ) from error
    missing = column.is_null() | (column.str.strip_chars().str.len_bytes() == 0)
    _refuse(table, name, missing, f"rows with no {role} id", "remove or fill them")
    if table.is_text:
        broken, fix = column.str.contains("\n", literal=True), "a quote without its pair swallows lines; mend it"
        _refuse(table, name, broken, f"{role} ids with a line break", fix)
    if dtype in (pl.Categorical, pl.Enum):
        return column
    return column.cast(pl.Int64) if _all(table, column.str.contains(_WHOLE_NUMBER)) else column


def _swallowed(table: Source, chosen: dict[str, str]) -> tuple[str, ...]:
    """What to look at in the columns of a text file that are not ids: in these, a cell of several lines is an error."""
    others = [name for name in table.column_names if name not in (chosen["user"], chosen["item"])]
    if not table.is_text or not others:
        return ()
    asked = [table.column(name).str.contains("\n", literal=True).sum().alias(name) for name in others]
    with reading(table.name):
        counts = table.frame.select(asked).collect(engine="streaming").row(0)
    return tuple(
        f"'{name}' has {count:,} cells of several lines; if they are no texts, a quote without its pair swallowed rows"
        for name, count in zip(others, counts, strict=True)
        if count
    )


def _heavy_enough(table: Source, name: str | None, at_least: float | None) -> tuple[pl.LazyFrame, str]:
    """The rows whose weight is at least the one given, all where none is given, and what the weights did, in words."""
    if at_least is None:
        said = "none" if name is None else f"'{name}', not used; --min-weight keeps the rows of at least a value"
        return table.frame, f"{said}; each row counts once"
    if not isinstance(at_least, int | float | np.integer | np.floating) or not math.isfinite(at_least):
        raise InputError(f"min_weight={at_least!r} is no finite number; give one, such as 4, or leave it out")
    if name is None:
        raise InputError(
            f"{table.name} has no column of weights for min_weight={at_least:g}; it has: "
            f"{', '.join(table.column_names)}. Name it with --weight-column"
        )
    weight = _weight_expression(table, name)
    with reading(table.name):
        largest, kept, rows = (
            table.frame.select(weight.max().alias("m"), (weight >= at_least).sum().alias("n"), pl.len().alias("rows"))
            .collect(engine="streaming")
            .row(0)
        )
    if not kept:
        raise InputError(
            f"{table.name}: no row has a '{name}' of at least min_weight={at_least:g}, the largest is {largest:g}; "
            "lower it"
        )
    said = f"'{name}' of at least {at_least:g}: {kept:,} rows kept, {rows - kept:,} left out; each row counts once"
    return table.frame.filter(weight >= at_least), said


def _weight_expression(table: Source, name: str) -> pl.Expr:
    dtype, column = table.schema[name], table.column(name)
    if not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean)):
        raise InputError(f"{table.name}: column '{name}' of type {dtype} holds no weights; use numbers")
    # A single-precision 0.7 is below the double-precision one, so it stays as it is.
    weight = column if dtype == pl.Float32 else column.cast(pl.Float64, strict=False)
    bad = ~weight.is_finite().fill_null(False)
    _refuse(table, name, bad, "weights that are not finite", "mend them or name another with --weight-column")
    return weight


def _boundary_expression(table: Source, name: str) -> pl.Expr:
    value = table.column(name).cast(pl.String).str.to_lowercase()
    history = value.is_in(_HISTORY)
    bad = ~(history | value.is_in(_FUTURE)).fill_null(False)
    _refuse(
        table,
        name,
        bad,
        "values that say neither history (train, true, 1) nor future (test, false, 0)",
        "mend them or name another",
    )
    return history.alias("history")


def _all(table: Source, condition: pl.Expr) -> bool:
    with reading(table.name):
        return bool(table.frame.select(condition.all()).collect(engine="streaming").item())


def _refuse(table: Source, name: str, bad: pl.Expr, what: str, fix: str) -> None:
    """Raise when any cell is `bad`, with the count and the first one."""
    with reading(table.name):
        count, rows = table.frame.select(bad.sum().alias("bad"), pl.len()).collect(engine="streaming").row(0)
    if not count:
        return
    row, value = table.first(name, bad)
    first = reprlib.repr(value) if isinstance(value, str | bytes) else repr(value)
    raise InputError(
        f"{table.name}: column '{name}' has {count} of {rows} {what}, the first {first} in row {row}; {fix}"
    )


def _count_duplicates(frame: pl.DataFrame) -> int:
    """Rows that equal another row in every column read, by a 64-bit hash: 8 bytes a row."""
    hashes = np.array(frame.hash_rows(0).to_numpy())
    hashes.sort()
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
