"""The choice of neighbour counts: the kind that by itself ranks best for validation users.

It defines the neighbours of a tree's nodes, and how far ahead other models' targets lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from beamwood.blocks import evenly
from beamwood.data.split import Queries, Split
from beamwood.evaluation.protocol import VIEWS, evaluate
from beamwood.fitting.choose import CUT, check_monitor, drawn
from beamwood.fitting.neighbour_counts import neighbour_counts
from beamwood.fitting.neighbour_kinds import KINDS, NeighbourKind
from beamwood.fitting.vectors.remembered import remembered
from beamwood.kernels.lists import strongest
from beamwood.retrieval.neighbours import NeighbourSearcher
from beamwood.steps import step, tell
from beamwood.training.budget import Budget, price_of
from beamwood.types import FloatArray

if TYPE_CHECKING:
    from beamwood.fitting.settings import WeightChoiceSettings

__all__ = ["chosen_horizon", "chosen_neighbours"]

# The interactions that are counted, from evenly spread users, and the neighbours kept for each item.
_INTERACTIONS, _LISTED = 1_000_000, 128
# The factor of a history item's weight against the next newer one, as in the initial neighbour weights.
_DECAY = 0.9
# A kind other than the first must be better by this many standard errors.
_SURE = 2.0
# The share of the time left that the choice may take under a limit, and the fewest users for it.
_SHARE, _FEWEST = 0.1, 64
# The fewest users of which a choice is made.
_LEAST = 2
# The horizon of targets where later items are better evidence than the next one.
_AHEAD = 10


class _Judged(NamedTuple):
    """The mean metric of each kind, None if none was measured, and the users for it; `surely`: the kinds significantly
    above the first.
    """

    num: int
    of: int
    means: Mapping[NeighbourKind, float] | None = None
    surely: tuple[NeighbourKind, ...] = ()

    def best(self, margin: float) -> NeighbourKind:
        """The best kind among the first and those significantly above it, by a share of at least `margin`."""
        first: NeighbourKind = next(iter(KINDS))
        if self.means is None:
            return first
        means, least = self.means, (1 + margin) * self.means[first]
        return max([first, *(kind for kind in self.surely if means[kind] >= least)], key=means.__getitem__)


class _Asked(NamedTuple):
    """A question to be chosen: the required `margin` above the first kind, and its wording in progress and notes."""

    name: str
    kinds: Mapping[NeighbourKind, str]
    chosen: Mapping[NeighbourKind, str]
    step: str
    untimed: str
    judge: str
    margin: float

    def line(self, choice: _Judged, monitor: str) -> str:
        taken = f"{self.name}: {self.chosen[choice.best(self.margin)]}"
        if choice.means is None:
            why = "no validation users choose" if choice.of < _LEAST else "there was no time to choose"
            return f"{taken}, as {why}"
        means = ", ".join(f"{self.kinds[kind]} {mean:.4f}" for kind, mean in choice.means.items())
        return f"{taken}, by {monitor} of {choice.num:,} validation users ({means})"

    def left_out(self, choice: _Judged) -> str | None:
        if choice.means is None:
            return None if choice.of < _LEAST else f"{self.untimed}: there was no time to choose"
        return f"{choice.num} of {choice.of} validation users say {self.judge}" if choice.num < choice.of else None


_NEAR = _Asked(
    "neighbours",
    {"around": "around", "after": "after", "next": "next"},
    {"around": "around", "after": "after", "next": "next"},
    "choosing which neighbours count",
    "neighbours are those around an item",
    "who is near an item",
    margin=0.0,
)
_TARGETS = _Asked(
    "targets",
    {"around": "either way", "after": "later", "next": "next"},
    {"around": "the next item", "after": f"{_AHEAD} items ahead", "next": "the next item"},
    "choosing how far ahead to learn",
    "targets are the next item alone",
    "how far ahead to learn",
    margin=0.1,
)


def chosen_neighbours(split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any]) -> NeighbourKind | None:
    """The kind whose counts alone rank best by `choose.monitor`, on validation users drawn by the seed.

    Counts are of training histories. The score of an item is its mean share of the neighbours of the history's items.
    `options` are those of `TrainOptions`: a resumed run keeps its choice, and the first of `KINDS` is used where the
    time limit leaves no room. Errors: an unknown monitor.
    """
    if (kept := _kept(options)) is not None:
        stored: NeighbourKind | None = kept.get("model.neighbours")
        return stored
    return _chosen(split, choose, options, _NEAR)


def chosen_horizon(split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any]) -> int:
    """The horizon of training targets: 10 items, or the next one.

    It is ten where validation queries have more than one label, and where counts within ten later steps rank at least a
    tenth better than counts around an item: training on the next item alone learns part of what its sparse counts lack.
    """
    if (kept := _kept(options)) is not None:
        return int(kept.get("examples.horizon", 1))  # another method's run may have none, and is refused later
    lengths = split.valid.labels.lengths
    if lengths.max(initial=0) <= 1:
        return 1
    return _AHEAD if _chosen(split, choose, options, _TARGETS) == "after" else 1


def _kept(options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The settings of the resumed run; None without one."""
    run = options.get("run")
    return (run.stored_config() or None) if options.get("resume", False) and run is not None else None


