"""Reading an interaction log: who took what, when, how much. Nothing is dropped; what is wrong is an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from beamwood.errors import InputError

__all__ = ["ALIASES", "ColumnNames", "Log", "ReadReport", "open_table", "read_log"]

ALIASES: Mapping[str, tuple[str, ...]] = {
    "user": ("user_id", "user", "userid", "uid", "visitorid", "visitor_id", "customer_id", "session_id"),
    "item": ("item_id", "item", "itemid", "iid", "product_id", "movie_id", "movieid", "article_id", "asin"),
    "time": ("timestamp", "datetime", "time", "ts", "date", "event_time", "created_at"),
    "weight": ("rating", "weight", "score", "event_weight"),
}
SUFFIXES = ".parquet, .csv, .tsv (also .gz, .zst), .arrow, .feather, .ipc, .inter"
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".inter": "\t", ".txt": ","}


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The columns to read; None takes the first known alias, and reads no time or weight where there is none."""

    user: str | None = None
    item: str | None = None
    time: str | None = None
    weight: str | None = None
    boundary: str | None = None


@dataclass(frozen=True, slots=True)
class ReadReport:
    """What was read: rows, which column served as what, and what was noted on the way."""

    source: str
    rows: int
    columns: dict[str, str]
    duplicates: int
    time: str
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """The report for people."""
        used = ", ".join(f"{role}={name}" for role, name in self.columns.items())
        lines = [f"{self.source}: {self.rows:,} rows ({used})", f"time: {self.time}"]
        if self.duplicates:
            lines.append(f"{self.duplicates:,} rows repeat an earlier row exactly; kept")
        return lines + list(self.notes)


@dataclass(frozen=True)
class Log:
    """`frame` has the columns user, item, and time (int64), weight (float64), history (bool) where known."""

    frame: pl.DataFrame
    report: ReadReport = field(repr=False)


def read_log(source: Any, *, columns: ColumnNames | None = None) -> Log:
    """Read a log from a file, a pandas or Polars frame, or an Arrow table.

    `columns.boundary` names a column that says which rows are a user's history (true, 1, "history") and which the
    future to be predicted (false, 0, "future"). Errors: `InputError` naming the file, the column, how many rows and
    the fix. A file's other columns are not loaded: the peak is a few times the bytes of the columns read.
    """
    table, name = open_table(source)
    chosen = _choose_columns(table, columns or ColumnNames(), name)
    try:
        frame = table.select(pl.col(column).alias(role) for role, column in chosen.items()).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{name} cannot be read: {_first_line(error)}; is the file whole?") from None
    if frame.height == 0:
        raise InputError(f"{name} has no rows; give a log with at least two users")
    for role in ("user", "item"):
        frame = frame.with_columns(_ids(frame[role], role, chosen[role], name))
    frame, time_note = _with_times(frame, chosen.get("time"), name)
    frame = _with_weights(frame, chosen.get("weight"), name)
    if "boundary" in chosen:
        frame = _with_boundary(frame, chosen["boundary"], name)
    duplicates = frame.height - frame.unique().height
    return Log(frame, ReadReport(name, frame.height, chosen, duplicates, time_note))


def open_table(source: Any) -> tuple[pl.LazyFrame, str]:
    """A lazy table and the name that messages call it by. Text formats give all columns as strings."""
    if isinstance(source, pl.LazyFrame):
        return source, "the frame"
    if isinstance(source, pl.DataFrame):
        return source.lazy(), "the frame"
    if isinstance(source, str | Path):
        return _open_file(Path(source))
    if type(source).__module__.startswith("pandas"):
        return pl.from_pandas(source).lazy(), "the frame"
    if type(source).__module__.startswith("pyarrow"):
        frame = pl.from_arrow(source)
        assert isinstance(frame, pl.DataFrame)
        return frame.lazy(), "the table"
    raise InputError(f"a log of type {type(source).__name__} is not known; give a path, a frame or an Arrow table")


def _open_file(path: Path) -> tuple[pl.LazyFrame, str]:
    name = str(path)
    if not path.exists():
        raise InputError(f"{name} does not exist; check the path")
    if path.is_dir():
        raise InputError(f"{name} is a folder; name one file ({SUFFIXES})")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in (".gz", ".zst", ".zstd")
    suffix = suffixes[-2] if packed and len(suffixes) > 1 else (suffixes[-1] if suffixes else "")
    try:
        if suffix in (".parquet", ".pq"):
            table = pl.scan_parquet(path)
        elif suffix in (".arrow", ".feather", ".ipc"):
            table = pl.scan_ipc(path)
        elif suffix in _SEPARATORS:
            table = pl.scan_csv(path, separator=_SEPARATORS[suffix], infer_schema=False)
        else:
            raise InputError(f"{name} has the unknown ending '{suffix}'; known: {SUFFIXES}")
        names = table.collect_schema().names()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError(
            f"{name} cannot be read: {_first_line(error)}; is the file whole and of that format?"
        ) from None
    # RecBole writes "user_id:token".
    return table.rename({n: n.split(":")[0] for n in names if ":" in n} if suffix == ".inter" else {}), name


