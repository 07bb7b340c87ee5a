"""Choices by neighbour counts: which neighbours of a tree's nodes count, and how far ahead training targets lie.

Both follow from the kind of neighbour counts that, used alone, ranks best for validation users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from beamwood.blocks import evenly
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.evaluation.significance import mean_exceeds
from beamwood.fitting.neighbour_counts import neighbour_counts
from beamwood.fitting.neighbour_kinds import KINDS, NeighbourKind
from beamwood.fitting.settings import WeightChoiceSettings
from beamwood.fitting.start_cache import cached
from beamwood.fitting.validation import CUT, Monitor
from beamwood.kernels.lists import strongest
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher
from beamwood.steps import step, tell
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.types import FloatArray

__all__ = ["chosen_horizon", "chosen_neighbours"]

# The most interactions that are counted, from evenly spread users, and the neighbours kept for each item.
_INTERACTIONS, _LISTED = 1_000_000, 128
# The factor of a history item's weight against the next newer one, as in the initial neighbour weights.
_DECAY = 0.9
# A kind other than the first must be better by this many standard errors.
_CLEARLY = 2.0
# The share of the time left that the measurement may take, and the fewest queries for it under a limit and in all.
_SHARE, _FEWEST, _LEAST = 0.1, 64, 2
# The horizon of targets where later items are better evidence than the next one.
_AHEAD = 10


class _Measurement(NamedTuple):
    """The mean metric of each kind on `num` of `num_all` queries, None if there were too few.

    `clearly_above`: the kinds that are significantly better than the first.
    """

    num: int
    num_all: int
    means: Mapping[NeighbourKind, float] | None = None
    clearly_above: tuple[NeighbourKind, ...] = ()

    def best(self, margin: float) -> NeighbourKind:
        """The best kind; other than the first only if clearly above it, and by a share of at least `margin`."""
        first: NeighbourKind = next(iter(KINDS))
        if self.means is None:
            return first
        means, least = self.means, (1 + margin) * self.means[first]
        return max([first, *(kind for kind in self.clearly_above if means[kind] >= least)], key=means.__getitem__)


class _Decision(NamedTuple):
    """A decision between the kinds: the `margin` that it requires, and its wording in progress and notes.

    `kinds` and `outcomes`: the words for each kind where it is measured, and where it is chosen.
    """

    name: str
    kinds: Mapping[NeighbourKind, str]
    outcomes: Mapping[NeighbourKind, str]
    step: str
    default: str
    margin: float

    def line(self, found: _Measurement, monitor: str) -> str:
        """The outcome and its reason."""
        outcome = f"{self.name}: {self.outcomes[found.best(self.margin)]}"
        if found.means is None:
            why = "no validation users choose" if found.num_all < _LEAST else "there was no time to choose"
            return f"{outcome}, as {why}"
        means = ", ".join(f"{self.kinds[kind]} {mean:.4f}" for kind, mean in found.means.items())
        return f"{outcome}, by {monitor} of {found.num:,} validation users ({means})"

    def left_out(self, found: _Measurement) -> str | None:
        """A note on what the time limit did not allow."""
        if found.means is None:
            return None if found.num_all < _LEAST else f"{self.default}: there was no time to choose"
        if found.num == found.num_all:
            return None
        return f"{self.name} are chosen on {found.num} of {found.num_all} validation users"


_NEIGHBOURS = _Decision(
    "neighbours",
    {"around": "around", "after": "after", "next": "next"},
    {"around": "around", "after": "after", "next": "next"},
    "choosing which neighbours count",
    "neighbours are those around an item",
    margin=0.0,
)
_TARGETS = _Decision(
    "targets",
    {"around": "either way", "after": "later", "next": "next"},
    {"around": "the next item", "after": f"{_AHEAD} items ahead", "next": "the next item"},
    "choosing how far ahead to learn",
    "targets are the next item alone",
    margin=0.1,
)


def chosen_neighbours(split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any]) -> NeighbourKind | None:
    """The kind whose counts alone rank best by `choose.monitor`, on a sample of validation users.

    Counts are of training histories; the score of an item is its mean share of the neighbours of the history's items.
    `options` are those of `TrainOptions`. A resumed run keeps its choice, and the first of `KINDS` is used where the
    time limit leaves no room. Errors: an unknown monitor.
    """
    if (resumed := _resumed_settings(options)) is not None:
        stored: NeighbourKind | None = resumed.get("model.neighbours")
        return stored
    return _best_kind(split, choose, options, _NEIGHBOURS)


def chosen_horizon(split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any]) -> int:
    """The horizon of training targets: the next ten items, or the next item only.

    It is ten where validation queries have more than one label, and where counts within ten later steps rank at least a
    tenth better than counts around an item. Then the next item alone is too sparse as evidence.
    """
    if (resumed := _resumed_settings(options)) is not None:
        # Another method's run may have no horizon; it is rejected later.
        return int(resumed.get("examples.horizon", 1))
    lengths = split.valid.labels.lengths
    if lengths.max(initial=0) <= 1:
        return 1
    return _AHEAD if _best_kind(split, choose, options, _TARGETS) == "after" else 1


def _resumed_settings(options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The stored settings of the run that is resumed; None without one."""
    run = options.get("run")
    return (run.stored_config() or None) if options.get("resume", False) and run is not None else None


