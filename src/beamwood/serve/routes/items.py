"""`/v1/items`: items that came after the fit, what is available, and erasure of items."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from beamwood.errors import InputError
from beamwood.retrieval.columns.item_columns import CATEGORY
from beamwood.retrieval.columns.vector_column import VectorColumn
from beamwood.retrieval.new_items.added import num_known
from beamwood.retrieval.new_items.content import similar_content
from beamwood.retrieval.new_items.sources import Source
from beamwood.serve.answer.ids import in_folder, indices_of, typed_id
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.http.route import Call, Route
from beamwood.serve.items.learned import CatalogueItem, Learned
from beamwood.serve.items.widened import check_cells, mixture_of
from beamwood.serve.messages import Body, Id, Ids
from beamwood.serve.problems import Problem
from beamwood.serve.service import Service
from beamwood.serve.store.event import Event, check_text
from beamwood.types import BoolArray

__all__ = ["routes"]

_MOST, _MOST_CATEGORIES = 1000, 100
_Content = tuple[dict[str, Any], list[Id] | None]
Category = Annotated[str | None, Meta(description='Several categories are separated by "|".')]
Similar = Annotated[Ids, Meta(description="Similar items that the model knows.")]


class NewItem(Body):
    """A complete item; omitted fields are empty."""

    item: Id
    category: Category = None
    fields: Annotated[
        dict[str, Any],
        Meta(description="Cells of item columns; one of a vector column places the item by its content."),
    ] = field(default_factory=dict)
    similar: Similar = field(default_factory=list)
    available: bool = True


class NewItems(Body):
    """Items that are not in the training data."""

    items: list[NewItem]


class ItemChange(Body):
    """Changes of a new item; omitted fields stay unchanged."""

    category: Category | UnsetType = UNSET
    fields: dict[str, Any] | UnsetType = UNSET
    similar: Ids | UnsetType = UNSET
    available: bool | UnsetType = UNSET


class Availability(Body):
    """Items to make available (`set`) and unavailable (`clear`)."""

    set: Ids = field(default_factory=list)
    clear: Ids = field(default_factory=list)


class Placed(Struct):
    """A new item; `source`: how it was placed; `shown`: how often this process has recommended it."""

    item: Any
    source: Source
    events: int
    available: bool
    shown: int


class Catalogued(Struct):
    """New items, and the snapshot that contains them.

    `unknown_fields`: fields that are columns neither of the model nor of --items; they are stored for a later model,
    and no filter finds them.
    """

    request_id: str
    snapshot: int
    items: list[Placed]
    unknown_fields: list[str]


class Changed(Struct):
    """The number of changed items."""

    request_id: str
    snapshot: int
    changed: int


def routes(service: Service) -> list[Route]:  # noqa: ARG001
    """The endpoints that change the catalogue."""
    put = f"Add or replace at most {_MOST:,} new items; the response follows once they can be recommended"
    return [
        Route("GET", "/v1/items", _list, "items", "List items added after training", Catalogued, is_long=True),
        Route("PUT", "/v1/items", _put, "items", put, Catalogued, NewItems, body_bytes=4 * 2**20),
        Route(
            "PUT",
            "/v1/items/availability",
            _availability,
            "items",
            "Set the availability of items",
            Changed,
            Availability,
        ),
        Route("PATCH", "/v1/items/{id}", _patch, "items", "Update a new item", Catalogued, ItemChange),
        Route("DELETE", "/v1/items/{id}", _delete, "items", "Erase an item from all answers and histories", Changed),
    ]


async def _list(call: Call) -> Catalogued:
    await call.service.catalogue.settled()
    learned = [each for each in call.service.catalogue.new_items.values() if not each.gone]
    places = in_folder(call.snapshot.names.items, [each.item for each in learned]).tolist()
    return await _catalogued(call, [each for each, at in zip(learned, places, strict=True) if at < 0])


async def _put(call: Call) -> Catalogued:
    given = call.body.items
    if not 1 <= len(given) <= _MOST:
        raise Problem("invalid_request", f"items has {len(given)} of them; give 1 to {_MOST}", field="items")
    twice = [item for item, count in Counter(each.item for each in given).items() if count > 1]
    if twice:
        raise Problem("invalid_request", f"items has {twice[0]!r} more than once; give each once", field="items")

    # Kept, as the change is tried again where another process was quicker.
    made: list[tuple[Snapshot, list[_Content]]] = []

    def contents_by(snapshot: Snapshot) -> list[_Content]:
        base = snapshot.fitted or snapshot
        if not made or made[-1][0] is not base:
            made.append((base, _by_content(snapshot, [each.fields for each in given])))
        return made[-1][1]

    def change(snapshot: Snapshot, learned: Learned) -> list[CatalogueItem]:
        known, erased = learned.items, set(learned.erased)
        placed = [
            _placed(snapshot, known, erased, each, number, content)
            for number, (each, content) in enumerate(zip(given, contents_by(snapshot), strict=True))
        ]
        learned.unavailable = [each for each in learned.unavailable if each not in learned.items]
        for base in _bases(call):
            check_cells(base, placed)
        return placed

    return await _catalogued(call, await _changed(call, change))


def _placed(
    snapshot: Snapshot,
    known: dict[Any, CatalogueItem],
    erased: set[Any],
    given: NewItem,
    number: int,
    content: _Content,
) -> CatalogueItem:
    """Put it into `known`, in the place of an earlier one of its id.

    Errors: `Problem` on an item that was fitted, or one that is like an unknown one.
    """
    try:
        Event(0, given.item, 0.0)
    except InputError as error:
        raise Problem("invalid_request", f"items[{number}].{error}", field=f"items[{number}].item") from None
    found = known.get(given.item)
    in_model = int(in_folder(snapshot.names.items, [given.item])[0]) >= 0 and (found is None or not found.gone)
    if in_model or given.item in erased:
        what = "was fitted and then erased, for good" if given.item in erased else "was fitted"
        message = f"the item {given.item!r} {what}; put items that the model does not know"
        raise Problem("conflict", message, field=f"items[{number}].item")
    _check_category(given.category, f"items[{number}].category")
    _check_category(given.fields.get(CATEGORY), f"items[{number}].fields")
    _check_similar(snapshot, given.similar, f"items[{number}].similar")
    near, events = ([], 0) if found is None else (found.near, found.events)
    fields, alike = content
    fresh = CatalogueItem(
        given.item, given.category, fields, given.similar, given.available, near, events, alike=alike or []
    )
    known[given.item] = fresh
    return fresh


def _by_content(snapshot: Snapshot, given: Sequence[Mapping[str, Any]]) -> list[_Content]:
    """Of each item the fields without vectors, and the known items similar by one; None where none is named."""
    alive, columns = snapshot.names.filters.alive, snapshot.names.filters.columns
    found = similar_content(columns, given, None if alive is None else alive.mask)
    contents: list[_Content] = []
    for fields, near in zip(given, found, strict=True):
        rest = {name: value for name, value in fields.items() if not isinstance(columns.get(name), VectorColumn)}
        # A null takes the vector away.
        none: list[Id] | None = [] if len(rest) < len(fields) else None
        contents.append((rest, none if near is None else snapshot.names.items.decode(near)))
    return contents


def _check_category(category: Any, field: str) -> None:
    """Errors: `Problem` on too many or too long categories, in text or in a list of texts."""
    texts: list[Any] = [category] if isinstance(category, str) else category if isinstance(category, list) else []
    labels = [label for text in texts if isinstance(text, str) for label in text.split("|") if label]
    if len(labels) > _MOST_CATEGORIES:
        message = f"{field} has {len(labels)} categories; give {_MOST_CATEGORIES} at most"
        raise Problem("invalid_request", message, field=field)
    try:
        for label in labels:
            check_text(field, label)
    except InputError as error:
        raise Problem("invalid_request", str(error), field=field) from None


def _check_similar(snapshot: Snapshot, ids: list[Any], name: str) -> None:
    if len(ids) > _MOST:
        raise Problem("invalid_request", f"{name} has {len(ids)} ids; give {_MOST} at most", field=name)
    for each, at in zip(ids, indices_of(snapshot.names.items, ids).tolist(), strict=True):
        if not 0 <= at < num_known(snapshot.searcher):
            raise Problem("invalid_request", f"{name} names {each!r}, which the model does not know", field=name)


async def _patch(call: Call) -> Catalogued:
    def change(snapshot: Snapshot, learned: Learned) -> list[CatalogueItem]:
        item = typed_id(call.path["id"], snapshot.names.items)
        found = learned.items.get(item)
        if found is None and _are_known(call, [item]).all():
            message = f"the item {item!r} was fitted; hide or show it by PUT /v1/items/availability"
            raise Problem("conflict", message, field="id")
        if found is None or found.gone:
            raise _no_such_item(call)
        given = {name: value for name, value in structs.asdict(call.body).items() if value is not UNSET}
        if given.keys() - {"available"} and int(in_folder(snapshot.names.items, [item])[0]) >= 0:
            message = f"the item {item!r} was fitted, so this has no effect; change the item table, or available alone"
            raise Problem("conflict", message, field="id")
        _check_category(given.get("category"), "category")
        _check_category(given.get("fields", {}).get(CATEGORY), "fields")
        _check_similar(snapshot, given.get("similar", []), "similar")
        if "fields" in given:
            ((given["fields"], alike),) = _by_content(snapshot, [given["fields"]])
            given |= {} if alike is None else {"alike": alike}
        # Only what is given: a cell of before that does not fit a later model is no reason to refuse.
        cells = CatalogueItem(found.item, given.get("category"), given.get("fields", {}))
        for base in _bases(call):
            check_cells(base, [cells])
        learned.items[found.item] = fresh = structs.replace(found, **given)
        return [fresh]

    return await _catalogued(call, await _changed(call, change))


async def _delete(call: Call) -> Changed:
    def change(snapshot: Snapshot, learned: Learned) -> int:
        item = typed_id(call.path["id"], snapshot.names.items)
        found = learned.items.get(item)
        if found is not None and not found.gone:
            learned.items[item] = CatalogueItem(item, gone=True)
        elif found is None and item not in learned.erased and _are_known(call, [item]).all():
            learned.erased.append(item)
        else:
            raise _no_such_item(call)
        learned.items = {each.item: each.without(item) for each in learned.items.values()}
        return 1

    return await _counted(call, change)


async def _availability(call: Call) -> Changed:
    both = set(call.body.clear).intersection(call.body.set)
    if both:
        message = f"the item {both.pop()!r} is in set and in clear; name it in one of them"
        raise Problem("invalid_request", message, field="clear")

    def change(snapshot: Snapshot, learned: Learned) -> int:  # noqa: ARG001
        hidden, new, count = dict.fromkeys(learned.unavailable), learned.items, 0
        for name, ids, shown in (("clear", call.body.clear, False), ("set", call.body.set, True)):
            for item, is_known in zip(ids, _are_known(call, ids).tolist(), strict=True):
                if not is_known:
                    raise Problem("unknown_item", f"the item {item!r} is unknown; put it first", field=name)
                found = new.get(item)
                before = found.available if found is not None else item not in hidden
                count += before is not shown
                if found is not None:
                    new[item] = structs.replace(found, available=shown)
                elif shown:
                    hidden.pop(item, None)
                else:
                    hidden[item] = None
        learned.unavailable = list(hidden)
        return count

    return await _counted(call, change)


async def _changed(call: Call, change: Any) -> Any:
    try:
        return await call.service.catalogue.change(change)
    except InputError as error:
        # A cell is refused as a condition on its column is.
        message = str(error).removeprefix("where: ")
        raise Problem("invalid_request", message, field=_field_of_cells(call)) from None


def _field_of_cells(call: Call) -> str:
    """The field whose cells cannot be taken."""
    if not isinstance(call.body, NewItems):
        return "fields"
    bases, own = _bases(call), call.snapshot.fitted or call.snapshot
    for number, each in enumerate(call.body.items):
        try:
            ((fields, _),) = _by_content(own, [each.fields])
            for base in bases:
                check_cells(base, [CatalogueItem(each.item, each.category, fields)])
        except InputError:
            return f"items[{number}].fields"
    return "items"


def _bases(call: Call) -> list[Snapshot]:
    """The models that answer, as they were fitted."""
    return [each.fitted or each for each in call.service.models.all()]


async def _counted(call: Call, change: Any) -> Changed:
    count = await _changed(call, change)
    return Changed(call.request_id, call.snapshot.number, count)


async def _catalogued(call: Call, items: list[CatalogueItem]) -> Catalogued:
    snapshot, shown = call.snapshot, call.service.catalogue.shown
    base, erased = snapshot.fitted or snapshot, snapshot.names.erased
    columns, displayed = snapshot.names.filters.columns, set(snapshot.fields.names)

    def told() -> Catalogued:
        names = dict.fromkeys(name for each in items for name in each.fields)
        unknown = [name for name in names if name not in columns and name not in displayed]
        sources = (mixture_of(base, each, erased)[1] for each in items)
        rows = [
            Placed(each.item, source, each.events, each.available, shown[each.item])
            for each, source in zip(items, sources, strict=True)
        ]
        return Catalogued(call.request_id, snapshot.number, rows, unknown)

    # Of many the loop would wait.
    return await asyncio.to_thread(told)


def _are_known(call: Call, ids: Sequence[Any]) -> BoolArray:
    """bool[len(ids)], whether a model that answers knows each, that of an arm too."""
    found: BoolArray = np.any([indices_of(each.names.items, ids) >= 0 for each in call.service.models.all()], axis=0)
    return found


def _no_such_item(call: Call) -> Problem:
    message = f"the item {call.path['id']!r} is unknown; GET /v1/items lists the new ones"
    return Problem("unknown_item", message, field="id")
