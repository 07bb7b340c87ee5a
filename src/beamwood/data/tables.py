"""Tables of items and users beside a log: their ids as the log writes them, aligned with an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.cells.given_vectors import given_vectors
from beamwood.data.cells.ids import id_expression, null_words, same_but_for_looks
from beamwood.data.cells.labels import SEPARATOR, label_lists
from beamwood.data.columns import find_column, plain_name, squashed
from beamwood.data.files.layout import OF_TABLES
from beamwood.data.files.source import Source, open_source, reading
from beamwood.data.kept_columns import kept_column, kept_name
from beamwood.data.log import Log
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError
from beamwood.words import counted

__all__ = ["ItemTable", "Table", "aligned", "aligned_users", "check_kept", "read_table"]

# Names, as `squashed`, of columns that often hold categories, but are not read as such.
_NEAR_CATEGORY = {
    *("categories", "categoryid", "categoryids", "categoryname", "cat", "genre", "genres", "itemcategory"),
    *("maincategory", "productcategory", "subcategory"),
}


@dataclass(frozen=True)
class ItemTable:
    """Columns of items, aligned with the item index.

    `category_labels`: each item's categories joined with "|" (null for none), or None without such a column.
    `categories` int32[N]: the number of the first category, -1 for none.
    """

    frame: pl.DataFrame
    categories: NDArray[np.int32]
    category_labels: pl.Series | None
    kept: tuple[str, ...] = ()

    def filtered_by(self) -> pl.DataFrame:
        """The columns that filters of a fitted retriever may ask for: those that are `kept`, and the categories."""
        labels = [] if self.category_labels is None else [self.category_labels.alias("category")]
        own = [kept_column(self.frame, name) for name in dict.fromkeys(self.kept) if kept_name(name) != "category"]
        return pl.DataFrame([*own, *labels])

    def vectors(self, column: str) -> NDArray[np.float32]:
        """float32[N, F], a column of lists of numbers of one length; zeros where an item has none."""
        if column not in self.frame.columns:
            known = ", ".join(self.frame.columns)
            raise InputError(f"item_column='{column}' is not in the item table; it has: {known}")
        return given_vectors(self.frame[column], self.frame["item"])


def check_kept(columns: Sequence[str], items: Any) -> None:
    """Errors: columns to keep are named, but there is no table; a string instead of a list."""
    if isinstance(columns, str):
        raise InputError(f"keep_columns={columns!r} is a string; give a list, as [{columns!r}]")
    if len(columns) and items is None:
        raise InputError("keep_columns are of the item table; give one with items (--items), or leave them out")


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its ids as the column named by the role, and the ids that are of another type than the log's.

    `notes`: columns that are not read.
    """

    frame: pl.DataFrame
    strange: pl.Series
    notes: tuple[str, ...] = ()


def read_table(source: Any, id_column: str | None, log: Log, role: Literal["item", "user"]) -> Table:
    """A table of items or users, the rows whose ids cannot be the log's left out.

    Where no column is named, the one that is called as the log's counts before other usual names. Errors: no column of
    ids, or none of the log's type; an id in two rows.
    """
    table, dtype, own = open_source(source, OF_TABLES), log.frame[role].dtype, plain_name(log.report.columns[role])
    present, name = table.column_names, table.name
    alike = [each for each in present if plain_name(each) == own]
    id_column = alike[0] if id_column is None and len(alike) == 1 else id_column
    settled = "choose one with --items-column" if role == "item" else "keep one of them"
    column = find_column(role, id_column, present, name, also=("id",), fix=settled)
    if column is None:
        fix = "Name it with --items-column" if role == "item" else "Call it user_id"
        such = _likely_ids(table, log.frame[role].unique(), role)
        raise InputError(f"{name} has no {role} column; it has: {', '.join(present)}. {fix}{such}")
    ids_as_given, _ = id_expression(table, column, role, or_else="leave these rows out")
    others = [table.column(other) for other in present if other not in (column, role)]
    with reading(name):
        frame = table.frame.select(ids_as_given, *others).collect(engine="streaming")
    ids = _as_type(frame[role], dtype)
    strange = frame[role].filter(ids.is_null())
    if len(ids) and len(strange) == len(ids):
        raise InputError(
            f"{name}: its {role} ids, such as {strange.head(3).to_list()}, are not of type {dtype}, which the log's "
            "ids have; write them as the log does"
        )
    frame = frame.with_columns(ids).filter(ids.is_not_null())
    repeated = frame[role].filter(frame[role].is_duplicated()).unique()
    if len(repeated):
        raise InputError(
            f"{name} lists {counted(len(frame) - frame[role].n_unique(), role)} twice, such as "
            f"{repeated.head(3).to_list()}; keep one row each"
        )
    taken = column != role and role in present
    said = f"{name}: column '{role}' is not read, as the ids in '{column}' take that name; rename it to use it"
    return Table(frame, strange, (said,) if taken else ())


def _likely_ids(table: Source, logged: pl.Series, role: str) -> str:
    """In words the column of a table with most of the ids of the log; "" where none has any."""
    wanted = logged.cast(pl.String).implode()
    names = [name for name, dtype in table.schema.items() if dtype.is_integer() or table.holds_text(name)]
    if not names:
        return ""
    found = table.measured(*(table.column(name).cast(pl.String).unique().is_in(wanted).sum() for name in names))
    counts = dict(zip(names, found, strict=True))
    best = max(counts, key=counts.__getitem__)
    if not counts[best]:
        return ""
    option = f" '{best}'" if role == "item" else f": '{best}'"
    return f"{option}, which has {counts[best]:,} of the log's {len(logged):,} {role}s"


