"""The first events of new items: at some of them a mixture is made anew, of what stands near them in histories.

Processes on one store count together. Each looks at the histories of the events that came to it, and an item has as
many events as were looked at: those of a process that was killed are in histories, and in no mixture.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import msgspec
from msgspec import structs

from beamwood.blocks import slices
from beamwood.errors import InputError
from beamwood.retrieval.new_items.added import num_known
from beamwood.retrieval.new_items.sources import REFRESHED_AT
from beamwood.serve.active import ActiveModels
from beamwood.serve.answer.ids import indices_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.items.learned import CatalogueItem, Learned
from beamwood.serve.items.near_events import near_of
from beamwood.serve.problems import Problem
from beamwood.serve.store.event import Event, Id, Owner, Session, id_text, read_id
from beamwood.serve.store.protocol import HistoryStore

__all__ = ["FirstEvents", "counted_together"]

_ROUND_SECONDS = 1.0
# Of the time, a change of what is learned may take the inverse of this.
_REST = 10.0
# Items that are made anew together.
_TOGETHER = 200
# What the last events of a process may take at its end.
_LAST_SECONDS = 2.0
# Hexadecimal digits of a hash of an item say which document has its count.
_SHARD = 1


class FirstEvents:
    """Notes the events of new items, and makes their mixtures anew; `said` logs a line about the service."""

    def __init__(
        self, models: ActiveModels, histories: HistoryGateway, said: Callable[..., None], catalogue: Catalogue
    ) -> None:
        self._models, self._histories, self._said, self._catalogue = models, histories, said, catalogue
        # By item who is behind the events that no mixture has, how many of these are in no common count, and that.
        self._owners: dict[Id, list[Owner]] = {}
        self._uncounted: Counter[Id] = Counter()
        self._seen: dict[Id, int] = {}
        # How many of the numbers of events an item had passed when it could not be made anew.
        self._refused: dict[Id, int] = {}

    def follow(self, events: Sequence[Event]) -> None:
        """Note events of new items, while they are among the first."""
        new = self._catalogue.new_items
        for event in events:
            found = new.get(event.item)
            if found is not None and not _is_done(found):
                owners = self._owners.setdefault(event.item, [])
                # More come only where the item cannot be made anew.
                if len(owners) < REFRESHED_AT[-1]:
                    owners.append(event.user)
                self._uncounted[event.item] += 1
                self._seen.setdefault(event.item, found.events)

    def merged(self, session: Session, user: Id) -> None:
        """Take note that the session's events are in the user's history."""
        for owners in self._owners.values():
            owners[:] = [user if each == session else each for each in owners]

    async def keep_up(self) -> None:
        """Make mixtures anew for as long as the service runs; rarer where that takes long."""
        while True:
            began = time.monotonic()
            # What a store that is down refused is tried in the next round.
            with suppress(Problem):
                await self.look()
            await asyncio.sleep(max(_ROUND_SECONDS, (_REST - 1) * (time.monotonic() - began)))

    async def look(self) -> None:
        """Count what came, and make anew what is due. Errors: `Problem`, after which all is due still."""
        await self._forget()
        if not self._owners:
            return
        await self._see()
        new = self._catalogue.new_items
        due = [item for item in self._owners if item in new and self._is_due(new[item])]
        if due:
            await self._made_anew(due[:_TOGETHER])

    async def finish(self) -> None:
        """Use at the end of the process what waits for a later number, as no other process knows who is behind it."""
        with suppress(Problem, TimeoutError):
            async with asyncio.timeout(_LAST_SECONDS):
                await self._forget()
                if self._owners:
                    await self._see()
                held = list(self._owners)
                for part in slices(len(held), _TOGETHER):
                    await self._made_anew(held[part])

    def _is_due(self, item: CatalogueItem) -> bool:
        passed = _passed(max(item.events, self._seen[item.item]))
        return passed > max(_passed(item.events), self._refused.get(item.item, 0))

    async def _forget(self) -> None:
        """Forget the events of items that are done, and of erased ones, which may come again."""
        new = self._catalogue.new_items
        left = [item for item in self._seen if item not in new or _is_done(new[item])]
        if left:
            await self._count(dict.fromkeys(left, 0))
        for item in left:
            for kept in (self._owners, self._uncounted, self._seen, self._refused):
                kept.pop(item, None)

    async def _see(self) -> None:
        """Learn how many events those items have by now that this process holds events of."""
        fresh, self._uncounted = self._uncounted, Counter()
        try:
            self._seen |= await self._count(dict.fromkeys(self._owners, 0) | fresh)
        except BaseException:
            self._uncounted.update(fresh)
            raise

    async def _count(self, more: Mapping[Id, int]) -> dict[Id, int]:
        new = self._catalogue.new_items

        def is_done(item: Id) -> bool:
            return item in new and _is_done(new[item])

        return await self._histories.call("count", lambda store: counted_together(store, more, is_done))

    async def _made_anew(self, due: Sequence[Id]) -> None:
        owners = {item: list(self._owners[item]) for item in due}
        snapshot = self._models.answering()
        near = await self._histories.call(
            "read", lambda store: {item: near_of(store, item, some, snapshot) for item, some in owners.items()}
        )

        def change(snapshot: Snapshot, learned: Learned) -> None:
            for item, counts in near.items():
                found = learned.items.get(item)
                if found is not None and not found.gone:
                    # After a write whose outcome is unknown, or was not awaited, they may be counted already.
                    events = min(found.events + len(owners[item]), max(found.events, self._seen[item]))
                    learned.items[item] = _with_near(snapshot, found, counts, events)

        try:
            await self._catalogue.change(change)
        except InputError as error:
            # As where a tree has no room for one more: tried again at its next number of events.
            self._said("items_not_followed", reason=str(error))
            self._refused |= {item: _passed(self._seen[item]) for item in due}
            return
        for item, some in owners.items():
            del self._owners[item][: len(some)]
            if not self._owners[item]:
                del self._owners[item]


def _is_done(item: CatalogueItem) -> bool:
    return item.gone or item.events >= REFRESHED_AT[-1]


def _passed(events: int) -> int:
    return sum(events >= number for number in REFRESHED_AT)


def _with_near(snapshot: Snapshot, item: CatalogueItem, counts: Mapping[Id, int], events: int) -> CatalogueItem:
    """With what stood near further events, of known items, and the number of all."""
    near = Counter(dict(item.near)) + Counter(counts)
    ids = list(near)
    places, fitted = indices_of(snapshot.names.items, ids).tolist(), num_known(snapshot.searcher)
    known = [(each, float(near[each])) for each, at in zip(ids, places, strict=True) if 0 <= at < fitted]
    return structs.replace(item, near=known, events=events)


def counted_together(store: HistoryStore, more: Mapping[Id, int], is_done: Callable[[Id], bool]) -> dict[Id, int]:
    """Count so many more events of items, for all processes on the store; how many each of these has.

    Counts of items that are done are left out as others are written.
    """
    totals: dict[Id, int] = {}
    for shard, items in groupby(sorted(more, key=_shard), key=_shard):
        own, kept = list(items), False
        while not kept:
            before = store.get(shard)
            known = {} if before is None else msgspec.json.decode(before, type=dict[str, int])
            for item in own:
                totals[item] = known.get(id_text(item), 0) + more[item]
            counts = known | {id_text(item): totals[item] for item in own if totals[item]}
            left = {name: count for name, count in counts.items() if not is_done(read_id(name))}
            kept = left == known or store.replace(shard, before, msgspec.json.encode(left).decode())
    return totals


def _shard(item: Id) -> str:
    return f"first_events@{hashlib.blake2b(id_text(item).encode(), digest_size=8).hexdigest()[:_SHARD]}"
