"""Metrics of a running service for Prometheus; none is by user or item."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from beamwood.serve.monitoring.tallies import Tally, Times

__all__ = ["Metrics"]

_SECONDS = (0.00025, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0)
# Fine buckets for the lag of the loop.
_LATE = (0.00025, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0)
_WIDTHS = (10, 25, 50, 75, 100, 150, 200, 300, 500, 1000, 2000)


class Metrics:
    """Counters that endpoints increment; `monitoring.gauges` adds what is read on demand."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        kept = self.registry
        self.requests = Tally("requests", "Answers by endpoint and status", kept, ["method", "route", "code", "arm"])
        self.seconds = Times("seconds", "Time by endpoint and stage", kept, _SECONDS, ["method", "route", "stage"])
        self.rejected = Tally(
            "rejected", "Requests, and rows of batches, that were not answered, by code", kept, ["reason"]
        )
        self.degraded = Tally("degraded", "Searches that were narrowed as many waited", kept)
        self.beam_width = Times("beam_width", "Beam widths of searches", kept, _WIDTHS)
        self.scored = Tally("nodes_scored", "Nodes or items that were scored", kept)
        self.short = Tally("results_short", "Answers with fewer items than were asked for", kept)
        self.sources = Tally("answers", "Answers by what they come from", kept, ["source"])
        self.unknown = Tally("unknown_items", "Items of requests that the catalogue lacks", kept)
        self.lag = Times("loop_lag_seconds", "How late the event loop is", kept, _LATE)
        self.outcomes = Tally("outcomes", "Answers, and what followed them, by arm", kept, ["arm", "outcome"])
        self.swaps = Tally("swaps", "Models that were loaded or refused", kept, ["outcome"])
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        """All metrics as text."""
        return generate_latest(self.registry)
