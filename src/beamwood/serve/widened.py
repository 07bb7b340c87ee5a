"""A snapshot with what was learned about items while serving.

Shape legend: N known items, M new ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.retrieval.filters import Filters
from beamwood.retrieval.item_columns import CATEGORY, LabelColumn
from beamwood.retrieval.more_columns import with_cells
from beamwood.retrieval.new_items import NewItem, mixtures_of, with_items
from beamwood.retrieval.popularity import PopularitySearcher
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.sources import FEWEST_EVENTS, Source, Sources
from beamwood.serve.item_fields import ItemFields
from beamwood.serve.learned import CatalogueItem, Learned, name_of
from beamwood.serve.snapshot import Snapshot, indices_of
from beamwood.types import Prepared, Searcher

__all__ = ["mixture_of", "widened"]


def widened(base: Snapshot, learned: Learned, number: int) -> Snapshot:
    """The fitted snapshot with all that is learned. Errors: `InputError` on an item that cannot be taken."""
    if not (name := name_of(learned)):
        return replace(base, number=number)
    places = indices_of(base.names.items, [each.item for each in learned.items]) if learned.items else ()
    new = [each for each, at in zip(learned.items, places, strict=True) if at < 0]
    retriever, names = base.retriever, base.names
    # A model may have been fitted with items that were new to an earlier one.
    gone = _known(base, learned.erased + [each.item for each in learned.items if each.gone])
    hidden = _known(base, learned.unavailable + [each.item for each in learned.items if not each.available])
    if len(gone):
        retriever = retriever.without_items(names.items.decode(gone))
    columns = names.filters.columns
    cells = [_cells(each, columns.columns.keys()) for each in new]
    erased = set(gone.tolist())
    # Its own columns would be copied, and `names` has them all.
    retriever = replace(retriever, columns=None).with_items([_mixed(base, each, erased) for each in new])
    mask = np.ones(base.known + len(new), bool)
    mask[hidden] = False
    mask[gone] = False
    mask[base.known :] = [each.available and not each.gone for each in new]
    whole = with_cells(columns, base.known, cells) if new else columns
    alive = None if mask.all() else Prepared(mask)
    filters = Filters(retriever.items, whole, names.filters.max_bytes, alive)
    return replace(
        base,
        number=number,
        retriever=retriever,
        names=Names(retriever.items, filters, names.users, names.histories, retriever.names.erased, names.rejected),
        fields=base.fields.with_rows([_shown(each, base.fields) for each in new]),
        popular=_popular(base, retriever.searcher),
        fitted=base,
        learned=name,
    )


def _mixed(base: Snapshot, item: CatalogueItem, erased: set[int]) -> NewItem:
    """The item with its mixture, of which erased items are no part."""
    mixture = {} if item.gone else mixture_of(base, item)[0]
    left = {at: weight for at, weight in mixture.items() if at not in erased}
    return NewItem(item.item, _by_id(base, left), gone=item.gone)


def mixture_of(base: Snapshot, item: CatalogueItem) -> tuple[dict[int, float], Source]:
    """The mixture of an item by known index, and its source."""
    sources = Sources(_counts(base))
    similar = [at for at in indices_of(base.names.items, item.similar).tolist() if 0 <= at < base.known]
    if similar:
        return sources.similar(similar), "similar"
    if item.events >= FEWEST_EVENTS and item.near:
        places = indices_of(base.names.items, [each for each, _ in item.near]).tolist()
        times = [int(count) for _, count in item.near]
        return sources.events([np.repeat(places, times)]), "events"
    column = base.names.filters.columns.columns.get(CATEGORY)
    if base.by_category and item.category is not None and isinstance(column, LabelColumn):
        if (mixture := base.by_label.get(item.category)) is None:
            labels = [label for label in item.category.split("|") if label in column]
            alike = column.items_of(column.codes_of(CATEGORY, labels).tolist() if labels else [])
            mixture = sources.category(alike[alike < base.known])
            base.by_label[item.category] = mixture
        if mixture:
            return mixture, "category"
    return {}, "none"


def _counts(base: Snapshot) -> NDArray[Any]:
    """[N], the interactions of each known item; zeros where unknown."""
    return base.popular.counts if isinstance(base.popular, PopularitySearcher) else np.zeros(base.known, np.float32)


def _by_id(base: Snapshot, mixture: dict[int, float]) -> dict[Any, float]:
    ids = base.names.items.decode(np.array(list(mixture), np.int64)) if mixture else []
    return dict(zip(ids, mixture.values(), strict=True))


def _known(base: Snapshot, ids: list[int | str]) -> NDArray[np.int32]:
    """The indices of the ids that the model knows."""
    found = indices_of(base.names.items, ids) if ids else np.empty(0, np.int32)
    return found[(found >= 0) & (found < base.known)]


def _cells(item: CatalogueItem, columns: Any) -> dict[str, Any]:
    """The cells of a new item for filters; other fields are only shown."""
    cells = {name: value for name, value in item.fields.items() if name in columns}
    return cells | ({} if item.category is None or CATEGORY not in columns else {CATEGORY: item.category})


def _shown(item: CatalogueItem, fields: ItemFields) -> dict[str, Any]:
    """The displayed fields of a new item; its category is a column too, where the table has one."""
    column = None if fields.frame is None else fields.frame.get_column(CATEGORY, default=None)
    several = column is not None and isinstance(column.dtype, pl.List)
    own = None if item.category is None else item.category.split("|") if several else item.category
    return {CATEGORY: own} | item.fields


def _popular(base: Snapshot, searcher: Searcher) -> Searcher | None:
    mixtures = mixtures_of(searcher)
    return base.popular if base.popular is None or mixtures is None else with_items(base.popular, mixtures)
