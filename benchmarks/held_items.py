"""A split without some of its items, as if they were added after the fit, and what is known of them by then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from beamwood.data.dataset import Dataset, ItemTable
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.types import BoolArray, ItemLists

__all__ = ["Held", "draw"]


@dataclass(frozen=True)
class Held:
    """`whole`: the split; `fitted`: the split without `items` int64[H], its other items renumbered in order."""

    whole: Split
    fitted: Split
    items: NDArray[np.int64]

    @property
    def place(self) -> NDArray[np.int32]:
        """int32[N]: the index of each item of the whole split after the fit; the held-out items come last."""
        place = np.full(self.whole.train.num_items, -1, np.int32)
        others = np.setdiff1d(np.arange(len(place)), self.items)
        place[np.concatenate([others, self.items])] = np.arange(len(place))
        return place

    def queries(self, queries: Queries) -> Queries:
        """Queries of the whole split, with the item indices after the fit."""
        return renamed(queries, self.place)

    def first_events(self, item: int, count: int) -> Iterator[tuple[NDArray[np.int32], int]]:
        """Histories and positions of an item's first training events, by time, or in random order without times."""
        histories, times = self.whole.train.histories, self.whole.train.times
        entries = np.flatnonzero(histories.items == item)
        order = np.random.default_rng(item).permutation(len(entries)) if times is None else np.argsort(times[entries])
        rows = np.searchsorted(histories.indptr, entries[order[:count]], side="right") - 1
        for row, entry in zip(rows.tolist(), entries[order[:count]].tolist(), strict=True):
            yield histories[row], entry - int(histories.indptr[row])


def draw(split: Split, share: float, *, events: int, seed: int) -> Held:
    """The split with and without a share of its items, drawn from those with at least this many training events."""
    counts = split.train.item_counts
    size = round(share * len(counts))
    items = np.sort(np.random.default_rng(seed).choice(np.flatnonzero(counts >= events), size, replace=False))
    kept = np.ones(len(counts), bool)
    kept[items] = False
    place = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    train, dataset = without(split.train, kept, place), without(split.dataset, kept, place)
    valid, test = (renamed(queries, place).labelled() for queries in (split.valid, split.test))
    return Held(split, replace(split, dataset=dataset, train=train, valid=valid, test=test), items)


def without(dataset: Dataset, kept: BoolArray, place: NDArray[np.int32]) -> Dataset:
    """The data set without these items."""
    histories, table = dataset.histories, dataset.item_table
    entries = np.flatnonzero(kept[histories.items])
    part = dataset.keeping(entries, np.bincount(histories.rows[entries], minlength=len(histories)))
    if table is not None:
        labels = table.category_labels
        labels = None if labels is None else labels.filter(kept)
        table = ItemTable(table.frame.filter(kept), table.categories[kept], labels, table.kept)
    items, lists = Vocabulary(dataset.items.ids.filter(kept)), part.histories
    return replace(part, items=items, histories=ItemLists(lists.indptr, place[lists.items]), item_table=table)


def renamed(queries: Queries, place: NDArray[np.int32]) -> Queries:
    """The queries with other item indices, without items whose index is -1."""

    def moved(lists: ItemLists) -> ItemLists:
        items = place[lists.items]
        return ItemLists.unchecked(lists.indptr, items).keeping(items >= 0)

    lists = {name: moved(getattr(queries, name)) for name in ("histories", "labels", "seen")}
    return replace(queries, **lists)
