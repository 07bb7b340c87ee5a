"""Which columns of a table are the users, the items and the times, where its rows say so one by one."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from beamwood.data.columns import ColumnNames, MissingColumnError, find_column, plain_name
from beamwood.data.ids import count_of
from beamwood.data.nested import rows_within
from beamwood.data.source import Source
from beamwood.errors import InputError

__all__ = ["chosen_columns"]

# More columns than a log has.
_WIDE = 20


def chosen_columns(table: Source, columns: ColumnNames, *, weighed: bool) -> dict[str, str]:
    """The column of each role. Errors: those of `ColumnNames.resolve`; rows in rows; times in several columns; a
    line of names among the rows."""
    schema = table.schema
    try:
        chosen = columns.resolve(list(schema), table.name, weighed=weighed)
    except MissingColumnError as error:
        within = rows_within(table.name, schema) or _matrix(table, columns)
        if within:
            raise InputError(error.lacks + within) from None
        raise
    _refuse_parts(table.name, list(schema), columns, chosen)
    if table.is_text:
        _refuse_names_again(table, chosen)
    return chosen


def _refuse_names_again(table: Source, chosen: Mapping[str, str]) -> None:
    """Errors: rows that say the names of the columns, as of files that were put together."""
    pairs = [(table.column(chosen[role]), chosen[role]) for role in ("user", "item")]
    again = pl.all_horizontal(column.str.strip_chars() == name.strip() for column, name in pairs)
    count = count_of(table, again.sum())
    if not count:
        return
    row, _ = table.first(chosen["user"], again)
    file = shlex.quote(table.name)
    raise InputError(
        f"{table.name}: {count:,} rows are the line of names again, the first row {row}; leave them out, as with: "
        f"awk 'NR == 1 {{names = $0; print}} $0 != names' {file} > log{Path(table.name).suffix}"
    )


def _refuse_parts(name: str, there: list[str], columns: ColumnNames, chosen: Mapping[str, str]) -> None:
    """Errors: no column of times was named, and the year, the month and the day have a column each."""
    if columns.time is not None:
        return
    parts = {_part(each): each for each in there if each not in (chosen["user"], chosen["item"])}
    found = [parts[part] for part in ("year", "month", "day", "hour", "minute", "second") if part in parts]
    if not {"year", "month", "day"} <= {*parts} or chosen.get("time") not in (None, *found):
        return
    asked = ", ".join(repr(each) for each in found)
    raise InputError(
        f"{name} has its times in several columns: {', '.join(found)}; write them as one, as Polars does by "
        f".with_columns(time=pl.datetime({asked})), or say --time-column none if the order of rows counts"
    )


def _matrix(table: Source, columns: ColumnNames) -> str:
    """What to do about a wide table of users, whose columns may be the items, in words; nothing about others."""
    there = table.column_names
    if len(there) <= _WIDE or columns.item is not None:
        return ""
    user = columns.user if columns.user is not None else find_column("user", None, there, table.name)
    index = there[0] if user is None else user
    code = f'.unpivot(index="{index}", variable_name="item_id", value_name="rating").drop_nulls()'
    if Path(table.name).suffix.lower() == ".csv":
        made = shlex.quote(
            f"import polars as pl; pl.read_csv('{table.name}'){code}.write_csv('rows.csv')".replace("'", '"')
        )
        code = f"python3 -c {made}"
    return (
        f"; it has {len(there):,} columns, such as {', '.join(there[:4])}. If each is an item, write a row for each "
        f"value, as with: {code}"
    )


def _part(name: str) -> str:
    return plain_name(name).split("_")[-1]
