"""What is learned of items while a service runs, as one document, and by name the documents of a while ago."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct, field

from beamwood.serve.store.protocol import HistoryStore

__all__ = ["CatalogueItem", "Learned", "earlier_learned", "name_of", "read_learned", "text_of", "write_learned"]

_DOCUMENT = "catalogue"
# So many characters of its name say where an earlier one is kept; a newer one takes the place, so space is bounded.
_SLOT = 2


class CatalogueItem(Struct, omit_defaults=True):
    """A new item as it was put; `near`: by known id how often each stood near its first events; `events`: how many.

    One that is `gone` keeps its place, so that pages of answers that were begun stay right.
    """

    item: int | str
    category: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    similar: list[int | str] = field(default_factory=list)
    available: bool = True
    near: list[tuple[int | str, float]] = field(default_factory=list)
    events: int = 0
    gone: bool = False


class Learned(Struct):
    """The whole of it: new items in the order in which they came, known ones that are unavailable or erased."""

    items: list[CatalogueItem] = field(default_factory=list)
    unavailable: list[int | str] = field(default_factory=list)
    erased: list[int | str] = field(default_factory=list)

    def find(self, item: int | str) -> CatalogueItem | None:
        """The new item of that id, gone or not; who asks for many asks `by_id`."""
        return next((each for each in self.items if each.item == item and type(each.item) is type(item)), None)

    def by_id(self) -> dict[int | str, CatalogueItem]:
        """All new items, gone or not, in their order; as ids are whole numbers or text, 1 is not "1"."""
        return {each.item: each for each in self.items}


def text_of(learned: Learned) -> str:
    """The document."""
    return msgspec.json.encode(learned).decode()


def name_of(learned: Learned) -> str:
    """What an answer keeps of it; empty where nothing was learned."""
    if not (learned.items or learned.unavailable or learned.erased):
        return ""
    return _name(text_of(learned))


def _name(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def write_learned(store: HistoryStore, before: str | None, text: str) -> bool:
    """Keep the document, also under its name, unless the latest is not `before` any more; whether it is kept."""
    store.put(f"{_DOCUMENT}@{_name(text)[:_SLOT]}", text)
    return store.replace(_DOCUMENT, before, text)


def read_learned(store: HistoryStore) -> str | None:
    """The latest document, None where nothing was learned."""
    return store.get(_DOCUMENT)


def earlier_learned(store: HistoryStore, name: str) -> Learned | None:
    """The document of that name, None where it is kept no more."""
    text = store.get(f"{_DOCUMENT}@{name[:_SLOT]}")
    return None if text is None or _name(text) != name else msgspec.json.decode(text, type=Learned)