def _best_kind(
    split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any], decision: _Decision
) -> NeighbourKind:
    seed, budget = options.get("seed", 0), Budget.of(options.get("time_limit"))
    monitor, users = Monitor.of(choose.monitor), choose.validation_users
    queries = split.valid.labelled().sample(users, seed=seed)

    def measure() -> _Measurement:
        with step(decision.step):
            return _measured(split, queries, monitor, budget)

    found = cached(split.train, f"neighbours {choose.monitor} {users} {seed}", measure)
    if (note := decision.left_out(found)) is not None:
        budget.leave_out(note)
    if options.get("progress", True):
        tell(decision.line(found, choose.monitor))
    return found.best(decision.margin)


def _measured(split: Split, queries: Queries, monitor: Monitor, budget: Budget) -> _Measurement:
    first: NeighbourKind = next(iter(KINDS))
    num_all, counted = len(queries), min(_INTERACTIONS, len(split.train.histories.items))

    def values_of(kind: NeighbourKind, num: int) -> FloatArray:
        some = queries.take(evenly(num_all, num))
        return _values(split, some, kind, monitor, most=math.ceil(counted * num / num_all))

    num = num_all
    if budget.limited and num_all:
        # The time of counting is proportional to the queries, too, as is the number of interactions counted.
        seconds = len(KINDS) * estimated_seconds(lambda num: values_of(first, num), num_all, budget.clock)
        num = budget.affordable(num_all, seconds, share=_SHARE)
    if num < min(_FEWEST, num_all) or num_all < _LEAST:
        return _Measurement(num, num_all)
    values = {kind: values_of(kind, num) for kind in KINDS}
    better = tuple(kind for kind in KINDS if mean_exceeds(values[kind] - values[first], _CLEARLY))
    return _Measurement(num, num_all, {kind: float(values[kind].mean()) for kind in KINDS}, better)


def _values(split: Split, queries: Queries, kind: NeighbourKind, monitor: Monitor, *, most: int) -> FloatArray:
    """float64[Q], the monitored metric of each query when items are ranked by neighbour counts alone."""
    train, cut = split.train, min(CUT, split.train.num_items)
    counts = neighbour_counts(train, kind, most=most)
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1e-9)
    shares = strongest(sparse.csr_matrix(sparse.diags(1 / totals) @ counts), _LISTED)
    searcher = NeighbourSearcher(shares, train.item_counts, decay=_DECAY)
    return monitor.mean(monitor.results(searcher, queries, cut))
