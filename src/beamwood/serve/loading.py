"""A new model while the old one answers: verify, map, carry over, try, compare; then one reference is swapped."""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from beamwood.artefact import read_manifest
from beamwood.artefact.manifest import MANIFEST
from beamwood.errors import InputError
from beamwood.serve.active import ActiveModels
from beamwood.serve.answer.answering import recommended
from beamwood.serve.answer.asking import known_of
from beamwood.serve.answer.snapshot import Snapshot
from beamwood.serve.engine import Engine, Priority
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.messages import Recommend
from beamwood.serve.monitoring.tallies import Tally
from beamwood.serve.problems import Problem
from beamwood.serve.settings import ServeSettings

__all__ = ["Loaded", "Loader", "folders_of"]

# Recorded requests on which a new model is tried.
_RECORDED = 100
_TRIED_K, _LATEST = 20, 100
_TRIED_SECONDS = 30.0
_MOST_MANIFESTS = 10_000


class Loaded(Struct):
    """The result of a load: `tried` requests were answered by the new model, `overlap` of their items with the old
    one's.
    """

    model: str
    snapshot: int
    path: str
    tried: int
    failed: int
    overlap: float | None
    seconds: float


class Loader:
    """Loads models for a service, one at a time.

    `said` logs a line about the service; `tally` counts loads by outcome.
    """

    def __init__(
        self,
        models: ActiveModels,
        histories: HistoryGateway,
        said: Callable[..., None],
        catalogue: Catalogue,
        engine: Engine,
        tally: Tally,
        settings: ServeSettings,
    ) -> None:
        self._models, self._histories, self._said, self._catalogue = models, histories, said, catalogue
        self._engine, self._tally, self._settings = engine, tally, settings
        self.recorded: deque[Recommend] = deque(maxlen=_RECORDED)
        self.earlier: list[Path] = []
        """The folders active before, for a rollback; the latest last."""
        self._turn = asyncio.Lock()
        self._meant: tuple[Path, str | None] | None = None
        self._newest = ""
        # The checksums of the models that have answered.
        self._answered = set[str]()
        # Refused folders: their state at the last look, and whether it had changed.
        self._refused: dict[Path, tuple[object, bool]] = {}

    def begin(self, snapshot: Snapshot) -> None:
        """Let the first model answer, from which changes of a folder are detected."""
        self._models.current = snapshot
        self._meant = snapshot.folder, snapshot.key
        self._note(snapshot)

    def _note(self, snapshot: Snapshot) -> None:
        """Record an active model, so that newer ones are found; one from a clock that was ahead hides none that comes
        later.
        """
        self._answered.add(snapshot.key)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._newest = max(self._newest, min(_created(snapshot.folder), now))

    async def load(self, path: Path, *, waits: bool = False) -> Loaded:
        """Load a folder and let it answer. Errors: `Problem`, with the reason; the old model stays.

        During another load it is refused unless it `waits`.
        """
        if self._turn.locked() and not waits:
            raise Problem("conflict", "another model is being loaded; wait for it", retry_after_ms=1000)
        async with self._turn:
            began = time.monotonic()
            # As it is before it is read: what changes meanwhile has changed since.
            state = await asyncio.to_thread(_state, path)
            try:
                loaded = await self._load(path, began)
            except Exception as error:
                is_told = isinstance(error, InputError | Problem | OSError)
                reason = str(error) if is_told else f"{type(error).__name__}: {error}"
                self._tally.inc("refused")
                self._said("model_refused", path=str(path), reason=reason)
                self._refused[path] = state, False
                if isinstance(error, InputError | OSError):
                    raise Problem("invalid_request", str(error), field="path") from None
                raise
            self._refused.pop(path, None)
            await asyncio.to_thread(_give_back)
            self._tally.inc("loaded")
            self._said("model_loaded", model=loaded.model, snapshot=loaded.snapshot, overlap=loaded.overlap)
            return loaded

    async def _load(self, path: Path, began: float) -> Loaded:
        old, catalogue = self._models.current, self._catalogue
        fresh = await asyncio.to_thread(self._models.opened, path)
        fresh = await asyncio.to_thread(catalogue.carried, fresh)
        tried, failed, overlap = (0, 0, None) if old is None else await self._tried(old, fresh)
        if failed * 2 > tried:
            message = f"{failed} of {tried} requests had no answer from the new model; the old one goes on answering"
            raise Problem("invalid_request", message, field="path")
        # Items may have changed in the meantime.
        fresh = await catalogue.caught_up(fresh)
        self._models.current = fresh
        self._note(fresh)
        if old is not None and old.folder != fresh.folder:
            self.earlier.append(old.folder)
        return Loaded(
            fresh.model, fresh.number, str(fresh.folder), tried, failed, overlap, round(time.monotonic() - began, 3)
        )

    async def _tried(self, old: Snapshot, fresh: Snapshot) -> tuple[int, int, float | None]:
        """The numbers of tried and of failed requests, and the mean overlap of the rest."""
        failed, shares = 0, []
        for body in list(self.recorded) or await self._of_users(old, fresh):
            plain = structs.replace(
                body, k=min(_TRIED_K, body.k), pages=False, cursor=None, explain="none", fields=[], deadline_ms=None
            )
            found = [await self._items(snapshot, plain) for snapshot in (old, fresh)]
            if not found[0]:
                continue
            if not found[1]:
                failed += 1
            else:
                shares.append(len(found[0] & found[1]) / len(found[0]))
        return failed + len(shares), failed, round(math.fsum(shares) / len(shares), 4) if shares else None

    async def _of_users(self, snapshot: Snapshot, fresh: Snapshot) -> list[Recommend]:
        """Requests with histories of users of the model, evenly sampled; by their ids where one model knows those
        alone.
        """
        users = snapshot.names.users
        if users is None or len(users) == 0:
            return [Recommend(history=[])]
        rows = np.unique(np.linspace(0, len(users) - 1, _TRIED_K).round().astype(int))
        bodies = [Recommend(user=each if isinstance(each, int) else str(each)) for each in users.decode(rows)]
        if snapshot.needs.users_alone or fresh.needs.users_alone:
            return bodies
        known = [known_of(snapshot, body, await self._histories.kept(snapshot, body)) for body in bodies]
        return [Recommend(history=snapshot.names.items.decode(each.history[-_LATEST:])) for each in known]

    async def _items(self, snapshot: Snapshot, body: Recommend) -> set[Any]:
        # Read now: since the request the user may have been erased.
        kept = await self._histories.kept(snapshot, body)
        if kept.tombstone is not None:
            body = structs.replace(body, events=None)

        def work(pressure: float) -> set[Any]:  # noqa: ARG001
            answer, _ = recommended(snapshot, body, kept, self._settings.limits, request_id="")
            return {item.item for item in answer.items} if all(map(_is_finite, answer.items)) else set()

        try:
            deadline = time.monotonic() + _TRIED_SECONDS
            ran = await self._engine.run(work, deadline=deadline, priority=Priority.WARM_UP)
        except Problem:
            return set()
        return ran.value

    async def rollback(self) -> Loaded:
        """Load the model before. Errors: `Problem` where there is none, or it cannot be loaded any more."""
        if not self.earlier:
            raise Problem("conflict", "there is no earlier model to return to; name one to POST /v1/models/load")
        folder = self.earlier[-1]
        try:
            loaded = await self.load(folder)
        except Problem as problem:
            if problem.field != "path":
                raise
            # The request names none.
            message = f"the model before cannot be loaded ({problem.message}); name one to POST /v1/models/load"
            raise Problem("conflict", message) from None
        # A later rollback leads further back, not to the model that was left.
        self.earlier[-2:] = []
        return loaded

    def changed(self, folder: Path, *, anew: bool = False) -> Path | None:
        """The folder that should answer from now on: a link has moved, or a newer model exists.

        A newer one than any active before is looked for below --models-dir, by the time in its manifest, if `folder` is
        no link. So a rollback, or a model loaded by hand, stays until there is a newer one. A refused folder is retried
        once it has changed, and not while it is being copied; `anew`: at once. Errors: `OSError` where the folder
        cannot be read.
        """
        snapshot = self._models.current
        if snapshot is None:
            return None
        if os.path.islink(folder) or self._settings.models_dir is None:
            target = folder.resolve()
            before, self._meant = self._meant, (target, _checksum(target))
            if target in self._refused:
                return target if self._is_mended(target, anew) else None
            return target if self._meant not in (before, (snapshot.folder, snapshot.key)) else None
        newest, when = None, self._newest
        for path in _shown(self._settings.models_dir.resolve()):
            created = _created(path)
            if created <= when or _checksum(path) in self._answered:
                continue
            if path not in self._refused or self._is_mended(path, anew):
                newest, when = path, created
        return newest

    def _is_mended(self, path: Path, anew: bool) -> bool:
        """Whether a refused folder has changed since, and then stayed the same for two looks."""
        before, has_changed = self._refused[path]
        now = _state(path)
        self._refused[path] = now, has_changed or now != before
        return anew or (has_changed and now == before)


