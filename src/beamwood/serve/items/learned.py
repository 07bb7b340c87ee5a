"""The catalogue learned while a service runs: versions by name, recent earlier ones, and the name of the latest.

A version is stored as a short document that names its pieces by digest, so that a change writes, and other processes
read, only the pieces that it touches. A change is detected by the name alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import is_
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from beamwood.blocks import slices
from beamwood.serve.store.protocol import HistoryStore, StoreUnavailable

__all__ = ["CatalogueItem", "Learned", "Piece", "earlier_learned", "erased_items", "read_learned", "write_learned"]

_DOCUMENT = "catalogue"
# The entries of a piece: of smaller ones the document would be long, of larger ones a change.
_PIECE = 128
# The number of characters of a name that select its slot. A newer document overwrites the slot, so space is bounded;
# documents longer than `_LONG` have fewer slots.
_SLOTS, _LONG = (2, 1), 2**18


class CatalogueItem(Struct, frozen=True, omit_defaults=True):
    """A new item; `near`: known ids with their counts near the item's first events; `events`: the number of events.

    `alike`: known ids whose content vectors are similar to the item's, which is not stored itself.
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
    alike: list[int | str] = field(default_factory=list)

    def without(self, item: int | str) -> CatalogueItem:
        """The same, and not like an erased item."""
        near = [(each, count) for each, count in self.near if each != item]
        similar, alike = ([each for each in ids if each != item] for ids in (self.similar, self.alike))
        if (len(near), len(similar), len(alike)) == (len(self.near), len(self.similar), len(self.alike)):
            return self
        return structs.replace(self, near=near, similar=similar, alike=alike)


class Piece:
    """Consecutive new items, or ids, of a version; later versions share it as long as none of these changes."""

    def __init__(self, entries: Sequence[Any], text: str) -> None:
        self.entries, self.size, self.name = tuple(entries), len(text), _name(text)

    @property
    def text(self) -> str:
        """As JSON."""
        return msgspec.json.encode(self.entries).decode()


_DECODED: Mapping[str, Callable[[str], Sequence[Any]]] = {
    "items": msgspec.json.Decoder(list[CatalogueItem]).decode,
    "unavailable": msgspec.json.Decoder(list[int | str]).decode,
    "erased": msgspec.json.Decoder(list[int | str]).decode,
}


class Learned:
    """What is learned: new items by id in order of arrival, gone or not, and unavailable and erased known items.

    Ids keep their type, so 1 and "1" differ. It may be changed until it is asked for its pieces or erased ids.
    """

    def __init__(
        self,
        items: Iterable[CatalogueItem] = (),
        unavailable: Iterable[int | str] = (),
        erased: Iterable[int | str] = (),
        earlier: Mapping[str, Sequence[Piece]] | None = None,
    ) -> None:
        self.items = {each.item: each for each in items}
        self.unavailable, self.erased = list(unavailable), list(erased)
        self._earlier = earlier or {}

    def copy(self) -> Learned:
        """A copy with lists of its own, which will share the pieces that stay as they are."""
        made = Learned((), self.unavailable, self.erased, self.pieces)
        made.items = self.items.copy()
        return made

    @cached_property
    def pieces(self) -> Mapping[str, Sequence[Piece]]:
        """The pieces of each list by its name, in order."""
        lists: dict[str, list[Any]] = {"unavailable": self.unavailable, "erased": self.erased}
        lists = {"items": [*self.items.values()]} | lists
        return {name: self._cut(self._earlier.get(name, ()), entries) for name, entries in lists.items()}

    @staticmethod
    def _cut(earlier: Sequence[Piece], entries: Sequence[Any]) -> Sequence[Piece]:
        cut = []
        for place, part in enumerate(slices(len(entries), _PIECE)):
            own = entries[part]
            before = earlier[place].entries if place < len(earlier) else ()
            same = len(before) == len(own) and all(map(is_, before, own))
            cut.append(earlier[place] if same else Piece(own, msgspec.json.encode(own).decode()))
        return cut

    @cached_property
    def erased_items(self) -> frozenset[int | str]:
        """All erased ids, of fitted and of new items; their stored events are in no history and no export."""
        return frozenset((*self.erased, *(each.item for each in self.items.values() if each.gone)))

    @cached_property
    def text(self) -> str:
        """The document: the names of the pieces."""
        return msgspec.json.encode(
            {name: [piece.name for piece in pieces] for name, pieces in self.pieces.items()}
        ).decode()

    @cached_property
    def name(self) -> str:
        """The name that an answer stores; empty if nothing was learned."""
        return _name(self.text) if any(self.pieces.values()) else ""


def _name(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _slot(document: str, name: str, *, is_long: bool) -> str:
    return f"{document}@{name[: _SLOTS[is_long]]}"


def write_learned(store: HistoryStore, before: str | None, learned: Learned, stored: Learned) -> str | None:
    """Store the version if the latest is still `before`; return its name, None if it was not stored.

    `stored`: the version `before`, whose pieces the store has.
    """
    name = _name(learned.text)
    beside = {_slot(_DOCUMENT, name, is_long=len(learned.text) > _LONG): learned.text}
    is_long = sum(piece.size for pieces in learned.pieces.values() for piece in pieces) > _LONG
    for kind, pieces in learned.pieces.items():
        there = stored.pieces[kind] if before is not None else ()
        for place, piece in enumerate(pieces):
            if place >= len(there) or there[place] is not piece:
                beside[_slot(f"{_DOCUMENT}.{kind}.{place}", piece.name, is_long=is_long)] = piece.text
    return name if store.replace(_DOCUMENT, before, name, beside) else None


def read_learned(
    store: HistoryStore, known: str | None, stored: Learned | None = None
) -> tuple[str | None, Learned | None]:
    """The name of the latest version, None if nothing was learned, and the version unless its name is `known`.

    `stored`: a version at hand, whose pieces are not read again.
    """
    name, found = store.get(_DOCUMENT), None
    while name is not None and name != known and found is None:
        asked, found = name, earlier_learned(store, name, stored)
        if found is None:
            # A later document may have overwritten the slot.
            name = store.get(_DOCUMENT)
        if name == asked and found is None:
            raise StoreUnavailable("the learned catalogue is missing in the store; restore the store")
    return name, found


def erased_items(store: HistoryStore) -> frozenset[int | str]:
    """See `Learned`."""
    learned = read_learned(store, None)[1]
    return frozenset() if learned is None else learned.erased_items


def earlier_learned(store: HistoryStore, name: str, stored: Learned | None = None) -> Learned | None:
    """The version of a name, None if a part of it was overwritten; see `read_learned`."""
    text = _kept(store, _DOCUMENT, name)
    if text is None:
        return None
    at_hand = {} if stored is None else {piece.name: piece for own in stored.pieces.values() for piece in own}
    pieces: dict[str, list[Piece]] = {}
    for kind, names in msgspec.json.decode(text, type=dict[str, list[str]]).items():
        pieces[kind] = []
        for place, each in enumerate(names):
            piece = at_hand.get(each)
            if piece is None:
                text = _kept(store, f"{_DOCUMENT}.{kind}.{place}", each)
                if text is None:
                    return None
                piece = Piece(_DECODED[kind](text), text)
            pieces[kind].append(piece)
    lists = {kind: [entry for piece in own for entry in piece.entries] for kind, own in pieces.items()}
    return Learned(**lists, earlier=pieces)


def _kept(store: HistoryStore, document: str, name: str) -> str | None:
    texts = (store.get(_slot(document, name, is_long=is_long)) for is_long in (False, True))
    return next((text for text in texts if text is not None and _name(text) == name), None)
