"""A snapshot with what was learned about items while serving.

Shape legend: N known items, M new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.retrieval.blend import Blend
from beamwood.retrieval.filters import Filters, mask_of
from beamwood.retrieval.item_columns import CATEGORY, LabelColumn
from beamwood.retrieval.more_columns import with_cells
from beamwood.retrieval.new_items import NewItem, mixtures_of, num_known, with_items
from beamwood.retrieval.opened import with_new_items
from beamwood.retrieval.popularity import PopularitySearcher
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.sources import FEWEST_EVENTS, Source, Sources
from beamwood.serve.item_fields import ItemFields
from beamwood.serve.learned import CatalogueItem, Learned, name_of
from beamwood.serve.snapshot import Snapshot, in_folder, indices_of
from beamwood.types import BoolArray, Prepared, Searcher

__all__ = ["mixture_of", "widened"]


def widened(base: Snapshot, learned: Learned, number: int) -> Snapshot:
    """The fitted snapshot with all that is learned. Errors: `InputError` on an item that cannot be taken."""
    if not (name := name_of(learned)):
        return replace(base, number=number)
    places = in_folder(base.names.items, [each.item for each in learned.items])
    new = [each for each, at in zip(learned.items, places, strict=True) if at < 0]
    names, before = base.names, base.retriever
    # A model may have been fitted with items that were new to an earlier one.
    gone = _known(base, learned.erased + [each.item for each in learned.items if each.gone])
    hidden = _known(base, learned.unavailable + [each.item for each in learned.items if not each.available])
    gone = gone if before.erased is None else np.union1d(gone, before.erased).astype(np.int32)
    erased = mask_of(gone, base.known)
    items = [_mixed(base, each, erased) for each in new]
    # Without its own columns, which would be copied: `names` has them all.
    retriever = replace(before, **with_new_items(before.searcher, before.items, None, items, gone, keep=True))
    shown = np.ones(len(retriever.items), bool)
    shown[hidden] = False
    shown[base.known :] = [each.available for each in new]
    if retriever.erased is not None:
        shown[retriever.erased] = False
    columns = names.filters.columns
    cells = [_cells(each, columns.columns.keys()) for each in new]
    whole = with_cells(columns, base.known, cells) if new else columns
    filters = Filters(retriever.items, whole, names.filters.max_bytes, None if shown.all() else Prepared(shown))
    return replace(
        base,
        number=number,
        retriever=retriever,
        names=Names(retriever.items, filters, names.users, names.histories, retriever.names.erased, names.rejected),
        fields=base.fields.with_rows([_shown(each, base.fields) for each in new]),
        popular=_popular(base, retriever.searcher, len(new)),
        fitted=base,
        learned=name,
    )


def _mixed(base: Snapshot, item: CatalogueItem, erased: BoolArray) -> NewItem:
    mixture = {} if item.gone else mixture_of(base, item, erased)[0]
    return NewItem(item.item, _by_id(base, mixture), gone=item.gone)


def mixture_of(base: Snapshot, item: CatalogueItem, erased: BoolArray | None = None) -> tuple[dict[int, float], Source]:
    """The mixture of an item by known index, and its source; without `erased` bool[at least N] items."""
    sources, known = Sources(_counts(base)), num_known(base.searcher)

    def places_of(ids: Sequence[Any]) -> NDArray[np.int32]:
        """int32[len(ids)], the index of each, -1 for one that is no part of a mixture."""
        at = indices_of(base.names.items, ids)
        return np.where((at >= known) | (False if erased is None else erased[at]), np.int32(-1), at)

    similar = places_of(item.similar)
    if (similar >= 0).any():
        return sources.similar(similar[similar >= 0].tolist()), "similar"
    if item.events >= FEWEST_EVENTS and item.near:
        places = places_of([each for each, _ in item.near])
        mixture = sources.events([np.repeat(places, [int(count) for _, count in item.near])])
        if mixture:
            return mixture, "events"
    mixture = _of_category(base, item, sources, known)
    mixture = mixture if erased is None else {at: weight for at, weight in mixture.items() if not erased[at]}
    return mixture, "category" if mixture else "none"


def _of_category(base: Snapshot, item: CatalogueItem, sources: Sources, known: int) -> dict[int, float]:
    """The mixture of an item's category, empty without one, or where it places no item."""
    column = base.names.filters.columns.columns.get(CATEGORY)
    if not base.by_category or item.category is None or not isinstance(column, LabelColumn):
        return {}
    if (mixture := base.by_label.get(item.category)) is None:
        labels = [label for label in item.category.split("|") if label in column]
        alike = column.items_of(column.codes_of(CATEGORY, labels).tolist() if labels else [])
        base.by_label[item.category] = mixture = sources.category(alike[alike < known])
    return mixture


def _counts(base: Snapshot) -> NDArray[Any]:
    """[N], the interactions of each known item; zeros where unknown."""
    return base.popular.counts if isinstance(base.popular, PopularitySearcher) else np.zeros(base.known, np.float32)


def _by_id(base: Snapshot, mixture: dict[int, float]) -> dict[Any, float]:
    ids = base.names.items.decode(np.array(list(mixture), np.int64)) if mixture else []
    return dict(zip(ids, mixture.values(), strict=True))


def _known(base: Snapshot, ids: list[int | str]) -> NDArray[np.int32]:
    """The indices of the ids that the model knows."""
    found = indices_of(base.names.items, ids)
    return found[found >= 0]


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


def _popular(base: Snapshot, searcher: Searcher, num_new: int) -> Searcher | None:
    """The fallback with the last `num_new` items of the searcher."""
    mixtures = mixtures_of(searcher)
    if base.popular is None or mixtures is None or num_new == 0:
        return base.popular
    if isinstance(searcher, Blend) and searcher.fallback is not None:
        return searcher.fallback
    return with_items(base.popular, mixtures.take(np.arange(len(mixtures) - num_new, len(mixtures))))