def _chosen(split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any], asked: _Asked) -> NeighbourKind:
    seed, budget = options.get("seed", 0), Budget.of(options.get("time_limit"))
    monitor, users = choose.monitor, choose.validation_users
    check_monitor(monitor)
    judges = drawn(split.valid.take(np.flatnonzero(split.valid.labels.lengths > 0)), users, seed=seed)

    def judged() -> _Judged:
        with step(asked.step):
            return _judged(split, judges, monitor, budget)

    choice = remembered(split.train, f"neighbours {monitor} {users} {seed}", judged)
    if (lacks := asked.left_out(choice)) is not None:
        budget.leave_out(lacks)
    if options.get("progress", True):
        tell(asked.line(choice, monitor))
    return choice.best(asked.margin)


def _judged(split: Split, judges: Queries, monitor: str, budget: Budget) -> _Judged:
    first: NeighbourKind = next(iter(KINDS))
    counted = min(_INTERACTIONS, len(split.train.histories.items))

    def values_of(kind: NeighbourKind, num: int) -> FloatArray:
        some = judges.take(evenly(len(judges), num))
        return _values(split, some, kind, monitor, most=math.ceil(counted * num / len(judges)))

    num = _num_judges(lambda num: values_of(first, num), len(judges), budget)
    if num < min(_FEWEST, len(judges)) or len(judges) < _LEAST:
        return _Judged(num, len(judges))
    values = {kind: values_of(kind, num) for kind in KINDS}
    surely = tuple(kind for kind in KINDS if _is_surely_above(values[kind], values[first]))
    return _Judged(num, len(judges), {kind: float(values[kind].mean()) for kind in KINDS}, surely)


def _num_judges(work: Callable[[int], object], whole: int, budget: Budget) -> int:
    """All users, or as many as fit the time limit; counting time is proportional to them."""
    if not budget.limited or whole == 0:
        return whole
    price = len(KINDS) * price_of(work, whole, budget.clock)
    return min(whole, int(whole * _SHARE * max(budget.left, 0.0) / max(price, 1e-9)))


def _values(split: Split, queries: Queries, kind: NeighbourKind, monitor: str, *, most: int) -> FloatArray:
    """float64[Q], the monitored metric of each query when candidates are ranked by neighbour counts alone."""
    train, cut = split.train, min(CUT, split.train.num_items)
    counts = neighbour_counts(train, kind, most=most)
    totals = np.maximum(np.asarray(counts.sum(axis=1)).ravel(), 1e-9)
    shares = strongest(sparse.csr_matrix(sparse.diags(1 / totals) @ counts), _LISTED)
    searcher = NeighbourSearcher(shares, train.item_counts, decay=_DECAY)
    view, _, metric = monitor.partition("/")
    name = f"{metric.partition('@')[0]}@{cut}"
    views = [view] if view in VIEWS else list(VIEWS)
    found = [evaluate(searcher, queries, ks=(cut,), remove_seen=each == "removed", batch_size=1024) for each in views]
    result: FloatArray = np.mean([each.values[name] for each in found], axis=0)
    return result


def _is_surely_above(values: FloatArray, others: FloatArray) -> bool:
    """Whether the mean paired difference is at least `_SURE` of its standard errors."""
    differences = values - others
    return float(differences.mean()) > _SURE * float(differences.std(ddof=1)) / math.sqrt(len(differences))
