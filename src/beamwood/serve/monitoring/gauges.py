"""Gauges of a running service for Prometheus, read on demand."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Gauge

from beamwood.retrieval.new_items.extended_tree import ExtendedTree
from beamwood.serve.active import ActiveModels
from beamwood.serve.admission import Admission
from beamwood.serve.engine import Engine, Priority
from beamwood.serve.monitoring.log import RequestLog
from beamwood.serve.monitoring.tallies import ReadTally

__all__ = ["add_gauges"]


def add_gauges(
    registry: CollectorRegistry,
    models: ActiveModels,
    engine: Engine,
    admission: Admission,
    log: RequestLog,
    in_flight: Callable[[], int],
) -> None:
    """Add those of a service's parts to a registry; `in_flight`: the number of requests that are being answered."""
    own: dict[str, Any] = {"namespace": "beamwood", "registry": registry}
    waiting = Gauge("queue", "Requests and searches that wait", ["priority"], **own)
    for priority in Priority:
        waiting.labels(priority.name.lower()).set_function(partial(_waiting, admission, engine, priority))
    told: Iterable[tuple[str, str, Callable[[], float]]] = (
        ("in_flight", "Requests that are being answered", in_flight),
        ("search_seconds", "Mean processor time of a search lately", lambda: engine.seconds),
        ("searches_running", "Searches that run", lambda: engine.searching),
        ("snapshot_version", "The version that answers", lambda: _number(models)),
        ("snapshot_age_seconds", "Seconds since it was opened", lambda: _age(models)),
        ("new_items", "Items that came after the fit", lambda: _new(models)),
        ("tree_leaves_left", "Empty leaves for new items, of a tree", lambda: _room(models, beside=False)),
        ("new_items_beside", "New items scored beside a tree", lambda: _room(models, beside=True)),
        ("filter_cache_bytes", "Bytes of prepared filters", lambda: _filter_bytes(models)),
    )
    for name, text, read in told:
        Gauge(name, text, **own).set_function(read)
    uses = models.filter_uses
    ReadTally("searches_abandoned", "Searches that nobody awaited any more", registry, lambda: engine.expired)
    ReadTally("log_lines_lost", "Lines of the log that were not written", registry, lambda: log.lost)
    ReadTally("filter_cache_hits", "Filters that were at hand", registry, lambda: uses["hits"])
    ReadTally("filter_cache_misses", "Filters that had to be prepared", registry, lambda: uses["misses"])


def _number(models: ActiveModels) -> float:
    return 0.0 if models.current is None else float(models.current.number)


def _age(models: ActiveModels) -> float:
    """Seconds; NaN without a snapshot."""
    return math.nan if models.current is None else time.monotonic() - models.current.opened


def _new(models: ActiveModels) -> float:
    """The items that the model was not fitted with, without erased ones."""
    snapshot = models.current
    if snapshot is None:
        return 0.0
    erased = snapshot.names.erased
    gone = 0 if erased is None else np.count_nonzero(erased[snapshot.known :])
    return float(snapshot.num_items - snapshot.known - gone)


def _room(models: ActiveModels, *, beside: bool) -> float:
    """The new items beside the tree, or the empty leaves in it; NaN without a tree."""
    tree = None if models.current is None else models.current.tree
    if tree is None:
        return math.nan
    if beside:
        return float(tree.num_beside) if isinstance(tree, ExtendedTree) else 0.0
    return float(tree.tree.shape.capacity - tree.tree.live_counts[0].sum())


def _filter_bytes(models: ActiveModels) -> float:
    return 0.0 if models.current is None else float(models.current.names.filters.cache.nbytes)


def _waiting(admission: Admission, engine: Engine, priority: Priority) -> int:
    turns = admission.waiting if priority is Priority.CALLER else 0
    return turns + engine.waiting(priority)
