"""Histories by index, and the item table beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.data.cells.ids import likenesses
from beamwood.data.cells.times import as_in_log, moments
from beamwood.data.digest import column_digest, frame_digest, text_bytes
from beamwood.data.events import WEIGHT, EventKinds
from beamwood.data.kept_columns import checked_kept
from beamwood.data.log import CONTEXT, Log
from beamwood.data.order import by_user_and_time
from beamwood.data.tables import ItemTable, aligned, aligned_users, check_kept, read_table
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.errors import InputError, nearest
from beamwood.notebook import facts
from beamwood.ragged import indptr_of, places_in_rows
from beamwood.types import BoolArray, ItemLists
from beamwood.words import counted

__all__ = ["Dataset", "ItemTable"]

_UNLISTED = ("error", "keep")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Users' histories, oldest first; for ties in time see `by_user_and_time`.

    `histories`: one row a user index; aligned with its entries: `times` int64, `in_history` bool (the boundary column),
    `weights` float32 where event kinds have different weights, and `context`, the context columns of the log.
    `rejected`: the items of each user whose last event was negative; `kinds`: which event kinds count or are negative.
    `user_table`: user columns, aligned with the user index. `report`: facts and notes about the reading, JSON-able.
    """

    users: Vocabulary
    items: Vocabulary
    histories: ItemLists
    times: NDArray[np.int64] | None = None
    in_history: BoolArray | None = None
    weights: NDArray[np.float32] | None = None
    rejected: ItemLists | None = None
    kinds: EventKinds | None = None
    context: pl.DataFrame | None = None
    item_table: ItemTable | None = None
    user_table: pl.DataFrame | None = None
    report: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        rows = len(self.histories.items)
        users, items = counted(len(self.users), "user"), counted(len(self.items), "item")
        return f"Dataset of {users}, {items}, {counted(rows, 'row')}"

    def _repr_html_(self) -> str:
        columns = [] if self.item_table is None else self.item_table.frame.columns
        rows, notes = len(self.histories.items), "; ".join(self.report.get("notes", []))
        known = {
            "users": len(self.users),
            "items": len(self.items),
            "rows": rows,
            "columns of items": ", ".join(columns),
        }
        return facts("data set", known | {"notes": notes})

    @classmethod
    @naming_arguments
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

        The catalogue is the items of the log and, where given, of the table. `report` counts the items in only one of
        them, and the table rows left out because their ids have another type than the log's. Users without a row in
        `user_table` get nulls. `keep_columns`: item columns that a fitted retriever keeps for filters, as "price" or,
        for text, "price:number"; categories are always kept. Errors: a single user; an item of the log that the table
        lacks, unless `unlisted="keep"`; repeated ids; a table with ids of another type.
        """
        if unlisted not in _UNLISTED:
            raise InputError(f"unlisted={unlisted!r} is unknown{nearest(str(unlisted), _UNLISTED)}")
        users, frame = _users_of(log), log.frame
        table = None if items is None else read_table(items, item_column, log, "item")
        check_kept(keep_columns, items)
        ids = frame["item"].unique()
        catalogue = Vocabulary.of(ids if table is None else pl.concat([ids, table.frame["item"]]))
        report: dict[str, Any] = {"log": log.report.as_dict(), "users": len(users), "items": len(catalogue)}
        report["notes"] = [*likenesses(users.ids, "user"), *likenesses(catalogue.ids, "item"), *_of_one_item(ids, log)]
        item_table, people = None, None
        if table is not None:
            item_table = aligned(table, catalogue, frame["item"], unlisted, report)
            item_table = replace(item_table, kept=checked_kept(keep_columns, item_table.frame))
        if user_table is not None:
            people = aligned_users(read_table(user_table, None, log, "user"), users, report)
        coded = _sorted_codes(frame, users, catalogue, report)
        lengths = np.bincount(coded["user"].to_numpy(), minlength=len(users))
        histories = ItemLists(indptr_of(lengths), coded["item"].to_numpy())
        return cls(
            users=users,
            items=catalogue,
            histories=histories,
            times=coded["time"].to_numpy() if "time" in coded.columns else None,
            in_history=coded["history"].to_numpy() if "history" in coded.columns else None,
            weights=coded[WEIGHT].to_numpy() if WEIGHT in coded.columns else None,
            rejected=_rejected(log.rejected, users, catalogue, report),
            kinds=log.kinds,
            context=_context_of(coded),
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
        """int64[N], the occurrences of each item in all prefixes of two or more items of the histories."""
        lengths = np.repeat(self.histories.lengths, self.histories.lengths)
        held = lengths - np.maximum(places_in_rows(self.histories.lengths), 1)
        return np.bincount(self.histories.items, held, minlength=len(self.items)).astype(np.int64)

    def written_times(self, first: int, last: int) -> tuple[str, str]:
        """Two of the times as text: dates in UTC, or as they are where they only order rows."""
        read = self.report.get("log", {})
        early, late = moments(read.get("time_unit"), first, last)
        if early is None:
            return as_in_log(first, read.get("time_scale", 1)), as_in_log(last, read.get("time_scale", 1))
        return f"{early} UTC", f"{late} UTC"

    def with_histories(self, histories: ItemLists) -> Dataset:
        """The same users and items with other histories, without times, weights and context."""
        return replace(self, histories=histories, times=None, in_history=None, weights=None, context=None)

    def keeping(self, entries: NDArray[np.int64], lengths: NDArray[np.int64]) -> Dataset:
        """The same users and items with the given entries of their histories, `lengths` of them a user, in order."""
        part = self.with_histories(ItemLists(indptr_of(lengths), self.histories.items[entries]))
        context = None if self.context is None else self.context[entries]
        times = None if self.times is None else self.times[entries]
        weights = None if self.weights is None else self.weights[entries]
        return replace(part, context=context, times=times, weights=weights)

    def fingerprint(self) -> str:
        """sha256 of ids, histories and times: equal for equal content, whatever the file format."""
        digest = hashlib.sha256()
        for ids in (self.users.ids, self.items.ids):
            digest.update(str(ids.dtype).encode())
            digest.update(_id_bytes(ids))
        for array in (self.histories.indptr, self.histories.items, self.times, self.in_history):
            digest.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
        rejected = () if self.rejected is None else (self.rejected.indptr, self.rejected.items)
        for array in (*rejected, *(() if self.weights is None else (self.weights,))):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def tables_digest(self) -> str:
        """sha256 of what the fingerprint omits: the item table, the user table, and the context."""
        tables = (None if self.item_table is None else self.item_table.frame, self.user_table, self.context)
        return hashlib.sha256(repr([None if t is None else frame_digest(t) for t in tables]).encode()).hexdigest()

    def context_digests(self) -> dict[str, str]:
        """sha256 of each context column by name."""
        return (
            {} if self.context is None else {name: column_digest(self.context[name]) for name in self.context.columns}
        )


def _rejected(
    pairs: pl.DataFrame | None, users: Vocabulary, items: Vocabulary, report: dict[str, Any]
) -> ItemLists | None:
    """The items that each user rejected, for known users and items."""
    if pairs is None:
        return None
    rows, columns = (
        known.encode(pairs[name], on_unknown="ignore") for known, name in ((users, "user"), (items, "item"))
    )
    known = (rows >= 0) & (columns >= 0)
    order = np.lexsort((columns[known], rows[known]))
    counts = np.bincount(rows[known], minlength=len(users))
    report["rejected"] = int(known.sum())
    report["notes"].append(
        f"{counted(report['rejected'], 'pair')} of a user and an item with a negative event last, stored with "
        "the histories: `recommend --without-rejected` leaves these items out"
    )
    return ItemLists(indptr_of(counts), columns[known][order])


def _users_of(log: Any) -> Vocabulary:
    """The users of a log. Errors: another type than `Log`; no user, or a single one."""
    if not isinstance(log, Log):
        raise InputError(f"log is a {type(log).__name__}; read it with beamwood.data.read_log")
    users = Vocabulary.of(log.frame["user"])
    if len(users) < 2:
        raise InputError(
            f"{log.report.source} has {counted(len(users), 'user')}; splits and comparisons need at least two: give "
            f"more, or name another column than '{log.report.columns['user']}' with --user-column"
        )
    return users


def _of_one_item(ids: pl.Series, log: Log) -> list[str]:
    if len(ids) != 1:
        return []
    return [
        f"'{log.report.columns['item']}': all rows have the same item, {ids[0]!r}, so nothing else can be learned or "
        "recommended; if the items are in another column, name it with --item-column"
    ]


def _sorted_codes(frame: pl.DataFrame, users: Vocabulary, items: Vocabulary, report: dict[str, Any]) -> pl.DataFrame:
    """The log's rows as user and item indices with the other kept columns, sorted.

    The report gets the number of ties in time, how they are ordered, and a note where the order of rows is arbitrary.
    """
    codes = {"user": users.encode(frame["user"]), "item": items.encode(frame["item"])}
    kept = [each for each in frame.columns if each in ("time", "history", WEIGHT) or each.startswith(CONTEXT)]
    coded, report["ties"], report["order"] = by_user_and_time(
        pl.DataFrame(codes).hstack([frame[name] for name in kept])
    )
    report["notes"] += [report["order"]] if report["order"] else []
    return coded


def _context_of(coded: pl.DataFrame) -> pl.DataFrame | None:
    """The context columns under their own names, None where there are none."""
    names = {name: name.removeprefix(CONTEXT) for name in coded.columns if name.startswith(CONTEXT)}
    return coded.select(list(names)).rename(names) if names else None


def _id_bytes(ids: pl.Series) -> bytes:
    """The ids as bytes, independent of library versions."""
    if ids.dtype.is_integer():
        return ids.to_numpy().tobytes()
    return text_bytes(ids)
