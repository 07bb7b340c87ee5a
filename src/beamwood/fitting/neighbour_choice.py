"""Who is near an item: the kind of counts that finds best, on its own, what validation users took.

It says who the neighbours of a tree's nodes are, and how far ahead other models are trained to look.
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

# Of so many interactions counts are made, by evenly spread users, and so many neighbours of each item are listed.
_INTERACTIONS, _LISTED = 1_000_000, 128
# What a place of a history weighs against the next newer one, as where neighbours start.
_DECAY = 0.9
# Another kind than the first is taken where it is better by so many standard errors: fewer are chance.
_SURE = 2.0
# With a limit, no more of what is left goes to the choice, and so many users have a say at least.
_SHARE, _FEWEST = 0.1, 64
# One user's word is none.
_LEAST = 2
# How far ahead targets are where what comes later says more than what comes next.
_AHEAD = 10


class _Judged(NamedTuple):
    """What each kind is worth to how many of the users that could judge, None where none did; `surely`: the kinds that
    are above the first by more than chance."""

    num: int
    of: int
    means: Mapping[NeighbourKind, float] | None = None
    surely: tuple[NeighbourKind, ...] = ()

    def best(self, margin: float) -> NeighbourKind:
        """The kind with the highest mean of the first and those that are surely above it, by a share of it at least."""
        first: NeighbourKind = next(iter(KINDS))
        if self.means is None:
            return first
        means, least = self.means, (1 + margin) * self.means[first]
        return max([first, *(kind for kind in self.surely if means[kind] >= least)], key=means.__getitem__)


class _Asked(NamedTuple):
    """What is chosen, and the `margin` above the first kind that it takes, in the words of who asked: the `name` of a
    line, each kind, a step, and what is left out."""

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
    """The kind whose counts alone rank best by `choose.monitor`, of validation users drawn by the seed.

    Counts are those of training histories, and the score of an item is the mean of the shares that it has of what is
    near the history's items. `options` are those of `TrainOptions`: a resumed run keeps what it has; where a time limit
    leaves no room to choose, it is the first of `KINDS`. Errors: a monitor that is not measured.
    """
    if (kept := _kept(options)) is not None:
        stored: NeighbourKind | None = kept.get("model.neighbours")
        return stored
    return _chosen(split, choose, options, _NEAR)


def chosen_horizon(split: Split, choose: WeightChoiceSettings, options: Mapping[str, Any]) -> int:
    """How far ahead the targets of a training are drawn: 10 items, or the next alone.

    A model learns what it is asked for. It is ten where validation users are asked for more than one item, and where
    `chosen_neighbours` finds most in what comes within ten steps of an item: a tenth more than around it, for a
    training on the next item alone finds by itself some of what its counts are too few to say.
    """
    if (kept := _kept(options)) is not None:
        return int(kept.get("examples.horizon", 1))  # another method's run may have none, and is refused later
    lengths = split.valid.labels.lengths
    if lengths.max(initial=0) <= 1:
        return 1
    return _AHEAD if _chosen(split, choose, options, _TARGETS) == "after" else 1


def _kept(options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The settings of the run that is resumed; None where none is."""
    run = options.get("run")
    return (run.kept() or None) if options.get("resume", False) and run is not None else None


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
    """All of them, or as many as there is time for; what is counted for them falls in proportion."""
    if not budget.limited or whole == 0:
        return whole
    price = len(KINDS) * price_of(work, whole, budget.clock)
    return min(whole, int(whole * _SHARE * max(budget.left, 0.0) / max(price, 1e-9)))


def _values(split: Split, queries: Queries, kind: NeighbourKind, monitor: str, *, most: int) -> FloatArray:
    """float64[Q], the monitored metric of each query, when what is near its history's items is all that counts."""
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
    """Is the mean difference of the same queries so many of its standard errors?"""
    differences = values - others
    return float(differences.mean()) > _SURE * float(differences.std(ddof=1)) / math.sqrt(len(differences))
