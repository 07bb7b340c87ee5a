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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl

from beamwood.arguments import naming_arguments
from beamwood.data.boundary import boundary_expression, boundary_note
from beamwood.data.chosen import chosen_columns
from beamwood.data.columns import ColumnNames, with_article
from beamwood.data.decimals import COMMA, with_points
from beamwood.data.events import WEIGHT, EventKinds, event_note, last_was_negative, read_events
from beamwood.data.ids import count_of, id_expression, missing_cells, refuse
from beamwood.data.layout import Layout
from beamwood.data.source import Source, open_source, reading
from beamwood.data.time_text import ReadTimes
from beamwood.data.times import read_times, seems_time
from beamwood.errors import InputError, nearest
from beamwood.notebook import text
from beamwood.steps import step

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
    """What was read: rows of the source, and which column served as what.

    `duplicates` repeat another row; `time` says what orders a history, `weight` what the weights did. `left_out` rows
    had too small a weight, lacked something or, where that was asked for, repeated another. `notes`: what to look at.
    `time_unit`: what times count from 1970 that were read of dates; None of numbers, which are what they were; "order"
    of numbers with fractions that are no times.
    """

    source: str
    rows: int
    columns: dict[str, str]
    duplicates: int
    time: str
    weight: str = "none; each row counts once"
    left_out: int = 0
    notes: tuple[str, ...] = ()
    dropped_duplicates: bool = False
    time_unit: Literal["us", "ns", "order"] | None = None

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
            done = "left out" if self.dropped_duplicates else "kept (--drop-duplicates leaves them out)"
            lines.append(f"{self.duplicates:,} rows repeat another one exactly; {done}")
        return lines + list(self.notes)


@dataclass(frozen=True)
class Log:
    """`frame` has the columns user, item, and time (Int64), history (Boolean), event_weight (Float32) where known.

    Columns of the context are there as "context." and their name. `rejected`: pairs of user and item whose last event
    is a negative one. `kinds`: which events count and which are negative, each by its name, where that was said.
    """

    frame: pl.DataFrame
    report: ReadReport = field(repr=False)
    rejected: pl.DataFrame | None = None
    kinds: EventKinds | None = None

    def _repr_html_(self) -> str:
        return text(self.report.lines())


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A log of which all is checked and nothing is read yet.

    `rows` will give the columns of `Log.frame`, repeated rows among them; `report` does not count these and what is
    left out. `table`: the rows that are not left out as missing, as the source has them. `judged`: where some kinds of
    events are negative, the rows with them.
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

    `separator`: what is between the columns of a text file, such as ";" or "::", where its first lines do not tell.
    `header`: the names of columns, where a text file, an array or rows have none, as ["user", "item", "-", "time"].
    `events`: the kinds of events that count, of the column `columns.event`: a list, or weights as {"buy": 1, "view":
    0.3}; rows of other kinds are left out. `negative_events`: kinds that are in no history, but are kept as what users
    do not want.

    `columns.boundary` names a column that says which rows are a user's history (true, 1, "history", "train"). The
    others are the future to be predicted (false, 0, "future", "test"). `min_weight` keeps the rows of at least that
    weight, such as ratings from 4; without it weights are not read and each row counts once. `missing="drop"` leaves
    out rows without a user, an item or a time, or with a word for nothing there, such as nan or null.
    `drop_duplicates` leaves out rows that repeat another one in every column read. `time_format`: how times are
    written, such as "%d/%m/%Y %H:%M", where they are text that says no order by itself. Errors: `InputError` naming the
    file, the column, how many rows and the fix: columns that are missing or ambiguous, no rows, null ids, times,
    weights or boundaries that cannot be read.
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
    counted = replace(checked.report, duplicates=duplicates, left_out=left_out, dropped_duplicates=drop_duplicates)
    return Log(frame, counted, None if judged is None else last_was_negative(judged), checked.kinds)


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
    """All that `read_log` does before it reads the rows that it keeps, and with its errors; memory stays flat."""
    table, columns = open_source(source, Layout.of(separator, header)), ColumnNames() if columns is None else columns
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
    if kinds.are_said:
        table, weight, named, said_of_kinds = read_events(table, kinds)
        notes.append(said_of_kinds)
    else:
        notes += _advice(table, kinds, tuple(chosen.values()))
    split = None if "boundary" in chosen else boundary_note(table, chosen["user"], (*chosen.values(), *columns.context))
    notes += [] if split is None else [split]
    used, times, looked_at = _used(table, chosen, columns, time_format)
    used += [] if weight is None else [weight]
    kept, weight_kind = _heavy_enough(table, chosen.get("weight"), min_weight)
    notes += [*looked_at, *columns.notes(table.column_names, chosen), *_swallowed(whole, chosen)]
    report = ReadReport(
        table.name, rows, chosen, 0, times.words, weight=weight_kind, notes=tuple(notes), time_unit=times.unit
    )
    every = counting = kept.select(used)
    if weight is not None:
        counting = every.filter(pl.col(WEIGHT) > 0)
        counting = counting if kinds.weighed else counting.drop(WEIGHT)
    return CheckedLog(table, counting, report, every if kinds.negative else None, named)


