"""A span for each request, exported to a collector by OTLP over HTTP on separate threads.

A span has route, status and times, but neither users nor content.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import SpanKind, StatusCode

from beamwood import __version__
from beamwood.errors import InputError

__all__ = ["Spans"]

# Seconds after which an export is abandoned, so that a collector that is down does not delay shutdown.
_EXPORT_SECONDS = 3.0
_MOST_WAITING, _BATCH = 4096, 2048
_NOBODY = Context()
_LIBRARY = logging.getLogger("opentelemetry")


@dataclass(frozen=True, slots=True)
class _Ended:
    """A request that ended at `nanoseconds`."""

    nanoseconds: int
    name: tuple[str, str]
    status: int
    code: str | None
    seconds: float
    stages: Mapping[str, float]


class _Exporter(OTLPSpanExporter):
    """Logs once that the collector accepts no spans, and once that it does again."""

    def __init__(self, endpoint: str, said: Callable[..., None], reasons: _Reasons) -> None:
        super().__init__(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        self._said, self._reasons, self._is_failing = said, reasons, False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self._reasons.first = ""
        result = super().export(spans)
        before, self._is_failing = self._is_failing, result is not SpanExportResult.SUCCESS
        if self._is_failing and not before:
            self._said("spans_lost", reason=self._reasons.first)
        elif before and not self._is_failing:
            self._said("spans_accepted")
        return result


class _Reasons(logging.Handler):
    """Takes what the library would write to stderr, which is several lines for each batch that is not accepted."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


class Spans:
    """Sends spans to the collector at `url`, such as http://localhost:4318; without a path to its /v1/traces.

    Spans that the collector does not accept in time are dropped; `said` logs that, as `RequestLog.said` does. Errors:
    `InputError` on an invalid address.
    """

    def __init__(self, url: str, said: Callable[..., None]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise InputError(f"--otlp {url!r} is not an address of a collector; write http://localhost:4318")
        endpoint = url if parts.path.strip("/") else parts._replace(path="/v1/traces").geturl()
        resource = Resource.create({"service.name": "beamwood", "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._reasons = _Reasons()
        _LIBRARY.addHandler(self._reasons)
        exporter = _Exporter(endpoint, said, self._reasons)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, max_queue_size=_BATCH, max_export_batch_size=_BATCH)
        )
        self._tracer = self._provider.get_tracer("beamwood")
        self._waiting: queue.Queue[_Ended | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._make, name="spans", daemon=True)
        self._thread.start()

    def finished(
        self, method: str, route: str, status: int, code: str | None, seconds: float, stages: Mapping[str, float]
    ) -> None:
        """Record a request that just ended, with the seconds of its stages; `code`: of its error. Never blocks."""
        with suppress(queue.Full):
            self._waiting.put_nowait(_Ended(time.time_ns(), (method, route), status, code, seconds, stages))

    def close(self) -> None:
        """Send the remaining spans."""
        self._waiting.put(None)
        self._thread.join()
        self._provider.shutdown()
        _LIBRARY.removeHandler(self._reasons)

    def _make(self) -> None:
        while (ended := self._waiting.get()) is not None:
            self._made(ended)

    def _made(self, ended: _Ended) -> None:
        method, route = ended.name
        about: dict[str, str | int | float] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": ended.status,
        }
        about |= {f"beamwood.{stage}_ms": round(1000 * taken, 3) for stage, taken in ended.stages.items()}
        if ended.code is not None:
            about["error.type"] = ended.code
        began = ended.nanoseconds - round(1e9 * ended.seconds)
        span = self._tracer.start_span(f"{method} {route}", _NOBODY, SpanKind.SERVER, about, start_time=began)
        if ended.status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end(ended.nanoseconds)
