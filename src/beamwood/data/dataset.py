"""Histories by index, and the item table beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.data.columns import find_column
from beamwood.data.digest import column_digest, frame_digest, text_bytes
from beamwood.data.labels import SEPARATOR, as_lists, inner_type, label_lists
from beamwood.data.log import CONTEXT, Log, id_expression
from beamwood.data.source import open_source, reading
from beamwood.data.vocabulary import Vocabulary
from beamwood.errors import InputError, nearest
from beamwood.types import BoolArray, ItemLists

__all__ = ["Dataset", "ItemTable"]

_UNLISTED = ("error", "keep")


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
        names = [name for name in dict.fromkeys(self.kept) if name != "category"]
        return self.frame.select(names).with_columns(labels) if names else pl.DataFrame(labels)

    def vectors(self, column: str) -> NDArray[np.float32]:
        """float32[N, F], a column of lists of numbers of one length; zeros where an item has none."""
        if column not in self.frame.columns:
            known = ", ".join(self.frame.columns)
            raise InputError(f"item_column='{column}' is not in the item table; it has: {known}")
        cells = as_lists(self.frame[column])
        given, there = cells.drop_nulls(), np.flatnonzero(cells.is_not_null().to_numpy())
        inner = inner_type(cells)
        if inner is None or not inner.is_numeric() or len(given) == 0 or given.list.len().max() == 0:
            raise InputError(f"item column '{column}' of type {cells.dtype} holds no lists of numbers of one length")
        lengths = given.list.len().to_numpy()
        width = int(lengths[0])
        self._refuse(column, there[lengths != width], f"a vector of another length than {width}, the first one's")
        values = given.list.explode().cast(pl.Float32, strict=False).fill_null(np.nan).to_numpy().reshape(-1, width)
        self._refuse(column, there[~np.isfinite(values).all(axis=1)], "null, NaN or infinity in its vector")
        result = np.zeros((len(cells), width), np.float32)
        result[there] = values
        return result

    def _refuse(self, column: str, items: NDArray[np.int64], what: str) -> None:
        if len(items):
            first = self.frame["item"][int(items[0])]
            raise InputError(
                f"item column '{column}': {len(items)} items have {what}, such as item {first!r}; mend them, or leave "
                "such cells empty (zeros)"
            )


@dataclass(frozen=True)
class Dataset:
    """Users' histories, oldest first; ties in time keep the log's order.

    `histories` one row a user index; beside its entries `times` int64, `in_history` bool (the boundary column) and
    `context`, the log's columns of the context.
    `user_table`: columns of users, aligned with the user index. `report`: what was read and noted, JSON-able.
    """

    users: Vocabulary
    items: Vocabulary
    histories: ItemLists
    times: NDArray[np.int64] | None = None
    in_history: BoolArray | None = None
    context: pl.DataFrame | None = None
    item_table: ItemTable | None = None
    user_table: pl.DataFrame | None = None
    report: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_log(
        cls,
        log: Log,
        items: Any = None,
        *,
        item_column: str | None = None,
        unlisted: Literal["error", "keep"] = "error",
        user_table: Any = None,
        keep_columns: Sequence[str] = (),
    ) -> Dataset:
        """Sort a log into histories; `items` and `user_table` are tables (path or frame) or None.

        The catalogue is the items of the log and, where given, of the table. `report` counts those that are in one
        only. It also counts those of the table that are left out, as their ids are of another type than the log's.
        Users that their table lacks have nulls there. `keep_columns`: columns of the item table that a fitted retriever
        keeps for filters; its categories are kept unasked. Errors: one user only; an item of the log that the table
        lacks, unless `unlisted="keep"`; repeated ids in a table; a table none of whose ids is of the log's type.
        """
        if unlisted not in _UNLISTED:
            raise InputError(f"unlisted={unlisted!r} is unknown{nearest(str(unlisted), _UNLISTED)}")
        if not isinstance(log, Log):
            raise InputError(f"log is a {type(log).__name__}; read it with beamwood.data.read_log")
        frame = log.frame
        users = Vocabulary.of(frame["user"])
        if len(users) < 2:
            raise InputError(f"{log.report.source} has {len(users)} user; splits and comparisons need at least two")
        table = None if items is None else _read_table(items, item_column, log, "item")
        _check_kept(keep_columns, items)
        ids = frame["item"].unique()
        catalogue = Vocabulary.of(ids if table is None else pl.concat([ids, table.frame["item"]]))
        report: dict[str, Any] = {"log": log.report.as_dict(), "users": len(users), "items": len(catalogue)}
        item_table, people = None, None
        if table is not None:
            aligned, report["items_not_in_table"] = _align(table, catalogue, frame["item"], unlisted)
            item_table = replace(aligned, kept=_kept(aligned, keep_columns))
            report["items_without_interactions"] = len(catalogue) - len(ids)
            report["items_of_another_type"] = len(table.strange)
        if user_table is not None:
            listed = _read_table(user_table, None, log, "user")
            people = pl.DataFrame({"user": users.ids}).join(listed.frame, on="user", how="left", maintain_order="left")
            report["users_not_in_table"] = int((~users.ids.is_in(listed.frame["user"].implode())).sum())
            report["users_of_another_type"] = len(listed.strange)
        codes = {"user": users.encode(frame["user"]), "item": catalogue.encode(frame["item"])}
        context = [name for name in frame.columns if name.startswith(CONTEXT)]
        coded = pl.DataFrame(codes).hstack([frame[n] for n in frame.columns if n in ("time", "history", *context)])
        # Two stable sorts of one key take a quarter of the time of one sort of two keys.
        for key in ("time", "user"):
            coded = coded.sort(key, maintain_order=True) if key in coded.columns else coded
        counts = np.bincount(coded["user"].to_numpy(), minlength=len(users))
        return cls(
            users=users,
            items=catalogue,
            histories=ItemLists(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), coded["item"].to_numpy()),
            times=coded["time"].to_numpy() if "time" in coded.columns else None,
            in_history=coded["history"].to_numpy() if "history" in coded.columns else None,
            context=coded.select(pl.col(context).name.map(_plain)) if context else None,
            item_table=item_table,
            user_table=people,
            report=report,
        )

    @property
    def num_items(self) -> int:
        return len(self.items)

    @property
    def item_counts(self) -> NDArray[np.int64]:
        """int64[N], the interactions of each item."""
        return np.bincount(self.histories.items, minlength=len(self.items)).astype(np.int64)

    @property
    def prefix_counts(self) -> NDArray[np.int64]:
        """int64[N], how often each item stands in all prefixes of two items or more of the histories."""
        lengths = np.repeat(self.histories.lengths, self.histories.lengths)
        places = np.arange(len(lengths)) - np.repeat(self.histories.indptr[:-1], self.histories.lengths)
        held = lengths - np.maximum(places, 1)
        return np.bincount(self.histories.items, held, minlength=len(self.items)).astype(np.int64)

    def with_histories(self, histories: ItemLists) -> Dataset:
        """The same users and items with other histories, without times and context."""
        return replace(self, histories=histories, times=None, in_history=None, context=None)

    def keeping(self, entries: NDArray[np.int64], lengths: NDArray[np.int64]) -> Dataset:
        """The same users and items with the given entries of their histories, `lengths` of them a user, in order."""
        indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        part = self.with_histories(ItemLists(indptr, self.histories.items[entries]))
        return part if self.context is None else replace(part, context=self.context[entries])

    def fingerprint(self) -> str:
        """sha256 of ids, histories and times: equal for equal content, whatever file it came from."""
        digest = hashlib.sha256()
        for ids in (self.users.ids, self.items.ids):
            digest.update(str(ids.dtype).encode())
            digest.update(_id_bytes(ids))
        for array in (self.histories.indptr, self.histories.items, self.times, self.in_history):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def tables_digest(self) -> str:
        """sha256 of what the fingerprint leaves aside: the tables of items and users, and the context."""
        tables = (None if self.item_table is None else self.item_table.frame, self.user_table, self.context)
        return hashlib.sha256(repr([None if t is None else frame_digest(t) for t in tables]).encode()).hexdigest()

    def context_digests(self) -> dict[str, str]:
        """sha256 of each column of the context by its name."""
        return (
            {} if self.context is None else {name: column_digest(self.context[name]) for name in self.context.columns}
        )


def _check_kept(columns: Sequence[str], items: Any) -> None:
    if columns and items is None:
        raise InputError("keep_columns are of the item table; give one with items (--items), or leave them out")


def _kept(table: ItemTable, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns that are to be kept. Errors: one that the item table lacks, or whose name a condition cannot have."""
    known = [name for name in table.frame.columns if name != "item"]
    for name in columns:
        if name not in known:
            raise InputError(f"the item table has no column '{name}' to keep{nearest(name, known)}")
        if name in ("all", "any", "not"):
            raise InputError(f"the column '{name}' cannot be kept: conditions have a word of that name; rename it")
    return tuple(columns)


