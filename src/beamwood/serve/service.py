"""A running service: the current snapshot, search threads, store of histories, settings and metrics."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamwood.extras import asking_for
from beamwood.serve.admission import Admission
from beamwood.serve.answer.answering import FoundItems
from beamwood.serve.answer.asking import Asking, StoredHistory
from beamwood.serve.answer.snapshot import Snapshot, open_snapshot
from beamwood.serve.engine import Engine
from beamwood.serve.experiments import Experiments
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.http.route import Route
from beamwood.serve.http.tokens import Tokens
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.items.first_events import FirstEvents
from beamwood.serve.messages import Answer, Recommend
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.monitoring.metrics import Metrics
from beamwood.serve.monitoring.outcomes import Outcomes
from beamwood.serve.problems import Problem
from beamwood.serve.settings import ServeSettings

if TYPE_CHECKING:
    from beamwood.serve.loading import Loader
    from beamwood.serve.monitoring.spans import Spans

__all__ = ["Service", "secret_of"]

# Recorded requests on which a new model is tried.
_RECORDED = 100


class Service:
    """The state that endpoints share. `snapshot` is replaced as a whole; each request reads it once."""

    def __init__(self, settings: ServeSettings, snapshot: Snapshot | None = None) -> None:
        self.settings, self.snapshot = settings, snapshot
        self.tokens = Tokens.read(settings.tokens, settings.rate)
        self.secret = secret_of(settings)
        """The key of cursors."""
        key = secrets.token_bytes(32) if settings.tokens is None else self.secret
        self.log = RequestLog(settings.log, users=settings.log_users, secret=key)
        self._closing = ExitStack()
        """What is closed at shutdown, last first."""
        self.spans = None if settings.otlp is None else _spans(settings.otlp, self.log)
        if self.spans is not None:
            self._closing.callback(self.spans.close)
        self.engine = Engine(settings.search_threads, queued_rows=settings.limits.queued_rows)
        self.admission = Admission(settings.search_threads, max_wait=settings.max_wait)
        self.filter_uses = Counter[str]()
        """Of the filters of all snapshots; see `retrieval.columns.filter_cache`."""
        self.metrics = Metrics(self)
        self.routes: list[Route] = []
        self.recorded: deque[Recommend] = deque(maxlen=_RECORDED)
        self.earlier: list[Path] = []
        """The folders active before, for a rollback; the latest last."""
        self.loader: Loader | None = None
        """The loader of other models, once the application is built."""
        self.in_flight = 0
        self.started = time.time()
        self.draining = False
        self.opening = 0
        """The folders that threads are reading."""
        self.numbers = 0 if snapshot is None else snapshot.number
        self.histories = HistoryGateway(settings, self.log.said, self.metrics.registry)
        self._closing.callback(self.histories.close)
        self.outcomes, self.experiments, self.catalogue = Outcomes(self), Experiments(self), Catalogue(self)
        self._closing.callback(self.outcomes.close)
        self.first_events = FirstEvents(self)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], settings: ServeSettings, **options: Any) -> Service:
        """The service of a folder. Errors: `ArtefactError` naming the file."""
        service = cls(settings)
        try:
            service.snapshot = service.opened(folder, **options)
        except BaseException:
            service.close()
            raise
        return service

    def opened(self, folder: str | os.PathLike[str], **options: Any) -> Snapshot:
        """A new snapshot of a folder under the settings; not yet active."""
        settings = self.settings
        self.numbers += 1
        self.opening += 1
        try:
            return open_snapshot(
                folder,
                number=self.numbers,
                threads=settings.search_threads,
                items=settings.items,
                min_beam=settings.min_beam,
                filter_bytes=settings.filter_cache,
                filter_uses=self.filter_uses,
                by_category=settings.by_category,
                searchers=None if settings.searchers is None else settings.searchers(Path(folder)),
                **options,
            )
        finally:
            self.opening -= 1

    def current(self) -> Snapshot:
        """The active snapshot. Errors: `Problem` while nothing is loaded."""
        if self.snapshot is None:
            raise Problem("not_ready", self._loading, retry_after_ms=1000)
        return self.snapshot

    @property
    def snapshots(self) -> Sequence[Snapshot]:
        """All active snapshots: the current one, and those of an experiment's arms."""
        arms = self.experiments.snapshots.values()
        return [*arms] if self.snapshot is None else [self.snapshot, *arms]

    def snapshot_of(self, key: str) -> Snapshot | None:
        """The snapshot of the folder with this checksum, None if not open."""
        return next((each for each in self.snapshots if each.key == key), None)

    def swap(self, before: Snapshot, fresh: Snapshot) -> None:
        """Let `fresh` replace `before`, unless that is no longer active."""
        if self.snapshot is before:
            self.snapshot = fresh
        self.experiments.swap(before, fresh)

    def unready(self) -> str | None:
        """Why the service is not ready, None if it is."""
        if self.draining:
            return "the service is being shut down; ask another one"
        if self.snapshot is None:
            return self._loading
        return self.histories.unready()

    @property
    def _loading(self) -> str:
        """Why there is no snapshot yet."""
        if self.histories.trouble is not None:
            return "the store has not answered yet, so what was erased is unknown; ask again soon"
        return "the model is being loaded; ask again soon"

    async def kept_of(self, snapshot: Snapshot, body: Asking) -> StoredHistory:
        """The stored history of a body, empty for one that names nobody."""
        if body.user is None and body.session is None:
            return StoredHistory()
        return await self.histories.kept(snapshot, body)

    def counted(self, body: Recommend, answer: Answer, found: FoundItems) -> None:
        """Record metrics of an answer, and the request for the trial of the next model."""
        metrics = self.metrics
        metrics.sources.inc(answer.source)
        self.catalogue.count(answer.items)
        metrics.scored.inc(by=found.scored)
        if answer.degraded:
            metrics.degraded.inc()
        if answer.beam_width is not None:
            metrics.beam_width.observe(answer.beam_width)
        if answer.unknown_items:
            metrics.unknown.inc(by=len(answer.unknown_items))
        if len(answer.items) < body.k and not body.dry_run:
            metrics.short.inc()
        if not body.dry_run:
            self.recorded.append(body)

    def close(self) -> None:
        """Stop the threads, and close resources."""
        self.engine.close()
        self._closing.close()
        self.log.flush()


def _spans(url: str, log: RequestLog) -> Spans:
    with asking_for("--otlp"):
        from beamwood.serve.monitoring.spans import Spans
    return Spans(url, log.said)


def secret_of(settings: ServeSettings) -> bytes:
    """The key that signs cursors, equal across a fleet: derived from the tokens' file, else from the shared store's
    address.

    Without either it belongs to this process.
    """
    if settings.tokens is not None:
        return hashlib.sha256(b"beamwood cursors" + settings.tokens.read_bytes()).digest()
    if "://" in settings.store:
        return hashlib.sha256(b"beamwood cursors" + settings.store.encode()).digest()
    return secrets.token_bytes(32)