def _choose_columns(table: pl.LazyFrame, wanted: ColumnNames, name: str) -> dict[str, str]:
    present = table.collect_schema().names()
    lower = {column.lower(): column for column in reversed(present)}
    chosen = {}
    for role in ("user", "item", "time", "weight", "boundary"):
        given = getattr(wanted, role)
        if given is not None:
            if given not in present:
                raise InputError(f"{name} has no column '{given}' for the {role}; it has: {', '.join(present)}")
            chosen[role] = given
            continue
        found = next((lower[alias] for alias in ALIASES.get(role, ()) if alias in lower), None)
        if found is not None and found not in chosen.values():
            chosen[role] = found
        elif role in ("user", "item"):
            raise InputError(
                f"{name} has no {role} column; it has: {', '.join(present)}. Name it with --{role}-column "
                f"(known by themselves: {', '.join(ALIASES[role])})"
            )
    return chosen


def _ids(column: pl.Series, role: str, source_column: str, name: str) -> pl.Series:
    """A column of ids without nulls; text that is whole numbers throughout becomes integers."""
    missing = column.is_null()
    if column.dtype == pl.String:
        missing = missing | (column.str.strip_chars() == "")
    if column.dtype.is_float():
        missing = missing | column.is_nan()
    if bool(missing.any()):
        row = int(missing.arg_true()[0]) + 1
        raise InputError(
            f"{name}: column '{source_column}' has {int(missing.sum())} of {len(column)} rows without a {role} id, "
            f"the first in row {row}; remove or fill them"
        )
    if column.dtype.is_float():
        if not bool((column == column.round(0)).all()):
            raise InputError(f"{name}: column '{source_column}' holds {role} ids that are not whole numbers")
        return column.cast(pl.Int64).alias(role)
    # "007" is not 7: only text that integers print alike is read as integers, so that ids round-trip.
    if column.dtype == pl.String and bool(column.str.contains(r"^(0|-?[1-9]\d{0,17})$").all()):
        return column.cast(pl.Int64).alias(role)
    return column.alias(role)


def _with_times(frame: pl.DataFrame, source_column: str | None, name: str) -> tuple[pl.DataFrame, str]:
    """The frame with int64 `time`, or without one where the log has no order but its rows'."""
    if source_column is None:
        return frame, "none; the order of a user's rows is their order"
    column = frame["time"]
    if column.null_count() == len(column):
        return frame.drop("time"), f"'{source_column}' is empty; the order of a user's rows is their order"
    if column.dtype == pl.String:
        parsed, kind = _parse_times(column)
    elif column.dtype.is_temporal():
        parsed, kind = column.cast(pl.Datetime("us")).cast(pl.Int64), f"'{source_column}', {column.dtype}"
    elif column.dtype.is_float():
        parsed, kind = _whole(column.fill_nan(None)), f"'{source_column}'"
    elif column.dtype.is_integer():
        parsed, kind = column.cast(pl.Int64), f"'{source_column}'"
    else:
        raise InputError(f"{name}: column '{source_column}' of type {column.dtype} holds no times")
    bad = parsed.is_null()
    if bool(bad.any()):
        row = int(bad.arg_true()[0])
        raise InputError(
            f"{name}: column '{source_column}' has {int(bad.sum())} of {len(column)} times that cannot be read, the "
            f"first {column[row]!r} in row {row + 1}; give numbers or ISO dates, or name another with --time-column"
        )
    return frame.with_columns(parsed.alias("time")), kind


def _parse_times(column: pl.Series) -> tuple[pl.Series, str]:
    text = column.str.strip_chars()
    numbers = text.cast(pl.Float64, strict=False)
    if numbers.null_count() * 2 <= len(numbers):
        whole = text.cast(pl.Int64, strict=False)
        return (whole if whole.null_count() == 0 else _whole(numbers.fill_nan(None))), "numbers"
    best = numbers
    for form in (
        "%Y-%m-%dT%H:%M:%S%.f%#z",
        "%Y-%m-%dT%H:%M:%S%.f",
        "%Y-%m-%d %H:%M:%S%.f",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%d",
    ):
        parsed = text.str.to_datetime(form, strict=False, time_unit="us").cast(pl.Int64)
        if parsed.null_count() < best.null_count() or best is numbers:
            best = parsed
    return best.cast(pl.Int64, strict=False), "dates, in microseconds"


def _whole(column: pl.Series) -> pl.Series:
    """Numbers as int64: as they are where whole, else in millionths, which keeps their order."""
    scale = 1 if bool((column == column.round(0)).all()) else 1_000_000
    return (column * scale).round(0).cast(pl.Int64, strict=False)


def _with_weights(frame: pl.DataFrame, source_column: str | None, name: str) -> pl.DataFrame:
    if source_column is None:
        return frame
    weights = frame["weight"].cast(pl.Float64, strict=False)
    if weights.null_count() == len(weights):
        return frame.drop("weight")
    bad = weights.is_null() | ~weights.is_finite()
    if bool(bad.any()):
        row = int(bad.arg_true()[0])
        raise InputError(
            f"{name}: column '{source_column}' has {int(bad.sum())} of {len(weights)} weights that are not finite, "
            f"the first {frame['weight'][row]!r} in row {row + 1}; mend them or name another with --weight-column"
        )
    return frame.with_columns(weights)


def _with_boundary(frame: pl.DataFrame, source_column: str, name: str) -> pl.DataFrame:
    values = frame["boundary"].cast(pl.String).str.to_lowercase()
    history, future = values.is_in(["history", "true", "1"]), values.is_in(["future", "false", "0"])
    bad = ~(history | future).fill_null(False)
    if bool(bad.any()):
        row = int(bad.arg_true()[0])
        raise InputError(
            f"{name}: column '{source_column}' has {int(bad.sum())} values that say neither history (true, 1) nor "
            f"future (false, 0), the first {frame['boundary'][row]!r} in row {row + 1}"
        )
    return frame.drop("boundary").with_columns(history.alias("history"))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