def _plain(name: str) -> str:
    return name.removeprefix(CONTEXT)


def _id_bytes(ids: pl.Series) -> bytes:
    """The ids as bytes that no version of a library changes."""
    if ids.dtype.is_integer():
        return ids.to_numpy().tobytes()
    return text_bytes(ids)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with its ids as the column named by the role, and the ids that are of another type than the log's."""

    frame: pl.DataFrame
    strange: pl.Series


def _read_table(source: Any, id_column: str | None, log: Log, role: Literal["item", "user"]) -> _Table:
    """A table of items or users, the rows whose ids cannot be the log's left out.

    Where no column is named, the one that is called as the log's counts before other usual names.
    """
    table, dtype, own = open_source(source), log.frame[role].dtype, log.report.columns[role]
    present, name = table.column_names, table.name
    id_column = own if id_column is None and own in present else id_column
    settled = "choose one with --items-column" if role == "item" else "keep one of them"
    column = find_column(role, id_column, present, name, also=("id",), fix=settled)
    if column is None:
        fix = "Name it with --items-column" if role == "item" else "Call it user_id"
        raise InputError(f"{name} has no {role} column; it has: {', '.join(present)}. {fix}")
    ids_as_given = id_expression(table, column, role)
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
            f"{name} lists {len(frame) - frame[role].n_unique()} {role}s twice, such as {repeated.head(3).to_list()}; "
            "keep one row each"
        )
    return _Table(frame, strange)


