"""Reading an interaction log: users, items, times. No row is dropped silently; invalid data is an error.

Polars' streaming engine checks the used columns in a first pass and converts them in a second, so that only the
converted columns are ever whole in memory.

Memory budget: 100 bytes a row, so 10 GB for 100 million rows, for reading the log and the `Dataset` of it together.
"""

from __future__ import annotations

import math
import reprlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from beamwood.arguments import naming_arguments
from beamwood.data.boundary import boundary_expression, boundary_note
from beamwood.data.cells.decimals import COMMA, with_points
from beamwood.data.cells.first_day import first_day_notes
from beamwood.data.cells.ids import count_of, id_expression, missing_cells, refuse
from beamwood.data.cells.time_text import ReadTimes
from beamwood.data.cells.times import notes_of_times, read_times, seems_time
from beamwood.data.chosen import chosen_columns
from beamwood.data.columns import ColumnNames, with_article
from beamwood.data.events import WEIGHT, EventKinds, event_note, last_was_negative, read_events
from beamwood.data.files.layout import Layout
from beamwood.data.files.source import Source, open_source, reading
from beamwood.errors import InputError, nearest
from beamwood.notebook import text
from beamwood.steps import step
from beamwood.words import counted

__all__ = [
    "CONTEXT",
    "MISSING",
    "CheckedLog",
    "ColumnNames",
    "Log",
    "ReadReport",
    "check_log",
    "count_duplicates",
    "read_log",
]

MISSING = ("error", "drop")

CONTEXT = "context."


@dataclass(frozen=True, slots=True)
class ReadReport:
    """A report of the reading: the rows of the source, and the column of each role.

    `duplicates`: rows that repeat another; `time`: what orders a history; `weight`: how weights were used. `left_out`:
    rows with too small a weight, missing cells or, with `drop_duplicates`, repeats. `notes`: for the user to check.
    `time_unit`: the unit since 1970 of times read from dates; None for numbers, which are kept; "order" for numbers
    with fractions that only order rows. `time_scale`: the factor of numbers with fractions. `read_at`: when the reading
    began, in seconds since 1970.
    """

    source: str
    rows: int
    columns: dict[str, str]
    duplicates: int
    time: str
    read_at: float = field(compare=False)
    weight: str = "none; each row counts once"
    left_out: int = 0
    notes: tuple[str, ...] = ()
    dropped_duplicates: bool = False
    time_unit: Literal["us", "ns", "order"] | None = None
    time_scale: int = 1

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-able data."""
        return asdict(self)

    def lines(self) -> list[str]:
        """The report as lines of text."""
        used = ", ".join(f"{role}={name}" for role, name in self.columns.items())
        lines = [f"{self.source}: {counted(self.rows, 'row')} ({used})", f"time: {self.time}"]
        if "weight" in self.columns:
            lines.append(f"weight: {self.weight}")
        if self.duplicates:
            done = "left out" if self.dropped_duplicates else "kept (--drop-duplicates leaves them out)"
            lines.append(f"{counted(self.duplicates, 'row repeats', 'rows repeat')} another one exactly; {done}")
        return lines + list(self.notes)


@dataclass(frozen=True, eq=False)
class Log:
    """`frame` has the columns user, item, and time (Int64), history (Boolean), event_weight (Float32) where known.

    Context columns have the prefix "context.". `rejected`: user-item pairs whose last event is negative. `kinds`: the
    event kinds that count or are negative, where they were given.
    """

    frame: pl.DataFrame
    report: ReadReport = field(repr=False)
    rejected: pl.DataFrame | None = None
    kinds: EventKinds | None = None

    def _repr_html_(self) -> str:
        return text(self.report.lines())


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A log that is checked but not yet read.

    `rows`: lazily the columns of `Log.frame`, with duplicates; `report` does not yet count duplicates and rows left
    out. `table`: the source without rows dropped as missing. `judged`: where some event kinds are negative, the rows
    including these.
    """

    table: Source
    rows: pl.LazyFrame
    report: ReadReport
    judged: pl.LazyFrame | None = None
    kinds: EventKinds | None = None


