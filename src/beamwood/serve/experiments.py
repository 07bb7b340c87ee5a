"""Experiments: the model for each user. An arm is chosen by a hash of the user, so it is stable."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from beamwood.errors import InputError
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.messages import Body, Name
from beamwood.serve.problems import NOT_BLANK, Problem
from beamwood.serve.store.event import Owner, owner_text

if TYPE_CHECKING:
    from beamwood.serve.service import Service

__all__ = ["Arm", "Experiment", "Experiments", "arm_of"]

_DOCUMENT = "experiment"
_ROUND_SECONDS, _BEGIN_SECONDS, _AGAIN_SECONDS = 1.0, 60.0, 30.0
_MOST_ARMS = 10
CURRENT = "current"


class Arm(Body):
    """`model`: "current", or a folder below --models-dir."""

    model: Annotated[str, Meta(pattern=NOT_BLANK)]
    share: Annotated[float, Meta(ge=0, le=1, description="Share of users; the shares of all arms sum to 1.")]
    name: Annotated[Name | None, Meta(description="Name of the arm; defaults to the model.")] = None

    @property
    def label(self) -> str:
        """Its name in answers."""
        return self.model if self.name is None else self.name


class Experiment(Body):
    """A split of users into arms; a different name splits them differently."""

    name: Name
    arms: Annotated[list[Arm], Meta(min_length=1, max_length=_MOST_ARMS)]


def arm_of(experiment: Experiment, owner: Owner) -> Arm:
    """The arm of a user or session, stable for the same name and shares."""
    digest = hashlib.blake2b(f"{experiment.name}\0{owner_text(owner)}".encode(), digest_size=8).digest()
    place = int.from_bytes(digest, "big") / 2**64
    for arm in experiment.arms:
        place -= arm.share
        if place < 0:
            return arm
    return next(arm for arm in reversed(experiment.arms) if arm.share > 0)


@dataclass(frozen=True)
class _Running:
    experiment: Experiment | None = None
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)


class Experiments:
    """The running experiment, if any, for all services on the store; its arms are loaded before they answer."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._running, self._text, self._again = _Running(), "", math.inf
        self._turn, self._has_looked, self._trouble = asyncio.Lock(), asyncio.Event(), ""

    @property
    def current(self) -> Experiment | None:
        """The running experiment."""
        return self._running.experiment

    @property
    def snapshots(self) -> Mapping[str, Snapshot]:
        """The models of arms besides the current one, by folder."""
        return self._running.snapshots

    def swap(self, before: Snapshot, fresh: Snapshot) -> None:
        """Let `fresh` replace `before` in its arms."""
        running = self._running
        snapshots = {name: fresh if each is before else each for name, each in running.snapshots.items()}
        self._running = _Running(running.experiment, snapshots)

    def chosen(self, owner: Owner | None, snapshot: Snapshot) -> tuple[Snapshot, str | None]:
        """The snapshot for an owner, and its arm; the given one without owner, experiment or the arm's model."""
        running = self._running
        if running.experiment is None or owner is None:
            return snapshot, None
        arm = arm_of(running.experiment, owner)
        if arm.model == CURRENT:
            return snapshot, arm.label
        own = running.snapshots.get(arm.model)
        return (snapshot, None) if own is None else (own, arm.label)

    async def start(self, experiment: Experiment) -> None:
        """Load the arms and store the experiment. Errors: `Problem`; then nothing has changed."""
        _check(experiment)
        text = msgspec.json.encode(experiment).decode()
        async with self._turn:
            running = await self._loaded(experiment)
            await self.service.histories.call("put", lambda store: store.put(_DOCUMENT, text))
            self._running, self._text, self._again = running, text, math.inf

    async def stop(self) -> None:
        """Let the current model answer all. Errors: `Problem` where the store is down."""
        async with self._turn:
            await self.service.histories.call("put", lambda store: store.put(_DOCUMENT, ""))
            self._running, self._text, self._again = _Running(), "", math.inf

    async def _loaded(self, experiment: Experiment) -> _Running:
        loader = self.service.loader
        assert loader is not None
        snapshots: dict[str, Snapshot] = {}
        for arm in experiment.arms:
            if arm.model == CURRENT or arm.model in snapshots:
                continue
            path = await asyncio.to_thread(loader.resolved, arm.model, "arms")
            known = self.snapshots.get(arm.model)
            if known is not None and known.folder == path:
                snapshots[arm.model] = known
                continue
            try:
                opened = await asyncio.to_thread(self.service.opened, path, verify=True)
                snapshots[arm.model] = await asyncio.to_thread(self.service.catalogue.carried, opened)
            except (InputError, OSError) as error:
                raise Problem("invalid_request", f"arm {arm.label}: {error}", field="arms") from None
        return _Running(experiment, snapshots)

    async def begin(self) -> None:
        """Return once `keep_up` has looked for the stored experiment, or has not for long: its models may be large."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                await self._has_looked.wait()

    async def keep_up(self) -> None:
        """Follow the stored experiment, which any service on the store may start or stop, as long as this one runs."""
        while True:
            try:
                await self.look()
            except (Problem, msgspec.DecodeError) as problem:
                # Logged once, not in each round.
                before, self._trouble = self._trouble, str(problem)
                if self._trouble != before:
                    self.service.log.said("experiment_not_followed", reason=self._trouble)
            finally:
                self._has_looked.set()
            await asyncio.sleep(_ROUND_SECONDS)

    async def look(self) -> None:
        """Load the stored experiment. Errors: `Problem`; then the current arms stay."""
        async with self._turn:
            text = await self.service.histories.call("get", lambda store: store.get(_DOCUMENT)) or ""
            if text != self._text or time.monotonic() >= self._again:
                # A model that cannot be loaded here may appear later, and is retried less often.
                self._text, self._again = text, time.monotonic() + _AGAIN_SECONDS
                self._running = await self._loaded(msgspec.json.decode(text, type=Experiment)) if text else _Running()
                self._again = math.inf
            if self._again == math.inf:
                self._trouble = ""


def _check(experiment: Experiment) -> None:
    total = sum(arm.share for arm in experiment.arms)
    if abs(total - 1) > 1e-6:
        raise Problem("invalid_request", f"the shares of the arms sum to {total:g}; they must sum to 1", field="arms")
    labels = [arm.label for arm in experiment.arms]
    if len(set(labels)) < len(labels):
        raise Problem("invalid_request", "two arms have one name; give each a name of its own", field="arms")