def _as_type(ids: pl.Series, dtype: Any) -> pl.Series:
    """The ids as the log's type, null where one is of another; "007" is another id than 7."""
    try:
        cast = ids.cast(dtype, strict=False)
    except pl.exceptions.PolarsError:
        return pl.Series(ids.name, [None] * len(ids), dtype=dtype)
    return cast.set(cast.cast(pl.String) != ids, None) if ids.dtype == pl.String and dtype.is_integer() else cast


def _align(table: _Table, catalogue: Vocabulary, logged: pl.Series, unlisted: str) -> tuple[ItemTable, int]:
    known = logged.is_in(table.frame["item"].implode())
    absent = logged.filter(~known).unique().sort()
    if len(absent) and unlisted == "error":
        other = (
            f" (it has ids of another type, such as {table.strange.head(3).to_list()})" if len(table.strange) else ""
        )
        raise InputError(
            f"{len(absent)} items of the log ({int((~known).sum())} rows) are not in the item table, such as "
            f"{absent.head(3).to_list()}{other}; add them, or keep them without columns with --unlisted-items keep"
        )
    frame = pl.DataFrame({"item": catalogue.ids}).join(table.frame, on="item", how="left", maintain_order="left")
    categories = np.full(len(catalogue), -1, np.int32)
    labels = None
    if "category" in frame.columns:
        lists = label_lists(frame["category"])
        labels = lists.list.join(SEPARATOR, ignore_nulls=True)
        first = lists.list.drop_nulls().list.first()
        first = first.set(first == "", None)
        names = first.drop_nulls().unique().sort()
        if len(names):
            categories = np.full(len(first), -1, np.int32)
            present = np.flatnonzero(first.is_not_null().to_numpy())
            categories[present] = Vocabulary(names).encode(first.drop_nulls())
    return ItemTable(frame, categories, labels), len(absent)
