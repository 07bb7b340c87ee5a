"""Counters and histograms that only the event loop increments: without locks, and a list element for each count.

Prometheus reads them on demand; see `prometheus_client.registry.Collector`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

__all__ = ["ReadTally", "Tally", "Times"]


class Tally:
    """A counter `beamwood_<name>_total` by labels; without labels it has one count, initially 0."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry, labels: Sequence[str] = ()) -> None:
        self._name, self._text, self._labels = f"beamwood_{name}", text, tuple(labels)
        self._counts: dict[tuple[str, ...], float] = {} if labels else {(): 0}
        registry.register(self)

    def inc(self, *labels: str, by: float = 1) -> None:
        """Increment the count of the labels."""
        self._counts[labels] = self._counts.get(labels, 0) + by

    @property
    def total(self) -> float:
        """The sum over all labels."""
        return sum(self._counts.values())

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What Prometheus reads."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        # A copy, as other threads read it.
        for labels, count in list(self._counts.items()):
            family.add_metric(labels, count)
        yield family


class ReadTally:
    """A counter `beamwood_<name>_total` whose count is kept elsewhere; `read` returns it."""

    def __init__(self, name: str, text: str, registry: CollectorRegistry, read: Callable[[], float]) -> None:
        self._name, self._text, self._read = f"beamwood_{name}", text, read
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily]:
        """What Prometheus reads."""
        yield CounterMetricFamily(self._name, self._text, self._read())


class Times:
    """A histogram `beamwood_<name>` by labels; `bounds` ascending, the upper ones of its buckets."""

    def __init__(
        self, name: str, text: str, registry: CollectorRegistry, bounds: Sequence[float], labels: Sequence[str] = ()
    ) -> None:
        self._name, self._text, self._labels, self._bounds = f"beamwood_{name}", text, tuple(labels), tuple(bounds)
        self._said = [*map(floatToGoString, self._bounds), "+Inf"]
        # For each: the bucket counts, not cumulated, then the sum of observations.
        self._counts: dict[tuple[str, ...], list[float]] = {} if labels else {(): self._empty()}
        registry.register(self)

    def observe(self, value: float, *labels: str) -> None:
        """Record a value."""
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = self._empty()
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value

    def _empty(self) -> list[float]:
        return [0] * (len(self._bounds) + 2)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """What Prometheus reads."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        for labels, counts in list(self._counts.items()):
            *buckets, total = counts
            family.add_metric(labels, list(zip(self._said, accumulate(buckets), strict=True)), total)
        yield family
