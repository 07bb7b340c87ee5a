"""What is learned about items while a service runs: new, available and erased ones.

A document of the store holds it, so that it outlives the process and reaches every replica. A change builds another
snapshot beside the one that answers, and one reference is swapped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import prometheus_client

from beamwood.errors import InputError
from beamwood.serve.active import ActiveModels
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.items.learned import CatalogueItem, Learned, read_learned, write_learned
from beamwood.serve.items.widened import unfit_cells, widened
from beamwood.serve.messages import Item
from beamwood.serve.problems import Problem

__all__ = ["Catalogue"]

_ROUND_SECONDS = 1.0
# Items that a line of the log names.
_NAMED = 10
_Changed = TypeVar("_Changed")


class Catalogue:
    """Stores what is learned, and publishes it.

    `said` logs a line about the service; `registry`: of its metrics.
    """

    def __init__(
        self,
        models: ActiveModels,
        histories: HistoryGateway,
        said: Callable[..., None],
        registry: prometheus_client.CollectorRegistry,
    ) -> None:
        self._models, self._histories, self._said = models, histories, said
        self.learned = Learned()
        self.shown: Counter[int | str] = Counter()
        """Impressions of each new item by this process."""
        self.name = self.learned.name
        """That of what is learned, which every snapshot should have."""
        # That of what the store keeps.
        self._kept: str | None = None
        # The name of what could not be published.
        self._unfit: str | None = None
        # By fitted snapshot the cells that it cannot take, as far as logged.
        self._unfit_cells: WeakKeyDictionary[Snapshot, set[tuple[int | str, str]]] = WeakKeyDictionary()
        self._turn, self._changes = asyncio.Lock(), asyncio.Lock()
        own: dict[str, Any] = {"namespace": "beamwood", "registry": registry}
        self._impressions = prometheus_client.Counter("new_item_impressions", "New items in answers", **own)

    async def begin(self) -> None:
        """Load the stored document as soon as the store answers: until then what was erased is unknown."""
        while True:
            with suppress(Problem):
                await self._read()
                return
            await asyncio.sleep(_ROUND_SECONDS)

    def carried(self, fresh: Snapshot) -> Snapshot:
        """A model with what is learned; items that it was fitted with are no longer new. Errors: they do not fit."""
        try:
            return self._made(fresh, self.learned)
        except InputError as error:
            hint = "serve it with another --store, or with the log and --items that they were put to"
            raise InputError(
                f"the new items that the store keeps do not fit {fresh.folder} ({error}); {hint}"
            ) from error

    async def caught_up(self, fresh: Snapshot) -> Snapshot:
        """A model with all that is learned by the time that this returns. Errors: `InputError` where that does not fit.

        Where the caller then awaits nothing, it lets nobody have an item that was erased while it was loaded.
        """
        while fresh.learned != self.name:
            fresh = replace(await asyncio.to_thread(self.carried, fresh), number=self._models.next_number())
        return fresh

    def _behind(self) -> Snapshot | None:
        """A snapshot without the current version of what is learned."""
        return next((each for each in self._models.all() if each.learned != self.name), None)

    async def change(self, change: Callable[[Snapshot, Learned], _Changed]) -> _Changed:
        """Change what is learned, store it, and publish it. Errors: `Problem`; then nothing has changed."""
        async with self._histories.in_turn(self._changes):
            kept = False
            while not kept:
                before = await self._read()
                fresh = self.learned.copy()
                changed = await asyncio.to_thread(change, self._models.answering(), fresh)
                # Before it is kept: what cannot be published is refused.
                made = [(each, await asyncio.to_thread(self._made, each, fresh)) for each in self._models.all()]
                # Where another process was quicker, its change comes first.
                kept = await self._keep(before, fresh)
        await self.publish(made)
        return changed

    def _made(self, before: Snapshot, learned: Learned) -> Snapshot:
        base = before.fitted or before
        made = widened(base, learned, before.number)
        told = self._unfit_cells.setdefault(base, set())
        fresh = [cell for cell in unfit_cells(base, learned) if cell not in told]
        if fresh:
            told.update(fresh)
            items, columns = (list(dict.fromkeys(part)) for part in zip(*fresh, strict=True))
            self._said("cells_left_out", path=str(base.folder), columns=columns, count=len(items), items=items[:_NAMED])
        return made

    async def _keep(self, before: str | None, learned: Learned) -> bool:
        stored = self.learned
        name = await self._histories.call("write", lambda store: write_learned(store, before, learned, stored))
        if name is not None:
            self._take(learned, name)
        return name is not None

    def _take(self, learned: Learned, kept: str) -> None:
        self.learned, self._kept, self.name = learned, kept, learned.name

    async def publish(self, made: Sequence[tuple[Snapshot, Snapshot]] = ()) -> None:
        """Swap in snapshots with what is learned; calls that wait for one another share them.

        `made`: for some that answer what takes their place, where nothing more was learned since.
        """
        async with self._turn:
            while (before := self._behind()) is not None:
                fresh = next((new for old, new in made if old is before and new.learned == self.name), None)
                if fresh is None:
                    fresh = await asyncio.to_thread(self._made, before, self.learned)
                self._models.swap(before, replace(fresh, number=self._models.next_number()))

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

    @property
    def new_items(self) -> Mapping[int | str, CatalogueItem]:
        """Those that are learned now, by id, gone or not."""
        return self.learned.items

    async def _read(self) -> str | None:
        """Take what another process on the store has learned; its name, None where nothing is kept."""
        known, stored = self._kept, self.learned
        name, found = await self._histories.call("read", lambda store: read_learned(store, known, stored))
        if name is not None and found is not None:
            self._take(found, name)
        return name

    async def keep_up(self) -> None:
        """Publish what other processes on the store learn, as long as the service runs."""
        while True:
            with suppress(Problem):
                # A read that began before a change must not end after it.
                async with self._changes:
                    await self._read()
                await self._follow()
            await asyncio.sleep(_ROUND_SECONDS)

    async def _follow(self) -> None:
        """Publish what is known to be learned, unless it does not fit, which is reported once."""
        if self.name == self._unfit:
            return
        try:
            await self.publish()
        except InputError as error:
            # Tried again when the document changes.
            self._unfit = self.name
            self._said("items_not_followed", reason=str(error))
