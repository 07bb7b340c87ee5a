"""Metrics of a running service for Prometheus; none is by user or item."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CollectorRegistry,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from beamwood.retrieval.new_items.extended_tree import ExtendedTree
from beamwood.serve.engine import Priority
from beamwood.serve.monitoring.tallies import ReadTally, Tally, Times

if TYPE_CHECKING:
    from beamwood.serve.service import Service

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0)
# Fine buckets for the lag of the loop.
_LATE = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
_WIDTHS = (10, 25, 50, 75, 100, 150, 200, 300, 500, 1000, 2000)


class Metrics:
    """Counters that endpoints increment, and gauges that are read on demand."""

    def __init__(self, service: Service) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "beamwood", "registry": self.registry}
        kept = self.registry
        self.requests = Tally("requests", "Answers by endpoint and status", kept, ["route", "code", "arm"])
        self.seconds = Times("seconds", "Time by endpoint and stage", kept, _SECONDS, ["route", "stage"])
        self.rejected = Tally("rejected", "Requests that were not answered, by code", kept, ["reason"])
        self.degraded = Tally("degraded", "Searches that were narrowed as many waited", kept)
        self.beam_width = Times("beam_width", "Beam widths of searches", kept, _WIDTHS)
        self.scored = Tally("nodes_scored", "Nodes or items that were scored", kept)
        self.short = Tally("results_short", "Answers with fewer items than were asked for", kept)
        self.sources = Tally("answers", "Answers by what they come from", kept, ["source"])
        self.unknown = Tally("unknown_items", "Items of requests that the catalogue lacks", kept)
        self.lag = Times("loop_lag_seconds", "How late the event loop is", kept, _LATE)
        self.outcomes = Tally("outcomes", "Answers, and what followed them, by arm", kept, ["arm", "outcome"])
        self.swaps = Tally("swaps", "Models that were loaded or refused", kept, ["outcome"])
        self._gauges(service, own)
        ProcessCollector(registry=self.registry)

    def _gauges(self, service: Service, own: dict[str, Any]) -> None:
        engine = service.engine
        waiting = Gauge("queue", "Requests and searches that wait", ["priority"], **own)
        for priority in Priority:
            waiting.labels(priority.name.lower()).set_function(partial(_waiting, service, priority))
        told: Iterable[tuple[str, str, Callable[[], float]]] = (
            ("in_flight", "Requests that are being answered", lambda: service.in_flight),
            ("search_seconds", "Mean processor time of a search lately", lambda: engine.seconds),
            ("searches_running", "Searches that run", lambda: engine.running),
            ("snapshot_version", "The version that answers", lambda: _of(service, "number")),
            ("snapshot_age_seconds", "Seconds since it was opened", lambda: time.time() - _of(service, "opened")),
            ("tree_leaves_left", "Empty leaves for new items, of a tree", lambda: _room(service, beside=False)),
            ("new_items_beside", "New items scored beside a tree", lambda: _room(service, beside=True)),
            ("filter_cache_bytes", "Bytes of prepared filters", lambda: _filter_bytes(service)),
        )
        for name, text, read in told:
            Gauge(name, text, **own).set_function(read)
        uses = service.filter_uses
        ReadTally("searches_abandoned", "Searches that nobody awaited any more", self.registry, lambda: engine.expired)
        ReadTally("log_lines_lost", "Lines of the log that were not written", self.registry, lambda: service.log.lost)
        ReadTally("filter_cache_hits", "Filters that were at hand", self.registry, lambda: uses["hits"])
        ReadTally("filter_cache_misses", "Filters that had to be prepared", self.registry, lambda: uses["misses"])

    def text(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self.registry)


def _of(service: Service, name: str) -> float:
    snapshot = service.snapshot
    if snapshot is None:
        return 0.0
    return float(snapshot.number if name == "number" else snapshot.opened)


def _room(service: Service, *, beside: bool) -> float:
    """The new items beside the tree, or the empty leaves in it; NaN without a tree."""
    tree = None if service.snapshot is None else service.snapshot.tree
    if tree is None:
        return math.nan
    if beside:
        return float(tree.num_beside) if isinstance(tree, ExtendedTree) else 0.0
    return float(tree.tree.shape.capacity - tree.tree.live_counts[0].sum())


def _filter_bytes(service: Service) -> float:
    return 0.0 if service.snapshot is None else float(service.snapshot.names.filters.cache.nbytes)


def _waiting(service: Service, priority: Priority) -> int:
    turns = service.admission.waiting if priority is Priority.CALLER else 0
    return turns + service.engine.waiting(priority)
