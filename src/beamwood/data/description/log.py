"""A description of a log: its contents, the rows that a fit uses, and the sizes of each split.

Memory grows with users and items, not with rows. Measures of whole histories (ties, repeats, splits) are exact up to
`MOST_ROWS` rows; beyond, they are measured on a sample of users, which the description states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.data.cells.decimals import with_points
from beamwood.data.cells.ids import likenesses, missing_cells
from beamwood.data.columns import ColumnNames
from beamwood.data.dataset import Dataset, ItemTable
from beamwood.data.description.shape import lengths, popularity
from beamwood.data.description.splits import chosen_split, describe_splits
from beamwood.data.description.table import describe_table
from beamwood.data.description.times import describe_times
from beamwood.data.description.words import description_lines
from beamwood.data.events import WEIGHT
from beamwood.data.files.layout import Layout
from beamwood.data.files.source import open_source, reading
from beamwood.data.log import CONTEXT, CheckedLog, Log, check_log, count_duplicates
from beamwood.data.tables import aligned, read_table
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.notebook import text

__all__ = ["MOST_ROWS", "describe_log", "outline_of"]

MOST_ROWS = 1_000_000
_LEAST_USERS = 1000
_MOST_VALUES = 10
_ROLES = ("user", "item", "time", "weight")


class Description(dict[str, Any]):
    """The JSON-able result of `describe_log`; a notebook shows it as lines."""

    def _repr_html_(self) -> str:
        return text(description_lines(self))


@naming_arguments
def describe_log(
    source: Any,
    items: Any = None,
    *,
    item_column: str | None = None,
    unlisted: Literal["error", "keep"] = "error",
    drop_duplicates: bool = False,
    most_rows: int = MOST_ROWS,
    **reading_options: Any,
) -> Description:
    """A JSON-able description of a log and of a table of `items`.

    The log is read by `check_log` with the `reading_options`, as in `read_log`, and made a `Dataset`, so a log that a
    fit refuses raises the same `InputError` here. `drop_duplicates` needs memory for each row. `most_rows`: rows up to
    which whole histories are measured exactly.
    """
    checked = check_log(source, **reading_options)
    rows = checked.rows.unique(maintain_order=True) if drop_duplicates else checked.rows
    counted = _Counted.of(checked, rows)
    one_in = max(1, min(counted.rows // max(most_rows, 1), len(counted.users) // _LEAST_USERS))
    log = _part(checked, rows, one_in)
    if one_in == 1:
        dataset = Dataset.from_log(log, items, item_column=item_column, unlisted=unlisted)
        table, report = dataset.item_table, dataset.report
    else:
        dataset = Dataset.from_log(log)
        table, report = _whole_table(checked, counted, items, item_column, unlisted)
        # With times, the lines about times count the ties already.
        report["notes"] += [dataset.report["order"]] if dataset.times is None and dataset.report["order"] else []
    splits = describe_splits(dataset, sampled=one_in > 1)
    basis = len(dataset.histories.items)
    told = {
        **outline_of(source, **{name: reading_options.get(name) for name in ("columns", "separator", "header")}),
        "users": _ids(counted.users, "user", checked),
        "items": _ids(counted.items, "item", checked),
        "times": describe_times(CheckedLog(checked.table, rows, checked.report)),
        "weights": _weights(checked),
        "taken": counted.rows,
        "left_out": checked.report.rows - counted.rows,
        "weight_words": checked.report.weight,
        "measured_on": {"rows": basis, "users": len(dataset.users), "one_user_in": one_in},
        "ties": dataset.report["ties"],
        "drawn": dataset.times is None and bool(dataset.report["order"]),
        **_repeats(dataset),
        "lengths": lengths(counted.user_rows),
        "popularity": popularity(counted.item_rows),
        "item_table": None if table is None else describe_table(table, report),
        "splits": splits,
        "split": chosen_split(splits),
        "notes": [*checked.report.notes, *report["notes"]],
    }
    return Description(told)


def outline_of(
    source: Any,
    columns: ColumnNames | None = None,
    *,
    separator: str | None = None,
    header: Sequence[str] | None = None,
) -> dict[str, Any]:
    """An outline of any table: rows, the type and role of each column, and the missing cells of those with a role."""
    table = open_source(source, Layout.of(separator, header))
    try:
        chosen = (ColumnNames() if columns is None else columns).resolve(table.column_names, table.name, weighed=False)
    except InputError:
        chosen = {}
    roles = {name: role for role, name in chosen.items()}
    asked = {role: chosen[role] for role in _ROLES if role in chosen}
    cells = [missing_cells(table, name, words=words).sum() for name in asked.values() for words in (False, True)]
    rows, *counts = table.measured(pl.len(), *cells)
    return {
        "source": table.name,
        "rows": rows,
        "columns": [
            {"name": name, "type": "text" if table.is_text else str(dtype), "role": roles.get(name)}
            for name, dtype in table.schema.items()
        ],
        "missing": {
            role: {"empty": empty, "words": also - empty}
            for role, empty, also in zip(asked, counts[::2], counts[1::2], strict=True)
        },
    }


@dataclass(frozen=True, slots=True)
class _Counted:
    """The distinct user and item ids, and the number of rows of each."""

    users: pl.Series
    user_rows: NDArray[np.int64]
    items: pl.Series
    item_rows: NDArray[np.int64]

    @property
    def rows(self) -> int:
        return int(self.user_rows.sum())

    @classmethod
    def of(cls, checked: CheckedLog, rows: pl.LazyFrame) -> _Counted:
        def count(role: str) -> tuple[pl.Series, NDArray[np.int64]]:
            with reading(checked.report.source):
                counted = rows.group_by(role).len().collect(engine="streaming").sort(role)
            return counted[role], counted["len"].to_numpy().astype(np.int64)

        return cls(*count("user"), *count("item"))


def _part(checked: CheckedLog, rows: pl.LazyFrame, one_in: int) -> Log:
    """All rows of one user in `one_in`, chosen by hash."""
    part = rows if one_in == 1 else rows.filter(pl.col("user").hash(0) % one_in == 0)
    with reading(checked.report.source):
        return Log(part.collect(engine="streaming"), checked.report)


def _whole_table(
    checked: CheckedLog, counted: _Counted, items: Any, item_column: str | None, unlisted: str
) -> tuple[ItemTable | None, dict[str, Any]]:
    """The table aligned with all items, and the report that the data set of all users would have."""
    logged = counted.items
    if items is None:
        return None, {"notes": [*likenesses(counted.users, "user"), *likenesses(logged, "item")]}
    table = read_table(items, item_column, Log(pl.DataFrame({"item": logged}), checked.report), "item")
    catalogue = Vocabulary.of(pl.concat([logged, table.frame["item"]]))
    report: dict[str, Any] = {"notes": [*likenesses(counted.users, "user"), *likenesses(catalogue.ids, "item")]}
    return aligned(table, catalogue, logged, unlisted, report), report


def _ids(ids: pl.Series, role: str, checked: CheckedLog) -> dict[str, Any]:
    """The number of distinct ids, their types as written and as read, and the first and last of them."""
    column = checked.report.columns[role]
    written = "text" if checked.table.is_text else str(checked.table.schema[column])
    examples = [str(ids[place]) for place in sorted({0, len(ids) - 1})]
    return {
        "number": len(ids),
        "column": column,
        "written_as": written,
        "read_as": "text" if ids.dtype == pl.String else str(ids.dtype),
        "examples": examples,
        "differ_only_by_looks": len(likenesses(ids, role)) > 0,
    }


def _weights(checked: CheckedLog) -> dict[str, Any] | None:
    """The range of the weights and, where there are few values, the count of each; None without a weight column."""
    name = checked.report.columns.get("weight")
    if name is None:
        return None
    column = checked.table.column(name)
    if checked.table.schema[name] == pl.String:
        with reading(checked.report.source):
            column, _ = with_points(checked.table.frame, column.str.strip_chars())
    given = checked.table.column(name).cast(pl.String, strict=False).str.strip_chars().str.len_bytes() > 0
    numbers = checked.table.frame.select(column.cast(pl.Float64, strict=False).alias("weight"), given.alias("given"))
    weight = pl.col("weight")
    is_number = weight.is_finite().fill_null(False)
    finite = weight.filter(is_number)
    with reading(checked.report.source):
        # The sum of large weights may not be a number.
        mean = pl.when(finite.len() > 0).then((finite / finite.len()).sum()).alias("mean")
        measures = finite.min().alias("least"), finite.max().alias("most"), mean, finite.len()
        no_number = (~is_number & pl.col("given")).sum().alias("none")
        least, most, mean, count, none = numbers.select(*measures, no_number).collect(engine="streaming").row(0)
        head = numbers.head(100_000).collect(engine="streaming")["weight"]
        few = None
        if head.filter(head.is_finite()).n_unique() <= _MOST_VALUES:
            counted = numbers.filter(is_number).group_by("weight").len()
            few = counted.collect(engine="streaming").sort("weight").head(_MOST_VALUES)
    values = [] if few is None else [{"value": each["weight"], "rows": each["len"]} for each in few.to_dicts()]
    range_of = {"least": least, "most": most, "mean": mean}
    return {"column": name, "numbers": count, "no_numbers": none, **range_of, "values": values}


def _repeats(dataset: Dataset) -> dict[str, int]:
    """The rows that duplicate another in all columns read, and the rows whose user also has the item in another row."""
    histories = dataset.histories
    rows = pl.DataFrame({"user": histories.rows, "item": histories.items})
    for name, column in (("time", dataset.times), ("history", dataset.in_history), (WEIGHT, dataset.weights)):
        rows = rows if column is None else rows.with_columns(pl.Series(name, column))
    rows = rows if dataset.context is None else rows.hstack(dataset.context.select(pl.all().name.prefix(CONTEXT)))
    return {"duplicates": count_duplicates(rows), "taken_again": len(histories.items) - len(histories.distinct().items)}
