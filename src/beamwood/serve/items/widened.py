"""A snapshot with what was learned about items while serving.

Shape legend: N known items, M new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from beamwood.errors import InputError
from beamwood.kept import Prepared
from beamwood.kernels.mixtures import Mixtures
from beamwood.ragged import indptr_of
from beamwood.retrieval.columns.filters import Filters
from beamwood.retrieval.columns.item_columns import CATEGORY
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.columns.more_columns import Cells, cells_of, with_cells
from beamwood.retrieval.new_items.added import mixtures_of, num_known, with_items
from beamwood.retrieval.new_items.retriever_parts import with_mixtures
from beamwood.retrieval.new_items.sources import FEWEST_EVENTS, Source, Sources
from beamwood.retrieval.resolve import Names
from beamwood.retrieval.searchers.blend import Blend
from beamwood.retrieval.searchers.popularity import PopularitySearcher
from beamwood.serve.answer.ids import in_folder, indices_of
from beamwood.serve.answer.item_fields import ItemFields
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.items.learned import CatalogueItem, Learned, Piece
from beamwood.types import BoolArray, ItemLists, Searcher

__all__ = ["check_cells", "mixture_of", "unfit_cells", "widened"]

_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What a model makes of a piece of new items: those that it does not know, as arrays, and those that it does.

    `ids`, `shown` bool[M] (available, and not gone), `gone` bool[M]; `lengths` int64[M], `items` int32[E] and `weights`
    float32[E] of their mixtures; `cells` and `rows` of their columns, without the `unfit` ones, by item and name.
    `known_gone` and `known_hidden`: known indices.
    """

    ids: list[int | str]
    shown: BoolArray
    gone: BoolArray
    lengths: NDArray[np.int64]
    items: NDArray[np.int32]
    weights: NDArray[np.float32]
    cells: Cells
    rows: pl.DataFrame
    unfit: list[tuple[int | str, str]]
    known_gone: NDArray[np.int32]
    known_hidden: NDArray[np.int32]


def widened(base: Snapshot, learned: Learned, number: int) -> Snapshot:
    """The fitted snapshot with all that is learned. Errors: `InputError` on an item that cannot be taken.

    A cell that a column of the model cannot take is left out, see `unfit_cells`. What was made of a piece of an
    earlier version is used again.
    """
    if not learned.name:
        return replace(base, number=number)
    parts = [_once(base, piece, _part_of) for piece in learned.pieces["items"]]
    hidden, erased = (
        [_once(base, piece, _known_of) for piece in learned.pieces[name]] for name in ("unavailable", "erased")
    )
    before, names = base.retriever, base.names
    gone = _joined([*erased, *(part.known_gone for part in parts)], np.int32)
    gone = np.unique(gone if before.erased is None else np.concatenate([before.erased, gone]))
    new = [each for part in parts for each in part.ids]
    opened = with_mixtures(
        before.searcher,
        before.items,
        new,
        _joined([part.gone for part in parts], bool),
        _mixtures(parts, gone),
        gone,
        keep=True,
    )
    # Without its own columns, which would be copied: `names` has them all.
    retriever = replace(before, columns=None, **opened)
    shown = np.ones(base.known, bool)
    for known in (*hidden, *(part.known_hidden for part in parts), gone):
        shown[known] = False
    mask = _joined([shown, *(part.shown for part in parts)], bool)
    alive = None if mask.all() else Prepared(mask)
    columns = names.filters.columns
    whole = with_cells(columns, [part.cells for part in parts], len(new)) if new else columns
    filters = Filters(retriever.items, whole, names.filters.max_bytes, alive, names.filters.uses)
    return replace(
        base,
        number=number,
        retriever=retriever,
        names=Names(retriever.items, filters, names.users, names.histories, retriever.names.erased, names.rejected),
        fields=base.fields.with_rows(base.known, [part.rows for part in parts]),
        popular=_popular(base, retriever.searcher, len(new)),
        fitted=base,
        learned=learned.name,
    )


