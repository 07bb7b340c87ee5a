"""The models that answer: the current snapshot, and those of an experiment's arms. Each is replaced as a whole."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from beamwood.serve.answer.snapshot import Snapshot, open_snapshot
from beamwood.serve.problems import Problem
from beamwood.serve.settings import ServeSettings

__all__ = ["LOADING", "ActiveModels"]

LOADING = "the model is being loaded; ask again soon"


class ActiveModels:
    """Opens folders under the settings, and holds the snapshots that are active."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self.current: Snapshot | None = None
        """Each request reads it once."""
        self.arms: Mapping[str, Snapshot] = {}
        """The models of an experiment's arms besides the current one, by folder."""
        self.awaited = LOADING
        """Why there is no current one yet."""
        self.filter_uses = Counter[str]()
        """Of the filters of all snapshots; see `retrieval.columns.filter_cache`."""
        self.opening = 0
        """The folders that threads are reading."""
        self._numbers = 0

    def opened(self, folder: str | os.PathLike[str]) -> Snapshot:
        """A new snapshot of a verified folder; not yet active. Errors: `ArtefactError` naming the file."""
        settings = self._settings
        self.opening += 1
        try:
            return open_snapshot(
                folder,
                number=self.next_number(),
                # One more than long searches take, so that neither the loop nor a brief search waits for them.
                threads=settings.search_threads + 1,
                items=settings.items,
                min_beam=settings.min_beam,
                filter_bytes=settings.filter_cache,
                filter_uses=self.filter_uses,
                by_category=settings.by_category,
                searchers=None if settings.searchers is None else settings.searchers(Path(folder)),
                verify=True,
            )
        finally:
            self.opening -= 1

    def next_number(self) -> int:
        """The number of a new snapshot."""
        self._numbers += 1
        return self._numbers

    def resolved(self, given: str, field: str = "path") -> Path:
        """A path below --models-dir, with links resolved. Errors: `Problem` on any other, and without --models-dir."""
        root = self._settings.models_dir
        if root is None:
            raise Problem("forbidden", "models are loaded below --models-dir alone; start the service with it")
        base = root.resolve()
        try:
            path = (base / given).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise Problem("invalid_request", f"the path cannot be read ({error})", field=field) from None
        if base not in path.parents:
            raise Problem("forbidden", "the path leaves --models-dir; name a folder below it", field=field)
        return path

    def answering(self) -> Snapshot:
        """The current snapshot. Errors: `Problem` while there is none."""
        if self.current is None:
            raise Problem("not_ready", self.awaited, retry_after_ms=1000)
        return self.current

    def all(self) -> Sequence[Snapshot]:
        """The current one, and those of arms."""
        arms = self.arms.values()
        return [*arms] if self.current is None else [self.current, *arms]

    def find(self, key: str) -> Snapshot | None:
        """The one of the folder with this checksum, None if not active."""
        return next((each for each in self.all() if each.key == key), None)

    def swap(self, before: Snapshot, fresh: Snapshot) -> None:
        """Let `fresh` replace `before`, wherever that is active."""
        if self.current is before:
            self.current = fresh
        self.arms = {name: fresh if each is before else each for name, each in self.arms.items()}
