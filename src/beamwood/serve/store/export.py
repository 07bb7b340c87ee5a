"""Export of a store's events as a training log."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from beamwood.artefact.replace import PARQUET_MARK, whole_file
from beamwood.errors import InputError
from beamwood.serve.store.event import Id, Session
from beamwood.serve.store.protocol import HistoryStore, Record
from beamwood.steps import tell
from beamwood.words import counted

__all__ = ["export_events"]

_ROWS = 100_000


def export_events(
    store: HistoryStore, out: str | os.PathLike[str], *, erased: Callable[[], Collection[Id]] = tuple
) -> dict[str, int]:
    """Write the columns user, item, time, type and weight, ordered by time; return the counts of exported and omitted
    events.

    Events of sessions without a user, and of `erased()` items, are omitted, and those of users and items that are
    erased while events are read. The type is null if none was sent. Ids are integers if all are and fit into one type,
    else text; a line on stderr tells of numbers that became text. Errors: `InputError` if `out` does not end in
    .parquet, no user has an event, or the file cannot be written.
    """
    target = Path(out)
    if target.suffix != ".parquet":
        raise InputError(f"--out {out} does not end in .parquet; give a name such as log.parquet")
    latest = max(store.erased().values(), default=-math.inf)
    frame, left_out = _events(store)
    # Asked for once all is read. What a user did after an erasure is in the next export.
    frame = _without(frame, "user", [owner for owner in store.erased(latest) if not isinstance(owner, Session)])
    kept = _without(frame, "item", erased())
    frame, left_out = kept, left_out + len(frame) - len(kept)
    if len(frame) == 0:
        others = f"{left_out} of sessions or erased items"
        raise InputError(f"the store has no event of a user ({others}); send some to /v1/events first")
    ids = [_ids(frame, name) for name in ("user", "item")]
    ordered = frame.with_columns(ids).sort("time", "seq").select("user", "item", "time", "type", "weight")
    try:
        with whole_file(target) as fresh:
            ordered.write_parquet(fresh, metadata=PARQUET_MARK)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(f"--out {out} could not be written ({error}); an existing file is unchanged") from error
    return {"events": len(ordered), "left_out": left_out}


def _events(store: HistoryStore) -> tuple[pl.DataFrame, int]:
    """The events of users in the columns of `_SCHEMA`, and the number of those of sessions."""
    frames, of_sessions = [pl.DataFrame(schema=_SCHEMA)], 0
    records = iter(store.records())
    while rows := list(islice(records, _ROWS)):
        users = [row for row in rows if not isinstance(row.event.user, Session)]
        of_sessions += len(rows) - len(users)
        frames.append(pl.DataFrame(_cells(users), schema=_SCHEMA, orient="row"))
    return pl.concat(frames), of_sessions


def _without(frame: pl.DataFrame, name: str, gone: Collection[Id]) -> pl.DataFrame:
    """The rows without these ids as `name`, "user" or "item"."""
    columns = {name: [str(each) for each in gone], f"{name}_is_text": [isinstance(each, str) for each in gone]}
    ids = pl.DataFrame(columns, schema={column: _SCHEMA[column] for column in columns})
    return frame.join(ids, on=list(columns), how="anti")


def _ids(frame: pl.DataFrame, name: str) -> pl.Series:
    """The column of user or item ids, with a line about text among numbers."""
    texts = frame.filter(f"{name}_is_text")[name]
    if not len(texts):
        return _as_numbers(frame[name])
    if len(texts) < len(frame):
        odd = f"{len(texts):,} of {counted(len(frame), 'event')} have text as {name} id, such as {texts[0]!r}"
        tell(f"the column '{name}' is text: {odd}. A log with numbers needs them left out")
    return frame[name]


def _as_numbers(ids: pl.Series) -> pl.Series:
    """Whole numbers in text as integers of 64 bits, without a sign where they need that; text where neither fits."""
    tried = (ids.cast(dtype, strict=False) for dtype in (pl.Int64, pl.UInt64))
    return next((whole for whole in tried if not whole.null_count()), ids)


_SCHEMA: dict[str, Any] = {
    "user": pl.String,
    "user_is_text": pl.Boolean,
    "item": pl.String,
    "item_is_text": pl.Boolean,
    "time": pl.Datetime("us", "UTC"),
    "seq": pl.Int64,
    "type": pl.String,
    "weight": pl.Float64,
}


def _cells(rows: list[Record]) -> list[tuple[object, ...]]:
    return [
        (
            str(event.user),
            isinstance(event.user, str),
            str(event.item),
            isinstance(event.item, str),
            round(1e6 * event.time),
            row.seq,
            event.type or None,
            event.weight,
        )
        for row in rows
        for event in (row.event,)
    ]
