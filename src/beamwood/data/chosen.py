"""The user, item and time columns of a table with one interaction a row."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from beamwood.data.cells.ids import count_of
from beamwood.data.columns import ColumnNames, MissingColumnError, find_column, plain_name
from beamwood.data.files.nested import rows_within
from beamwood.data.files.source import Source
from beamwood.errors import InputError
from beamwood.words import counted

__all__ = ["chosen_columns"]

# A table with more columns than this may be a matrix of items.
_WIDE = 20


def chosen_columns(table: Source, columns: ColumnNames, *, weighed: bool) -> dict[str, str]:
    """The column of each role. Errors: those of `ColumnNames.resolve`; nested rows; times split over several columns; a
    header line among the rows."""
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
    """Errors: header lines among the rows, as in concatenated files."""
    pairs = [(table.column(chosen[role]), chosen[role]) for role in ("user", "item")]
    again = pl.all_horizontal(column.str.strip_chars() == name.strip() for column, name in pairs)
    count = count_of(table, again.sum())
    if not count:
        return
    row, _ = table.first(chosen["user"], again)
    file = shlex.quote(table.name)
    raise InputError(
        f"{table.name}: {counted(count, 'row repeats', 'rows repeat')} the header line, the first row {row}; "
        f"remove them, as with: awk 'NR == 1 {{names = $0; print}} $0 != names' {file} > log{Path(table.name).suffix}"
    )


def _refuse_parts(name: str, there: list[str], columns: ColumnNames, chosen: Mapping[str, str]) -> None:
    """Errors: no time column was named, and year, month and day are columns of their own."""
    if columns.time is not None:
        return
    parts = {_part(each): each for each in there if each not in (chosen["user"], chosen["item"])}
    found = [parts[part] for part in ("year", "month", "day", "hour", "minute", "second") if part in parts]
    if not {"year", "month", "day"} <= {*parts} or chosen.get("time") not in (None, *found):
        return
    asked = ", ".join(repr(each) for each in found)
    raise InputError(
        f"{name} has its times in several columns: {', '.join(found)}; write them as one, as Polars does by "
        f".with_columns(time=pl.datetime({asked})), or use --time-column none if the order of rows counts"
    )


def _matrix(table: Source, columns: ColumnNames) -> str:
    """The advice for a wide table whose columns may be items; "" for others."""
    there = table.column_names
    if len(there) <= _WIDE or columns.item is not None:
        return ""
    if all(isinstance(dtype, pl.List) for dtype in table.schema.values()):
        return (
            f"; it has {len(there):,} columns, such as {', '.join(there[:4])}. If each is a user with a list of items, "
            'write a row for each item, as Polars does by .unpivot(variable_name="user_id", value_name="item_id")'
            '.explode("item_id")'
        )
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