@naming_arguments
def read_log(
    source: Any,
    *,
    columns: ColumnNames | None = None,
    min_weight: float | None = None,
    missing: Literal["error", "drop"] = "error",
    drop_duplicates: bool = False,
    time_format: str | None = None,
    separator: str | None = None,
    header: Sequence[str] | None = None,
    events: Mapping[str, float] | Sequence[str] | None = None,
    negative_events: Sequence[str] = (),
) -> Log:
    """Read a log from a file, a folder of its parts, a frame of pandas or Polars, an Arrow table, arrays, lists of rows
    or a sparse matrix; see `open_source`.

    `separator`: of the columns of a text file, such as ";" or "::", where it cannot be detected. `header`: the column
    names, where a text file, an array or rows have none, as ["user", "item", "-", "time"]. `events`: the kinds in the
    column `columns.event` that count, as a list, or with weights as {"buy": 1, "view": 0.3}; rows of other kinds are
    left out. `negative_events`: kinds that enter no history, but are kept as negative feedback.

    `columns.boundary` names a column that marks rows as a user's history (true, 1, "history", "train") or as the future
    to predict (false, 0, "future", "test"). `min_weight` keeps the rows of at least that weight, such as ratings from
    4, and negative events; without it weights are not read and each row counts once. `missing="drop"` leaves out rows
    whose user, item or time is missing or a null word, such as nan. `drop_duplicates` leaves out rows that repeat
    another one in every column read. `time_format`: of text times that are ambiguous, such as "%d/%m/%Y %H:%M". Errors:
    `InputError` with the file, the column, the number of rows and the fix: on missing or ambiguous columns, no rows,
    null ids, and unreadable times, weights or boundaries.
    """
    checked = check_log(
        source,
        columns=columns,
        min_weight=min_weight,
        missing=missing,
        time_format=time_format,
        separator=separator,
        header=header,
        events=events,
        negative_events=negative_events,
    )
    with step(f"reading {checked.report.source}"), reading(checked.report.source):
        frame = checked.rows.collect(engine="streaming")
        judged = None if checked.judged is None else checked.judged.collect(engine="streaming")
    duplicates = count_duplicates(frame)
    if drop_duplicates and duplicates:
        frame = frame.unique(maintain_order=True)
    left_out = checked.report.rows - len(frame)
    report = replace(checked.report, duplicates=duplicates, left_out=left_out, dropped_duplicates=drop_duplicates)
    return Log(frame, report, None if judged is None else last_was_negative(judged), checked.kinds)


@naming_arguments
def check_log(
    source: Any,
    *,
    columns: ColumnNames | None = None,
    min_weight: float | None = None,
    missing: Literal["error", "drop"] = "error",
    time_format: str | None = None,
    separator: str | None = None,
    header: Sequence[str] | None = None,
    events: Mapping[str, float] | Sequence[str] | None = None,
    negative_events: Sequence[str] = (),
) -> CheckedLog:
    """All checks of `read_log`, with its errors, before any row is collected; memory stays constant."""
    read_at, columns = time.time(), ColumnNames() if columns is None else columns
    table = open_source(source, Layout.of(separator, header))
    _check(columns, missing)
    chosen = chosen_columns(table, columns, weighed=min_weight is not None)
    kinds = EventKinds.of(columns.event, events, negative_events)
    _refuse_forgotten_times(table, columns, chosen, time_format)
    rows = count_of(table, pl.len())
    if rows == 0:
        raise InputError(f"{table.name} has no rows; give a log with at least two users")
    whole, notes = table, [*table.notes]
    if missing == "drop":
        table, said = _without_missing(table, chosen)
        notes += said
    named, weight = None, None
    if kinds.are_given:
        table, weight, named, said_of_kinds = read_events(table, kinds)
        notes.append(said_of_kinds)
    else:
        notes += _advice(table, kinds, tuple(chosen.values()))
    split = None if "boundary" in chosen else boundary_note(table, chosen["user"], (*chosen.values(), *columns.context))
    notes += [*([] if split is None else [split]), *notes_of_times(table, columns, chosen)]
    used, times, looked_at = _used(table, chosen, columns, time_format)
    used += [] if weight is None else [weight]
    kept, weight_kind = _heavy_enough(table, chosen.get("weight"), min_weight, None if weight is None else weight == 0)
    notes += [*looked_at, *columns.notes(table.column_names, chosen), *_swallowed(whole, chosen)]
    report = ReadReport(
        table.name,
        rows,
        chosen,
        0,
        times.words,
        weight=weight_kind,
        notes=tuple(notes),
        time_unit=times.unit,
        time_scale=times.scale,
        read_at=read_at,
    )
    every = counting = kept.select(used)
    if weight is not None:
        counting = every.filter(pl.col(WEIGHT) > 0)
        counting = counting if kinds.weighed else counting.drop(WEIGHT)
    return CheckedLog(table, counting, report, every if kinds.negative else None, named)


