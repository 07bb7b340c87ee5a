"""What is learned of items while a service runs: a document by its name, those of a while ago, and the latest's name.

Who looks for a change reads the name alone.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct, field

from beamwood.serve.store.protocol import HistoryStore, StoreUnavailable

__all__ = ["CatalogueItem", "Learned", "earlier_learned", "name_of", "read_learned", "text_of", "write_learned"]

_DOCUMENT = "catalogue"
# So many characters of its name say where one is kept; a newer one takes the place, so space is bounded: of what is
# longer than this fewer are.
_SLOTS, _LONG = (2, 1), 2**18


class CatalogueItem(Struct, frozen=True, omit_defaults=True):
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

    def copy(self) -> Learned:
        """One whose lists may be changed."""
        return Learned(list(self.items), list(self.unavailable), list(self.erased))

    def by_id(self) -> dict[int | str, CatalogueItem]:
        """All new items, gone or not, in their order; as ids are whole numbers or text, 1 is not "1"."""
        return {each.item: each for each in self.items}


class _Stored(Struct):
    items: list[msgspec.Raw] = field(default_factory=list)
    unavailable: list[int | str] = field(default_factory=list)
    erased: list[int | str] = field(default_factory=list)


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


def write_learned(store: HistoryStore, before: str | None, learned: Learned) -> str | None:
    """Keep it, unless the latest is not that of the name `before` any more; its name, None where it is not kept."""
    text = text_of(learned)
    name = _name(text)
    slot = name[: _SLOTS[len(text) > _LONG]]
    return name if store.replace(_DOCUMENT, before, name, {f"{_DOCUMENT}@{slot}": text}) else None


def read_learned(store: HistoryStore, known: str | None) -> tuple[str | None, Learned | None]:
    """The name of the latest, None where nothing was learned, and itself where that name is not `known`."""
    name, found = store.get(_DOCUMENT), None
    while name is not None and name != known and found is None:
        asked, found = name, earlier_learned(store, name)
        if found is None:
            # A later one may have taken its place meanwhile.
            name = store.get(_DOCUMENT)
        if name == asked and found is None:
            raise StoreUnavailable("what was learned of items is not there; put back what the store had")
    return name, found


def earlier_learned(store: HistoryStore, name: str) -> Learned | None:
    """That of a name, None where it is kept no more."""
    texts = (store.get(f"{_DOCUMENT}@{name[:digits]}") for digits in _SLOTS)
    text = next((each for each in texts if each is not None and _name(each) == name), None)
    if text is None:
        return None
    # One after another, as one call for all would hold up the other threads.
    stored, item = msgspec.json.decode(text, type=_Stored), msgspec.json.Decoder(CatalogueItem)
    return Learned([item.decode(each) for each in stored.items], stored.unavailable, stored.erased)