def _check(columns: Any, missing: Any) -> None:
    """Errors: columns that are none, a word for missing cells that is none."""
    if not isinstance(columns, ColumnNames):
        raise InputError(f"columns={reprlib.repr(columns)} is no ColumnNames; write ColumnNames(user=..., item=...)")
    if missing not in MISSING:
        raise InputError(f"missing={missing!r} is unknown{nearest(str(missing), MISSING)}")


def _advice(table: Source, kinds: EventKinds, taken: Sequence[str]) -> list[str]:
    """A line on kinds of events that the log has and nobody asked for. Errors: a column named without kinds."""
    if kinds.column is not None:
        raise InputError(f"--event-column {kinds.column} has no use without --events, such as buy,view=0.3")
    advice = event_note(table, taken)
    return [] if advice is None else [advice]


def _refuse_forgotten_times(
    table: Source, columns: ColumnNames, chosen: dict[str, str], time_format: str | None
) -> None:
    """Errors: no column of times, though one seems to hold some; a format for none."""
    if "time" in chosen:
        return
    if time_format is not None:
        raise InputError(f"--time-format {time_format!r} is for a column of times; name it with --time-column")
    if columns.time is None:
        others = [name for name in table.column_names if name not in (*chosen.values(), *columns.context)]
        found = seems_time(table, others)
        if found is not None:
            raise InputError(
                f"{table.name} has no column of times by a usual name, but '{found[0]}' seems to hold some, such as "
                f"{found[1]!s}; say --time-column '{found[0]}', or --time-column none if the order of rows counts"
            )


def _used(
    table: Source, chosen: dict[str, str], columns: ColumnNames, time_format: str | None
) -> tuple[list[pl.Expr], ReadTimes, list[str]]:
    """What is read of each row, the times among it, and what to look at."""
    used, notes = list[pl.Expr](), list[str]()
    for role in ("user", "item"):
        ids, said = id_expression(table, chosen[role], role)
        used.append(ids)
        notes += said
    times = ReadTimes(None, "none; the order of a user's rows is their order")
    if "time" in chosen:
        times = read_times(table, chosen["time"], time_format)
    if times.time is not None:
        used.append(times.time)
    if "boundary" in chosen:
        used.append(boundary_expression(table, chosen["boundary"]))
    used += [table.column(name).alias(f"{CONTEXT}{name}") for name in dict.fromkeys(columns.context)]
    return used, times, notes


def _without_missing(table: Source, chosen: dict[str, str]) -> tuple[Source, list[str]]:
    """The rows with a user, an item and a time, and how many others there were."""
    cells = {
        role: missing_cells(table, chosen[role], words=True) for role in ("user", "item", "time") if role in chosen
    }
    with reading(table.name):
        asked = [cell.sum().alias(role) for role, cell in cells.items()]
        counts = table.frame.select(*asked, pl.len().alias("rows")).collect(engine="streaming").row(0, named=True)
    rows = counts.pop("rows")
    # A column of times without any is as none.
    cells = {role: cell for role, cell in cells.items() if role != "time" or counts[role] < rows}
    said = [f"{counts[role]:,} without {with_article(role)} ('{chosen[role]}')" for role in cells if counts[role]]
    if not said:
        return table, []
    kept = table.keeping(~pl.any_horizontal(cells.values()))
    left = count_of(kept, pl.len())
    if left == 0:
        raise InputError(f"{table.name}: each of its {rows} rows lacks something: {', '.join(said)}; mend the log")
    return kept, [f"{rows - left:,} rows are left out: {', '.join(said)}"]


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
    weight, pointed = _weight_expression(table, name)
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
    commas = ", read with decimal commas," if pointed else ""
    said = (
        f"'{name}'{commas} of at least {at_least:g}: {kept:,} rows kept, {rows - kept:,} left out; each row counts once"
    )
    return table.frame.filter(weight >= at_least), said


def _weight_expression(table: Source, name: str) -> tuple[pl.Expr, bool]:
    """The weights as numbers, and whether they were written with decimal commas."""
    dtype, column, pointed = table.schema[name], table.column(name), False
    if not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean)):
        raise InputError(f"{table.name}: column '{name}' of type {dtype} holds no weights; use numbers")
    # A single-precision 0.7 is below the double-precision one, so it stays as it is.
    weight = column if dtype == pl.Float32 else column.cast(pl.Float64, strict=False)
    other = "mend them or name another with --weight-column"
    if dtype == pl.String:
        with reading(table.name):
            bare, pointed = with_points(table.frame, column.str.strip_chars())
        commas = "weights with commas, for decimals or for thousands"
        refuse(table, name, bare.str.contains(COMMA), commas, "write them with a point")
        no_number = bare.is_not_null() & bare.cast(pl.Float64, strict=False).is_null()
        refuse(table, name, no_number, "weights that are no numbers", other)
        weight = bare.cast(pl.Float64, strict=False)
    refuse(table, name, ~weight.is_finite().fill_null(False), "weights that are missing or not finite", other)
    return weight, pointed


def count_duplicates(frame: pl.DataFrame) -> int:
    """Rows that equal another row in every column read, by a 64-bit hash: 8 bytes a row."""
    hashes = np.array(frame.hash_rows(0).to_numpy())
    hashes.sort()
    return int(np.count_nonzero(hashes[1:] == hashes[:-1]))
