"""A running service: its parts, which know one another only as far as they need, and its state."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import ExitStack
from typing import TYPE_CHECKING

from beamwood.extras import asking_for
from beamwood.serve.active import ActiveModels
from beamwood.serve.admission import Admission
from beamwood.serve.answer.found import FoundItems
from beamwood.serve.engine import Engine
from beamwood.serve.experiments import Experiments
from beamwood.serve.histories import HistoryGateway
from beamwood.serve.items.catalogue import Catalogue
from beamwood.serve.items.first_events import FirstEvents
from beamwood.serve.loading import Loader
from beamwood.serve.messages import Answer, Recommend
from beamwood.serve.monitoring.gauges import add_gauges
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.monitoring.metrics import Metrics
from beamwood.serve.monitoring.outcomes import Outcomes
from beamwood.serve.settings import ServeSettings
from beamwood.serve.tokens import Tokens

if TYPE_CHECKING:
    from beamwood.serve.monitoring.spans import Spans

__all__ = ["Service", "secret_of"]


class Service:
    """What endpoints share."""

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        self.tokens = Tokens.read(settings.tokens, settings.rate)
        self.secret = secret_of(settings)
        """The key of cursors."""
        key = secrets.token_bytes(32) if settings.tokens is None else self.secret
        self.log = RequestLog(settings.log, users=settings.log_users, secret=key)
        said = self.log.said
        self._closing = ExitStack()
        """What is closed at shutdown, last first."""
        self.spans = None if settings.otlp is None else _spans(settings.otlp, self.log)
        if self.spans is not None:
            self._closing.callback(self.spans.close)
        self.engine = Engine(settings.search_threads, queued_rows=settings.limits.queued_rows)
        self.admission = Admission(settings.search_threads, max_wait=settings.max_wait)
        self.metrics = metrics = Metrics()
        self.models = models = ActiveModels(settings)
        self.in_flight = self.answered = 0
        self.draining = self.closing = self.closed = False
        self.histories = histories = HistoryGateway(settings, said, metrics.registry)
        self._closing.callback(histories.close)
        self.catalogue = Catalogue(models, histories, said, metrics.registry)
        self.first_events = FirstEvents(models, histories, said, self.catalogue)
        self.experiments = Experiments(models, histories, said, self.catalogue)
        self.loader = Loader(models, histories, said, self.catalogue, self.engine, metrics.swaps, settings)
        self.outcomes = Outcomes(models, histories, self.engine, metrics.outcomes, settings)
        self._closing.callback(self.outcomes.close)
        add_gauges(metrics.registry, models, self.engine, self.admission, self.log, lambda: self.in_flight)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], settings: ServeSettings) -> Service:
        """The service of a folder. Errors: `ArtefactError` naming the file."""
        service = cls(settings)
        try:
            service.loader.begin(service.models.opened(folder))
        except BaseException:
            service.close()
            raise
        return service

    def unready(self) -> str | None:
        """Why the service is not ready, None if it is."""
        if self.draining:
            return "the service is being shut down; ask another one"
        return self.models.awaited if self.models.current is None else self.histories.unready()

    def counted(self, body: Recommend, answer: Answer, found: FoundItems) -> None:
        """Record metrics of an answer, and the request for the trial of the next model; none of a dry run."""
        if body.dry_run:
            return
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
        if len(answer.items) < body.k:
            metrics.short.inc()
        self.loader.recorded.append(body)

    def close(self) -> None:
        """Stop the threads, and close resources."""
        self.engine.close()
        self._closing.close()
        self.log.close()
        self.closed = True


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
