"""Example users: their history, the items shown, and their labels, by title."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from beamwood.blocks import evenly
from beamwood.data.dataset import Dataset
from beamwood.data.split import Split
from beamwood.types import IndexArray, Searcher, SearchOptions

__all__ = ["Example", "ShownItem", "titles", "users_shown"]

_TITLES = ("title", "name", "item_name", "item_title", "movie_title", "product_title")
_MOST = 12


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item by its title, and whether it is one of the labels (for labels: whether it is shown)."""

    title: str
    hit: bool


@dataclass(frozen=True, slots=True)
class Example:
    """A test user: the latest items of a history of `length`, the `shown` items without seen ones, all `labels`."""

    user: str
    length: int
    history: tuple[str, ...]
    shown: tuple[ShownItem, ...]
    labels: tuple[ShownItem, ...]
    num_labels: int

    def as_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def titles(dataset: Dataset) -> pl.Series:
    """A text for each item: from the title column of the item table, else, or where empty, the id."""
    ids = dataset.items.ids.cast(str, strict=False)
    if dataset.item_table is None:
        return ids
    columns = {name.lower(): name for name in dataset.item_table.frame.columns}
    name = next((columns[each] for each in _TITLES if each in columns), None)
    if name is None:
        return ids
    given = dataset.item_table.frame[name].cast(str, strict=False)
    return given.zip_with(given.is_not_null() & (given != ""), ids)


def users_shown(searcher: Searcher, split: Split, k: int, *, most: int = 5) -> list[Example]:
    """Evenly sampled test users with labels, independent of the results, each with its k best items."""
    labelled = split.test.labelled()
    part = labelled.take(evenly(len(labelled), most))
    hits = searcher.search(part.query(searcher.needs), k, SearchOptions(part.seen))
    names = titles(split.dataset)
    return [
        _example(str(split.dataset.users.ids[int(user)]), part.histories[row], shown, part.labels[row], names)
        for row, (user, shown) in enumerate(zip(part.users, hits.items, strict=True))
    ]


def _example(user: str, history_L: IndexArray, items_K: IndexArray, labels: IndexArray, names: pl.Series) -> Example:
    shown = items_K[items_K >= 0]
    return Example(
        user,
        len(history_L),
        tuple(names[int(item)] for item in history_L[::-1][:_MOST]),
        tuple(ShownItem(names[int(item)], bool(np.isin(item, labels))) for item in shown),
        # Found labels first, as there may be many.
        tuple(
            ShownItem(names[int(item)], hit) for hit in (True, False) for item in labels if np.isin(item, shown) == hit
        )[: 2 * _MOST],
        len(labels),
    )