def _as_type(ids: pl.Series, dtype: Any) -> pl.Series:
    """The ids as the log's type, null where one is of another; "007" is another id than 7, "7.0" is not."""
    if ids.dtype == pl.String and dtype.is_integer():
        ids = ids.str.replace(r"\.0+$", "")
    try:
        cast = ids.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        return pl.Series(ids.name, [None] * len(ids), dtype=dtype)
    return cast.set(cast.cast(pl.String) != ids, None) if ids.dtype == pl.String and dtype.is_integer() else cast


def _held_by(frame: pl.DataFrame, absent: pl.Series) -> str:
    """In words the other column of the item table with most of the missing ids; "" where none has any."""
    wanted = absent.cast(pl.String).implode()
    for name, dtype in frame.schema.items():
        if name != "item" and (dtype.is_integer() or dtype == pl.String):
            count = frame[name].cast(pl.String).unique().is_in(wanted).sum()
            if 2 * count > len(absent):
                return f"; its column '{name}' has {count:,} of them, so say --items-column '{name}'"
    return ""


def _about_categories(labels: pl.Series | None, names: Sequence[str]) -> list[str]:
    """Notes about suspicious categories: null words, lists as text, or none but a column that seems to hold them."""
    if labels is None:
        near = next((name for name in names if squashed(name) in _NEAR_CATEGORY), None)
        return [] if near is None else [f"no column 'category', so no categories; if '{near}' has them, rename it"]
    notes = []
    lists = labels.drop_nulls().filter(labels.drop_nulls().str.contains(r"(?s)^\[.*\]$"))
    if len(lists):
        such = f"{counted(len(lists), 'item')}, such as {lists[0]!r}"
        notes.append(
            f"categories in brackets ({such}), each read as one; if they are lists, write them as shoes|summer"
        )
    words = null_words(labels.str.split(SEPARATOR).explode())
    said = ", ".join(f"{word!r} of {counted(count, 'item')}" for word, count in words.head(4).iter_rows())
    if said:
        notes.append(f"null words as categories ({said}); if such items have none, leave their cells empty")
    return notes


def _not_in_table(table: Table, absent: pl.Series, num_rows: int) -> str:
    """The message about items of the log, in `num_rows` of its rows, that the table lacks, with their likely cause."""
    other = f" (it has ids of another type, such as {table.strange.head(3).to_list()})" if len(table.strange) else ""
    alike = same_but_for_looks(absent, table.frame["item"])
    looks = f" ({alike} of them are, but for blanks, case, Unicode form or zeros; write them alike)" if alike else ""
    looks = _held_by(table.frame, absent) or looks
    items, rows, are = counted(len(absent), "item"), counted(num_rows, "row"), "is" if len(absent) == 1 else "are"
    return (
        f"{items} of the log ({rows}) {are} not in the item table, such as {absent.head(3).to_list()}{other}{looks}; "
        "add them, or keep them without columns with --unlisted-items keep"
    )


def _column_of_categories(names: Sequence[str]) -> str | None:
    """The column `category`, or the only one of that name but for case, blanks and punctuation; None without one."""
    alike = [name for name in names if squashed(name) == "category"]
    return "category" if "category" in alike else alike[0] if len(alike) == 1 else None


def _categories(frame: pl.DataFrame) -> tuple[NDArray[np.int32], pl.Series | None]:
    """int32[N], the first category of each item by its place in their order, -1 for none; the texts of all of them."""
    categories = np.full(len(frame), -1, np.int32)
    column = _column_of_categories(frame.columns)
    if column is None:
        fields = [name for name in frame.columns if name.startswith("category.")]
        if fields:
            raise InputError(
                f"column 'category' of type row, with the field '{fields[0]}', holds no categories; make them text, or "
                "leave the column out"
            )
        return categories, None
    lists = label_lists(frame[column])
    first = lists.list.first()
    names = first.drop_nulls().unique().sort()
    if len(names):
        present = np.flatnonzero(first.is_not_null().to_numpy())
        categories[present] = Vocabulary(names).encode(first.drop_nulls())
    return categories, lists.list.join(SEPARATOR)


def aligned(table: Table, catalogue: Vocabulary, logged: pl.Series, unlisted: str, report: dict[str, Any]) -> ItemTable:
    """The table by item index; missing items and suspicious cells are noted in `report`. Errors: an unlisted item."""
    missing = logged.filter(~logged.is_in(table.frame["item"].implode()))
    absent = missing.unique().sort()
    if len(absent) and unlisted == "error":
        raise InputError(_not_in_table(table, absent, len(missing)))
    frame = pl.DataFrame({"item": catalogue.ids}).join(table.frame, on="item", how="left", maintain_order="left")
    categories, labels = _categories(frame)
    report["items_not_in_table"] = len(absent)
    report["items_without_interactions"] = len(catalogue) - logged.n_unique()
    report["items_of_another_type"] = len(table.strange)
    report["notes"] += table.notes
    report["notes"] += [f"the item table has {note}" for note in _about_categories(labels, frame.columns)]
    return ItemTable(frame, categories, labels)


def aligned_users(table: Table, users: Vocabulary, report: dict[str, Any]) -> pl.DataFrame:
    """The table by user index, null for users that it lacks, whom `report` counts; it gets the table's notes."""
    report["users_not_in_table"] = int((~users.ids.is_in(table.frame["user"].implode())).sum())
    report["users_of_another_type"] = len(table.strange)
    report["notes"] += table.notes
    return pl.DataFrame({"user": users.ids}).join(table.frame, on="user", how="left", maintain_order="left")
