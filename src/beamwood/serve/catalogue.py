"""What is learned about items while a service runs: new, available and erased ones.

It is one small document in the store, so that it survives the process and reaches every replica. A change builds
another snapshot beside the current one, and one reference is swapped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import prometheus_client

from beamwood.errors import InputError
from beamwood.retrieval.sources import FEWEST_EVENTS, REFRESHED_AT
from beamwood.serve.learned import CatalogueItem, Learned, name_of, read_learned, text_of, write_learned
from beamwood.serve.messages import Item
from beamwood.serve.near_events import near_of
from beamwood.serve.problems import Problem
from beamwood.serve.snapshot import Snapshot, indices_of
from beamwood.serve.store.event import Event, Owner
from beamwood.serve.widened import widened

if TYPE_CHECKING:
    from beamwood.serve.service import Service

__all__ = ["Catalogue"]

_ROUND_SECONDS = 1.0
_Changed = TypeVar("_Changed")


class Catalogue:
    """Stores what is learned, and publishes it."""

    def __init__(self, service: Service) -> None:
        self.service, self.learned = service, Learned()
        self.shown: Counter[int | str] = Counter()
        """Impressions of each new item by this process."""
        self.name = name_of(self.learned)
        """The version of what is learned, which every snapshot should have."""
        self._text = ""
        # The version that could not be published.
        self._unfit: str | None = None
        self._counted = self.learned
        self._turn, self._changes = asyncio.Lock(), asyncio.Lock()
        self._owners: dict[int | str, list[Owner]] = {}
        self._indexed, self._by_id = self.learned, dict[int | str, CatalogueItem]()
        self._refreshing: set[asyncio.Task[None]] = set()
        own: dict[str, Any] = {"namespace": "beamwood", "registry": service.metrics.registry}
        self._count = prometheus_client.Gauge("new_items", "Items that came after the fit", **own)
        self._impressions = prometheus_client.Counter("new_item_impressions", "New items in answers", **own)

    async def begin(self) -> None:
        """Load the stored document if the store answers; else `keep_up` does so later."""
        with suppress(Problem):
            await self._read()

    def carried(self, fresh: Snapshot) -> Snapshot:
        """A model with what is learned; items that it was fitted with are no longer new. Errors: they do not fit."""
        try:
            return widened(fresh.fitted or fresh, self.learned, fresh.number)
        except InputError as error:
            hint = "serve it with another --store, or with the log and --items that they were put to"
            raise InputError(
                f"the new items that the store keeps do not fit {fresh.folder} ({error}); {hint}"
            ) from error

    def _behind(self) -> Snapshot | None:
        """A snapshot without the current version of what is learned."""
        return next((each for each in self.service.snapshots if each.learned != self.name), None)

    async def change(self, change: Callable[[Snapshot, Learned], _Changed]) -> _Changed:
        """Change what is learned, store it, and publish it. Errors: `Problem`; then nothing has changed."""
        async with self._changes:
            kept = False
            while not kept:
                before = await self._read()
                fresh = msgspec.json.decode(msgspec.json.encode(self.learned), type=Learned)
                changed = change(self.service.current(), fresh)
                # Built before it is stored, so that an impossible change is refused.
                for each in self.service.snapshots:
                    await asyncio.to_thread(widened, each.fitted or each, fresh, each.number)
                # If another process was faster, its change is applied first.
                kept = await self._kept(before, fresh)
        await self.publish()
        return changed

    async def _kept(self, before: str | None, learned: Learned) -> bool:
        text = text_of(learned)
        kept = await self.service.histories.call("write", lambda store: write_learned(store, before, text))
        if kept:
            self._take(learned, text)
        return kept

    def _take(self, learned: Learned, text: str) -> None:
        self.learned, self._text, self.name = learned, text, name_of(learned)

    async def publish(self) -> None:
        """Swap in snapshots with what is learned; calls that wait for one another share them."""
        async with self._turn:
            while (before := self._behind()) is not None:
                self.service.numbers += 1
                fresh = await asyncio.to_thread(widened, before.fitted or before, self.learned, self.service.numbers)
                self.service.swap(before, fresh)
            if self._counted is not self.learned:
                self._counted = self.learned
                self._count.set(sum(not each.gone for each in self.learned.items))

    async def settled(self) -> None:
        """Return once all that is learned answers."""
        async with self._turn:
            return

    def count(self, items: Sequence[Item]) -> None:
        """Count new items of an answer."""
        if not self.learned.items:
            return
        new = [item.item for item in items if item.source == "new_item"]
        if new:
            self._impressions.inc(len(new))
            self.shown.update(new)

    def follow(self, events: Sequence[Event]) -> None:
        """Note events of new items; at the third, tenth and thirtieth their mixtures are made anew."""
        if not self.learned.items:
            return
        new = self._new_items()
        for event in events:
            found = new.get(event.item)
            if found is None or found.gone:
                continue
            owners = self._owners.setdefault(event.item, [])
            owners.append(event.user)
            seen = found.events + len(owners)
            if seen in REFRESHED_AT:
                task = asyncio.get_running_loop().create_task(self._refresh(event.item, list(owners), seen))
                # The loop itself holds no task.
                self._refreshing.add(task)
                task.add_done_callback(self._refreshed)

    def _new_items(self) -> dict[int | str, CatalogueItem]:
        """Those that are learned now, by id; made once for what is learned."""
        if self._indexed is not self.learned:
            self._indexed, self._by_id = self.learned, self.learned.by_id()
        return self._by_id

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        """What a store that is down refused is tried at the next count; all else is a fault, which the loop says."""
        self._refreshing.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Problem):
            task.get_loop().call_exception_handler({"message": "a refresh failed", "exception": error, "task": task})

    async def _refresh(self, item: int | str, owners: list[Owner], seen: int) -> None:
        counted = self.service.current().kinds.counted
        near = await self.service.histories.call("read", lambda store: near_of(store, item, owners, counted))

        def change(snapshot: Snapshot, learned: Learned) -> None:
            found = learned.find(item)
            if found is None or seen < FEWEST_EVENTS:
                return
            counts = Counter(dict(found.near)) + Counter(near)
            ids = list(counts)
            places = indices_of(snapshot.names.items, ids).tolist()
            known = {each for each, place in zip(ids, places, strict=True) if 0 <= place < snapshot.known}
            found.near = [(each, float(times)) for each, times in counts.items() if each in known]
            found.events = seen

        await self.change(change)
        del self._owners[item][: len(owners)]

    async def _read(self) -> str | None:
        """Take what another process on the store has learned; what is kept, None where nothing is."""
        text = await self.service.histories.call("read", read_learned)
        if text is not None and text != self._text:
            self._take(msgspec.json.decode(text, type=Learned), text)
        return text

    async def keep_up(self) -> None:
        """Publish what other processes on the store learn, as long as the service runs."""
        while True:
            with suppress(Problem):
                # A read that began before a change must not end after it.
                async with self._changes:
                    await self._read()
                if self.name != self._unfit:
                    await self._follow()
            await asyncio.sleep(_ROUND_SECONDS)

    async def _follow(self) -> None:
        try:
            await self.publish()
        except InputError as error:
            # Reported once, and tried again when the document changes.
            self._unfit = self.name
            self.service.log.said("items_not_followed", reason=str(error))
