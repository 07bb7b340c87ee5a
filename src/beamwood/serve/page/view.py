"""The content of the page for one request, computed on a search thread: the answer, its reasons, an exact search.

Shape legend: N items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from msgspec import structs

from beamwood.data.vocabularies.vocabulary import Vocabulary
from beamwood.retrieval.columns.item_columns import CATEGORY, Column
from beamwood.retrieval.columns.label_column import LabelColumn
from beamwood.retrieval.columns.number_column import NumberColumn
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import StoredHistory
from beamwood.serve.answer.ids import indices_of, told_ids
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Answer, Recommend
from beamwood.serve.page.asked import FormFields
from beamwood.serve.settings import Limits

__all__ = ["CellField", "Exact", "Titled", "View", "view_of"]

_MOST_FOUND, _MOST_CATEGORIES, _MOST_FIELDS = 10, 200, 12
# Up to these items a beam over all takes milliseconds; beyond, the full beam is shown for comparison.
_EXACT_ITEMS = 50_000


@dataclass(frozen=True, slots=True)
class Titled:
    """An item with its title."""

    item: Any
    title: str


@dataclass(frozen=True, slots=True)
class Exact:
    """The answer of a thorough search, beside the requested one: `overlap` of the two lists, 0 to 1."""

    every_item: bool
    overlap: float
    milliseconds: float


@dataclass(frozen=True, slots=True)
class CellField:
    """A column for cells of a new item; `kind`: number, truth, time or text."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class View:
    """The data of the template."""

    answer: Answer | None = None
    exact: Exact | None = None
    history: Sequence[Titled] = ()
    found: Sequence[Titled] = ()
    categories: Sequence[str] = ()
    columns: Sequence[str] = ()
    fields: Sequence[CellField] = ()
    ids: str = "text"
    titles: dict[Any, str] = field(default_factory=dict)
    user: int | str | None = None


def view_of(
    snapshot: Snapshot,
    asked: FormFields,
    body: Recommend | None,
    kept: StoredHistory,
    limits: Limits,
    *,
    request_id: str,
) -> View:
    """The view of a request. Errors: `Problem`, as in the API."""
    columns = snapshot.names.filters.columns.columns
    labels = columns.get(CATEGORY)
    shown: dict[str, Any] = {
        "found": _found(snapshot, asked.find) if asked.find else (),
        "history": titled(snapshot, asked.ids(snapshot.names.items)),
        "categories": sorted(labels.names)[:_MOST_CATEGORIES] if isinstance(labels, LabelColumn) else (),
        "columns": [name for name, column in columns.items() if name != CATEGORY and not _is_vector(column)],
        "fields": _fields(snapshot)[:_MOST_FIELDS],
        "ids": _kind_of(snapshot.names.items),
    }
    if body is None:
        return View(**shown)
    answer, _ = recommended(snapshot, body, kept, limits, request_id=request_id)
    reasons = [(item.explain or {}).get(name, ()) for item in answer.items for name in ("attention", "history")]
    named = dict.fromkeys(part["item"] for parts in reasons for part in parts)
    titles = {each.item: each.title for each in titled(snapshot, list(named))}
    return View(answer, _exact(snapshot, body, kept, limits, answer), titles=titles, user=body.user, **shown)


def _fields(snapshot: Snapshot) -> list[CellField]:
    """The columns of new items, the title first; the category has its own field, and nobody types a vector."""
    columns, title = snapshot.names.filters.columns.columns, snapshot.fields.title
    names = dict.fromkeys([*([] if title is None else [title]), *snapshot.fields.names, *columns])
    kinds = {name: column.kind for name, column in columns.items() if isinstance(column, NumberColumn)}
    typed = [name for name in names if name != CATEGORY and not _is_vector(columns.get(name))]
    return [CellField(name, kinds.get(name, "text")) for name in typed]


def _is_vector(column: Column | None) -> bool:
    return isinstance(column, VectorColumn)


def titled(snapshot: Snapshot, items: Sequence[Any]) -> list[Titled]:
    """The items with their titles, or ids without one."""
    if not items or snapshot.fields.title is None:
        return [Titled(item, "") for item in items]
    at = indices_of(snapshot.names.items, items)
    texts = snapshot.fields.of(np.maximum(at, 0), [snapshot.fields.title])
    said = [str(next(iter(text.values())) or "") for text in texts]
    return [Titled(item, text if place >= 0 else "") for item, place, text in zip(items, at, said, strict=True)]


def _kind_of(ids: Vocabulary) -> str:
    """How the page's script writes the ids of items: as numbers with a sign, without one, or as text."""
    return "text" if not ids.dtype.is_integer() else "unsigned" if ids.dtype == pl.UInt64 else "number"


def _found(snapshot: Snapshot, words: str) -> list[Titled]:
    """The first items whose title contains the words, or whose id begins with them."""
    ids, title = snapshot.names.items.ids, snapshot.fields.title
    hit = ids.cast(pl.String).str.starts_with(words)
    if title is not None:
        text = snapshot.fields.texts(title).str.to_lowercase()
        hit = hit | text.str.contains(words.lower(), literal=True).fill_null(False)
    places = hit.arg_true().to_numpy().astype(np.int64)
    shown = places[snapshot.names.filters.may_show(places)][:_MOST_FOUND]
    return titled(snapshot, told_ids(snapshot.names.items, shown))


def _exact(snapshot: Snapshot, body: Recommend, kept: StoredHistory, limits: Limits, answer: Answer) -> Exact | None:
    """None where nothing is found, and without a tree: the answer is exact, or the index has no effort."""
    if snapshot.tree is None or answer.source != "model":
        return None
    every = snapshot.num_items <= _EXACT_ITEMS
    thorough: dict[str, Any] = {"beam_width": snapshot.num_items, "effort": None} if every else {"effort": 1.0}
    other, _ = recommended(
        snapshot, structs.replace(body, explain="none", **thorough), kept, limits, request_id=answer.request_id
    )
    if not other.items:
        return None
    both = {item.item for item in other.items} & {item.item for item in answer.items}
    return Exact(every, len(both) / len(other.items), other.took_ms.search)
