"""The catalogue learned while a service runs: documents by name, recent earlier ones, and the name of the latest.

A change is detected by the name alone.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from beamwood.serve.store.protocol import HistoryStore, StoreUnavailable

__all__ = ["CatalogueItem", "Learned", "earlier_learned", "name_of", "read_learned", "text_of", "write_learned"]

_DOCUMENT = "catalogue"
# The number of characters of a document's name that select its slot. A newer document overwrites the slot, so space is
# bounded; documents longer than `_LONG` have fewer slots.
_SLOTS, _LONG = (2, 1), 2**18


class CatalogueItem(Struct, frozen=True, omit_defaults=True):
    """A new item; `near`: known ids with their counts near the item's first events; `events`: the number of events.

    An item that is `gone` keeps its index, so that later pages of an answer stay consistent.
    """

    item: int | str
    category: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    similar: list[int | str] = field(default_factory=list)
    available: bool = True
    near: list[tuple[int | str, float]] = field(default_factory=list)
    events: int = 0
    gone: bool = False

    def without(self, item: int | str) -> CatalogueItem:
        """The same, and not like an erased item."""
        if item not in self.similar and item not in dict(self.near):
            return self
        near = [(each, count) for each, count in self.near if each != item]
        return structs.replace(self, similar=[each for each in self.similar if each != item], near=near)


class Learned(Struct):
    """The whole catalogue document: new items in order of arrival, and unavailable and erased known items."""

    items: list[CatalogueItem] = field(default_factory=list)
    unavailable: list[int | str] = field(default_factory=list)
    erased: list[int | str] = field(default_factory=list)

    def copy(self) -> Learned:
        """A copy with lists of its own."""
        return Learned(list(self.items), list(self.unavailable), list(self.erased))

    def by_id(self) -> dict[int | str, CatalogueItem]:
        """All new items, gone or not, in order; ids keep their type, so 1 and "1" differ."""
        return {each.item: each for each in self.items}


class _Stored(Struct):
    items: list[msgspec.Raw] = field(default_factory=list)
    unavailable: list[int | str] = field(default_factory=list)
    erased: list[int | str] = field(default_factory=list)


def text_of(learned: Learned) -> str:
    """The document as JSON."""
    return msgspec.json.encode(learned).decode()


def name_of(learned: Learned) -> str:
    """The name that an answer stores; empty if nothing was learned."""
    if not (learned.items or learned.unavailable or learned.erased):
        return ""
    return _name(text_of(learned))


def _name(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_learned(store: HistoryStore, before: str | None, learned: Learned) -> str | None:
    """Store the document if the latest is still `before`; return its name, None if it was not stored."""
    text = text_of(learned)
    name = _name(text)
    slot = name[: _SLOTS[len(text) > _LONG]]
    return name if store.replace(_DOCUMENT, before, name, {f"{_DOCUMENT}@{slot}": text}) else None


def read_learned(store: HistoryStore, known: str | None) -> tuple[str | None, Learned | None]:
    """The name of the latest document, None if nothing was learned, and the document unless its name is `known`."""
    name, found = store.get(_DOCUMENT), None
    while name is not None and name != known and found is None:
        asked, found = name, earlier_learned(store, name)
        if found is None:
            # A later document may have overwritten the slot.
            name = store.get(_DOCUMENT)
        if name == asked and found is None:
            raise StoreUnavailable("the learned catalogue is missing in the store; restore the store")
    return name, found


def earlier_learned(store: HistoryStore, name: str) -> Learned | None:
    """The document of a name, None if it was overwritten."""
    texts = (store.get(f"{_DOCUMENT}@{name[:digits]}") for digits in _SLOTS)
    text = next((each for each in texts if each is not None and _name(each) == name), None)
    if text is None:
        return None
    # Decoded one by one, as a single call would block other threads.
    stored, item = msgspec.json.decode(text, type=_Stored), msgspec.json.Decoder(CatalogueItem)
    return Learned([item.decode(each) for each in stored.items], stored.unavailable, stored.erased)