def _check(columns: Any, missing: Any) -> None:
    """Errors: `columns` of another type, an unknown value of `missing`."""
    if not isinstance(columns, ColumnNames):
        raise InputError(f"columns={reprlib.repr(columns)} is not a ColumnNames; write ColumnNames(user=..., item=...)")
    if missing not in MISSING:
        raise InputError(f"missing={missing!r} is unknown{nearest(str(missing), MISSING)}")


def _advice(table: Source, kinds: EventKinds, taken: Sequence[str]) -> list[str]:
    """A note about event kinds in the log where none were given. Errors: an event column named without kinds."""
    if kinds.column is not None:
        raise InputError(f"--event-column {kinds.column} has no use without --events, such as buy,view=0.3")
    advice = event_note(table, taken)
    return [] if advice is None else [advice]


def _refuse_forgotten_times(
    table: Source, columns: ColumnNames, chosen: dict[str, str], time_format: str | None
) -> None:
    """Errors: no time column, though one seems to hold times; a time format without a time column."""
    if "time" in chosen:
        return
    if time_format is not None:
        raise InputError(f"--time-format {time_format!r} is for a column of times; name it with --time-column")
    if columns.time is None:
        others = [name for name in table.column_names if name not in (*chosen.values(), *columns.context)]
        found = seems_time(table, others)
        if found is not None:
            raise InputError(
                f"{table.name} has no time column by a usual name, but '{found[0]}' seems to hold times, such as "
                f"{found[1]!s}; use --time-column '{found[0]}', or --time-column none if the order of rows counts"
            )


def _used(
    table: Source, chosen: dict[str, str], columns: ColumnNames, time_format: str | None
) -> tuple[list[pl.Expr], ReadTimes, list[str]]:
    """The expressions to read, the times among them, and notes."""
    used, notes = list[pl.Expr](), list[str]()
    for role in ("user", "item"):
        ids, said = id_expression(table, chosen[role], role)
        used.append(ids)
        notes += said
    times = ReadTimes(None, "none; the order of a user's rows is their order")
    if "time" in chosen:
        times = read_times(table, chosen["time"], time_format)
        notes += first_day_notes(table, chosen["time"], times)
    if times.time is not None:
        used.append(times.time)
    if "boundary" in chosen:
        used.append(boundary_expression(table, chosen["boundary"]))
    used += [table.column(name).alias(f"{CONTEXT}{name}") for name in dict.fromkeys(columns.context)]
    return used, times, notes


def _without_missing(table: Source, chosen: dict[str, str]) -> tuple[Source, list[str]]:
    """The rows with a user, an item and a time, and a note that counts the others."""
    cells = {
        role: missing_cells(table, chosen[role], words=True) for role in ("user", "item", "time") if role in chosen
    }
    rows, *found = table.measured(pl.len(), *(cell.sum() for cell in cells.values()))
    counts = dict(zip(cells, found, strict=True))
    # A time column without any value is ignored.
    cells = {role: cell for role, cell in cells.items() if role != "time" or counts[role] < rows}
    said = [f"{counts[role]:,} without {with_article(role)} ('{chosen[role]}')" for role in cells if counts[role]]
    if not said:
        return table, []
    kept = table.keeping(~pl.any_horizontal(cells.values()))
    left = count_of(kept, pl.len())
    if left == 0:
        raise InputError(f"{table.name}: each of its {rows} rows lacks something: {', '.join(said)}; mend the log")
    return kept, [f"{counted(rows - left, 'row is', 'rows are')} left out: {', '.join(said)}"]


