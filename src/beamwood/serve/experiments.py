"""Experiments: the model for each user. An arm is chosen by a hash of the user, so it is stable."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from beamwood.errors import InputError
from beamwood.serve.active import ActiveModels
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.messages import Body, Name
from beamwood.serve.problems import NOT_BLANK, Problem
from beamwood.serve.store.event import Owner, owner_text

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


class Experiments:
    """The running experiment, if any, for all services on the store; its arms are loaded before they answer.

    `said` logs a line about the service.
    """

    def __init__(
        self, models: ActiveModels, histories: HistoryGateway, said: Callable[..., None], catalogue: Catalogue
    ) -> None:
        self._models, self._histories, self._said, self._catalogue = models, histories, said, catalogue
        self.current: Experiment | None = None
        """The experiment whose arms answer."""
        self.stored: Experiment | None = None
        """The one that the store keeps, None also where that cannot be read."""
        self.not_followed: str | None = None
        """Why its arms do not answer here."""
        self._text, self._again = "", math.inf
        self._turn, self._has_looked, self._trouble = asyncio.Lock(), asyncio.Event(), ""

    @property
    def name(self) -> str:
        """That of the experiment whose arms answer, empty without one."""
        return "" if self.current is None else self.current.name

    def chosen(self, owner: Owner | None, snapshot: Snapshot) -> tuple[Snapshot, str | None]:
        """The snapshot for an owner, and its arm; the given one without owner, experiment or the arm's model."""
        if self.current is None or owner is None:
            return snapshot, None
        arm = arm_of(self.current, owner)
        if arm.model == CURRENT:
            return snapshot, arm.label
        own = self._models.arms.get(arm.model)
        return (snapshot, None) if own is None else (own, arm.label)

    async def start(self, experiment: Experiment) -> None:
        """Load the arms and store the experiment. Errors: `Problem`; then nothing has changed."""
        _check(experiment)
        text = msgspec.json.encode(experiment).decode()
        async with self._histories.in_turn(self._turn):
            arms = await self._caught_up(await self._loaded(experiment))
            before = await self._histories.call("get", lambda store: store.get(_DOCUMENT)) or ""
            await self._histories.call("put", lambda store: store.put(_DOCUMENT, text))
            try:
                await self._run(experiment, arms)
            except Problem:
                # Unless another service has started one meanwhile.
                await self._histories.call("put", lambda store: store.replace(_DOCUMENT, text, before))
                raise
            self._text, self._again = text, math.inf

    async def stop(self) -> None:
        """Let the current model answer all. Errors: `Problem` where the store is down."""
        async with self._histories.in_turn(self._turn):
            await self._histories.call("put", lambda store: store.put(_DOCUMENT, ""))
            await self._run(None, {})
            self._text, self._again = "", math.inf

    async def _run(self, experiment: Experiment | None, arms: dict[str, Snapshot]) -> None:
        """Let arms answer, with what was learned while they were loaded. Errors: `Problem` where it does not fit."""
        arms = await self._caught_up(arms)
        # Nothing is awaited since the last look at what is learned.
        self._models.arms, self.current = arms, experiment
        self.stored, self.not_followed = experiment, None

    async def _caught_up(self, arms: dict[str, Snapshot]) -> dict[str, Snapshot]:
        """Arms with all that is learned by the time that this returns. Errors: `Problem` where it does not fit."""
        try:
            while any(each.learned != self._catalogue.name for each in arms.values()):
                arms = {name: await self._catalogue.caught_up(each) for name, each in arms.items()}
        except InputError as error:
            raise Problem("invalid_request", str(error), field="arms") from None
        return arms

    async def _loaded(self, experiment: Experiment) -> dict[str, Snapshot]:
        snapshots: dict[str, Snapshot] = {}
        for arm in experiment.arms:
            if arm.model == CURRENT or arm.model in snapshots:
                continue
            path = await asyncio.to_thread(self._models.resolved, arm.model, "arms")
            known = self._models.arms.get(arm.model)
            if known is not None and known.folder == path:
                snapshots[arm.model] = known
                continue
            try:
                opened = await asyncio.to_thread(self._models.opened, path)
                snapshots[arm.model] = await asyncio.to_thread(self._catalogue.carried, opened)
            except (InputError, OSError) as error:
                raise Problem("invalid_request", f"arm {arm.label}: {error}", field="arms") from None
        return snapshots

    async def begin(self) -> None:
        """Return once `keep_up` has read the stored experiment, or has not for long: its models may be large."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEGIN_SECONDS):
                await self._has_looked.wait()

    async def keep_up(self) -> None:
        """Follow the stored experiment, which any service on the store may start or stop, as long as this one runs."""
        while True:
            is_known = True
            try:
                await self.look()
            except Problem as problem:
                is_known = problem.code != "store_unavailable"
                # Logged once, not in each round.
                before, self._trouble = self._trouble, str(problem)
                if self._trouble != before:
                    self._said("experiment_not_followed", reason=self._trouble)
            finally:
                if is_known:
                    self._has_looked.set()
            await asyncio.sleep(_ROUND_SECONDS)

    async def look(self) -> None:
        """Load the stored experiment. Errors: `Problem`; then the current arms stay."""
        async with self._turn:
            text = await self._histories.call("get", lambda store: store.get(_DOCUMENT)) or ""
            if text != self._text or time.monotonic() >= self._again:
                # A model that cannot be loaded here may appear later, and is retried less often.
                self._text, self._again = text, time.monotonic() + _AGAIN_SECONDS
                self.stored = None
                try:
                    self.stored = _read(text)
                    await self._run(self.stored, {} if self.stored is None else await self._loaded(self.stored))
                except Problem as problem:
                    self.not_followed = str(problem)
                    raise
                self._again = math.inf
            if self._again == math.inf:
                self._trouble = ""


def _read(text: str) -> Experiment | None:
    try:
        return msgspec.json.decode(text, type=Experiment) if text else None
    except msgspec.DecodeError as error:
        hint = "serve it with the version that started it, or end it"
        raise Problem("invalid_request", f"the stored experiment cannot be read ({error}); {hint}") from None


def _check(experiment: Experiment) -> None:
    total = sum(arm.share for arm in experiment.arms)
    if abs(total - 1) > 1e-6:
        raise Problem("invalid_request", f"the shares of the arms sum to {total:g}; they must sum to 1", field="arms")
    labels = [arm.label for arm in experiment.arms]
    if len(set(labels)) < len(labels):
        raise Problem("invalid_request", "two arms have one name; give each a name of its own", field="arms")