def _once(base: Snapshot, piece: Piece, make: Callable[[Snapshot, Piece], _Made]) -> _Made:
    """The result of `make` for a piece, which does not change."""
    if piece not in base.by_piece:
        base.by_piece[piece] = make(base, piece)
    made: _Made = base.by_piece[piece]
    return made


def _part_of(base: Snapshot, piece: Piece) -> _Part:
    items: Sequence[CatalogueItem] = piece.entries
    places = in_folder(base.names.items, [each.item for each in items]).tolist()
    # A model may have been fitted with items that were new to an earlier one.
    known = [(each, at) for each, at in zip(items, places, strict=True) if at >= 0]
    new = [each for each, at in zip(items, places, strict=True) if at < 0]
    mixtures = [{} if each.gone else mixture_of(base, each, base.names.erased)[0] for each in new]
    columns, fields = base.names.filters.columns, base.fields
    cells, not_found = _taken(partial(cells_of, columns), [_cells(each, columns.columns.keys()) for each in new])
    rows, not_shown = _taken(fields.rows_of, [_shown(each, fields) for each in new])
    return _Part(
        ids=[each.item for each in new],
        shown=np.array([each.available and not each.gone for each in new], bool),
        gone=np.array([each.gone for each in new], bool),
        lengths=np.array([len(mixture) for mixture in mixtures], np.int64),
        items=np.array([at for mixture in mixtures for at in mixture], np.int32),
        weights=np.array([weight for mixture in mixtures for weight in mixture.values()], np.float32),
        cells=cells,
        rows=rows,
        unfit=[(new[at].item, name) for at, name in dict.fromkeys([*not_found, *not_shown])],
        known_gone=np.array([at for each, at in known if each.gone], np.int32),
        known_hidden=np.array([at for each, at in known if not each.available], np.int32),
    )


def _taken(
    take: Callable[[Sequence[Mapping[str, Any]]], _Made], rows: Sequence[Mapping[str, Any]]
) -> tuple[_Made, list[tuple[int, str]]]:
    """What `take` makes of rows of cells, and those that it refuses, by row and name, which count as missing."""

    def is_fit(row: Mapping[str, Any]) -> bool:
        try:
            take([row])
        except InputError:
            return False
        return True

    try:
        return take(rows), []
    except InputError:
        odd = [(at, row) for at, row in enumerate(rows) if not is_fit(row)]
    unfit = [(at, name) for at, row in odd for name in row if not is_fit({name: row[name]})]
    left = [dict(row) for row in rows]
    for at, name in unfit:
        del left[at][name]
    return take(left), unfit


def unfit_cells(base: Snapshot, learned: Learned) -> list[tuple[int | str, str]]:
    """The cells of new items that the columns of a fitted snapshot cannot take, by item and column."""
    return [each for piece in learned.pieces["items"] for each in _once(base, piece, _part_of).unfit]


def check_cells(base: Snapshot, items: Sequence[CatalogueItem]) -> None:
    """Errors: `InputError` on a cell of another type."""
    columns = base.names.filters.columns
    cells_of(columns, [_cells(each, columns.columns.keys()) for each in items])
    base.fields.rows_of([_shown(each, base.fields) for each in items])


def _known_of(base: Snapshot, piece: Piece) -> NDArray[np.int32]:
    """The indices of the ids that the model knows."""
    found = indices_of(base.names.items, piece.entries)
    return found[found >= 0]


def _mixtures(parts: Sequence[_Part], erased: NDArray[np.int32]) -> Mixtures:
    """The mixtures of all new items, of which erased items are no part."""
    lengths = _joined([part.lengths for part in parts], np.int64)
    items = _joined([part.items for part in parts], np.int32)
    lists = ItemLists.unchecked(indptr_of(lengths), items)
    left = ~np.isin(items, erased)
    return Mixtures(lists.keeping(left), _joined([part.weights for part in parts], np.float32)[left])


def _joined(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *parts])


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
    alike = places_of(item.alike)
    if (alike >= 0).any():
        return sources.vector(alike[alike >= 0]), "vector"
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