def _swallowed(table: Source, chosen: dict[str, str]) -> tuple[str, ...]:
    """Notes about multi-line cells in the columns of a text file other than ids, where these are errors."""
    others = [name for name in table.column_names if name not in (chosen["user"], chosen["item"])]
    if not table.is_text or not others:
        return ()
    counts = table.measured(*(table.column(name).str.contains("\n", literal=True).sum() for name in others))
    return tuple(
        f"'{name}' has {counted(count, 'cell')} of several lines; if not texts, an unmatched quote swallowed rows"
        for name, count in zip(others, counts, strict=True)
        if count
    )


def _heavy_enough(
    table: Source, name: str | None, at_least: float | None, negative: pl.Expr | None
) -> tuple[pl.LazyFrame, str]:
    """The rows of at least the given weight, all without one, and how the weights were used, in words.

    Rows of `negative` events need no weight.
    """
    if at_least is None:
        if name is None:
            return table.frame, "none; each row counts once"
        numbers = table.schema[name].is_numeric() or table.schema[name] == pl.String
        below = table.column(name).cast(pl.Float64, strict=False) < 0
        lower = count_of(table, below.sum()) if numbers else 0
        also = f", also the {lower:,} below 0" if lower else ""
        said = f"'{name}', not used; --min-weight keeps the rows of at least a value"
        return table.frame, f"{said}; each row counts once{also}"
    if not isinstance(at_least, int | float | np.integer | np.floating) or not math.isfinite(at_least):
        raise InputError(f"min_weight={at_least!r} is not a finite number; give one, such as 4, or leave it out")
    if name is None:
        raise InputError(
            f"{table.name} has no column of weights for min_weight={at_least:g}; it has: "
            f"{', '.join(table.column_names)}. Name it with --weight-column"
        )
    counting = table if negative is None else table.keeping(~negative)
    weight, pointed = _weight_expression(counting, name)
    heavy = weight >= at_least
    largest, kept, rows = counting.measured(weight.max(), heavy.sum(), pl.len())
    if not kept:
        raise InputError(
            f"{table.name}: no row has a '{name}' of at least min_weight={at_least:g}, the largest is {largest:g}; "
            "lower it"
        )
    commas = ", read with decimal commas," if pointed else ""
    said = (
        f"'{name}'{commas} of at least {at_least:g}: {kept:,} rows kept, {rows - kept:,} left out; each row counts once"
    )
    return table.frame.filter(heavy if negative is None else heavy | negative), said


def _weight_expression(table: Source, name: str) -> tuple[pl.Expr, bool]:
    """The weights as numbers, and whether they were written with decimal commas."""
    dtype, column, pointed = table.schema[name], table.column(name), False
    if not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean)):
        raise InputError(f"{table.name}: column '{name}' of type {dtype} holds no weights; use numbers")
    # Float32 0.7 is below float64 0.7, so float32 weights are compared as float32.
    weight = column if dtype == pl.Float32 else column.cast(pl.Float64, strict=False)
    other = "mend them or name another with --weight-column"
    if dtype == pl.String:
        with reading(table.name):
            bare, pointed = with_points(table.frame, column.str.strip_chars())
        commas = "weights with commas, for decimals or for thousands"
        refuse(table, name, bare.str.contains(COMMA), commas, "write them with a point")
        no_number = bare.is_not_null() & bare.cast(pl.Float64, strict=False).is_null()
        refuse(table, name, no_number, "weights that are not numbers", other)
        weight = bare.cast(pl.Float64, strict=False)
    refuse(table, name, ~weight.is_finite().fill_null(False), "weights that are missing or not finite", other)
    return weight, pointed


def count_duplicates(frame: pl.DataFrame) -> int:
    """The rows that equal another row in every column read, by a 64-bit hash: 8 bytes a row."""
    hashes = np.array(frame.hash_rows(0).to_numpy())
    hashes.sort()
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