def _give_back() -> None:
    """Return freed memory of the old model, which the C library caches, to the system."""
    if sys.platform == "linux":
        # Only glibc has this function.
        with suppress(AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def _is_finite(item: Any) -> bool:
    return math.isfinite(item.score)


def folders_of(root: Path) -> list[Path]:
    """The loadable folders, in order; none where the root cannot be read."""
    try:
        return [each for each in _shown(root) if os.path.isfile(each / MANIFEST)]
    except OSError:
        return []


def _shown(root: Path) -> list[Path]:
    """What is in a folder, in order, without what a save has not put in its place yet. Errors: `OSError`."""
    return sorted(each for each in root.iterdir() if not each.name.startswith("."))


def _state(path: Path) -> object:
    """A value that changes with any file of the folder."""
    with suppress(OSError):
        files = [(str(file), file.stat()) for file in sorted(path.rglob("*"))]
        return [(name, about.st_size, about.st_mtime_ns) for name, about in files]
    return None


def _created(path: Path) -> str:
    """When the model of a folder was saved, as text; empty where none can be read."""
    return _told(path)[0]


def _checksum(path: Path) -> str | None:
    return _told(path)[1]


def _told(path: Path) -> tuple[str, str | None]:
    """Time and checksum by the manifest; it is read again once it has changed, as a year of models is looked through
    every other second.
    """
    try:
        about = os.stat(path / MANIFEST)
        return _read(path, (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    except (InputError, OSError):
        return "", None


@lru_cache(maxsize=_MOST_MANIFESTS)
def _read(path: Path, state: tuple[int, ...]) -> tuple[str, str | None]:  # noqa: ARG001
    """See `_told`; `state` changes with the file. Errors are not kept."""
    found = read_manifest(path)
    checksum = found.get("checksum")
    return str(found.get("created", "")), None if checksum is None else str(checksum)
