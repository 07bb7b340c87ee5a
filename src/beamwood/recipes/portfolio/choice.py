"""The policy of a search for the best method: which step comes next, by the measurements so far and the time left.

Nothing is fitted or measured here. First every counting method is tried once. Trained methods then go through
successive halving: each round divides its share of the time among the remaining ones, which continue from where they
stopped, and the better half goes on. Source: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and
Hyperparameter Optimization" (AISTATS 2016).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

import numpy as np

from beamwood.types import FloatArray

__all__ = [
    "SHORTEST",
    "Candidate",
    "Contender",
    "Costs",
    "Look",
    "Next",
    "best_within",
    "next_blend",
    "next_look",
    "halving_rounds",
    "shortest",
    "why_lower",
    "within",
]

SHORTEST = 45.0
"""The shortest useful training on a large log, in seconds."""

# The rows of a large log, and the share of `SHORTEST` for the smallest ones, where starts and validations are faster.
_LARGE, _LEAST = 1_000_000, 1 / 3

# The share of the time left that a counting method may take.
_COUNTING = 0.08
# A method that had too little time gets this multiple of its need, if that is at most this share of the time left.
_AMPLE, _MOST_OF_NEED = 1.5, 0.5
# A look shorter than this share of the shortest useful one is not worth its fixed cost.
_TOO_SHORT = 0.5
# A blend costs more than its first part, so it has to gain this much of its standard error.
_CERTAINTY = 0.5
_MOST_PARTS, _MOST_FIRSTS = 3, 2


@dataclass(frozen=True, slots=True)
class Contender:
    """A method with its settings, by name.

    `trains`: further looks continue its training; otherwise one look suffices. `method`: equal for contenders that
    differ only in settings; empty: no other one is equal.
    """

    name: str
    trains: bool = True
    method: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """The result of one look, a fit of limited time: the metric, None if no model that may be chosen was returned.

    `ended`: more time would not help; `needs`: the seconds that it would have needed to return a model.
    """

    name: str
    value: float | None
    ended: bool = False
    needs: float | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """The next look: the contender, and the seconds for it."""

    name: str
    seconds: float


class Costs(Protocol):
    """The cost of an answer in time and memory."""

    @property
    def milliseconds(self) -> float: ...
    @property
    def megabytes(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A candidate for the choice: one contender or a blend of several, `parts` by name, the first finding candidates.

    `values` float64[Q] of the validation users, the same for all; `milliseconds` and `megabytes` of an answer.
    """

    parts: tuple[str, ...]
    values: FloatArray
    milliseconds: float
    megabytes: float

    @property
    def name(self) -> str:
        """The name as a sum of methods."""
        return "+".join(self.parts)

    @property
    def value(self) -> float:
        """The mean of the values."""
        return float(np.mean(self.values))


def halving_rounds(contenders: int) -> list[int]:
    """The number of contenders in each round: all, then the better half, rounded up, until one is left."""
    sizes = [contenders]
    while sizes[-1] > 1:
        sizes.append(math.ceil(sizes[-1] / 2))
    return sizes


def shortest(rows: int) -> float:
    """The shortest useful look at a training on a log of `rows` rows, in seconds."""
    return SHORTEST * min(1.0, max(_LEAST, math.sqrt(rows / _LARGE)))


def next_look(
    contenders: Sequence[Contender],
    looks: Sequence[Look],
    left: float,
    spent: float = 0.0,
    least: float = SHORTEST,
) -> Next | None:
    """The next look; None where no time, or nothing to look at, is left.

    `left`: seconds for further looks; `spent`: those of looks at trainings so far; `least`: the shortest useful look;
    with little time fewer methods are tried rather than shorter looks. Contenders are tried in order, so the last are
    dropped first. Unused seconds of a round go to the others.
    """
    tried = {look.name for look in looks}
    for contender in contenders:
        # The first one is always fitted, so that there is a result.
        if not contender.trains and contender.name not in tried and (left > 0 or not tried):
            return Next(contender.name, max(_COUNTING * left, 1e-3))
    if left <= 0:
        return None
    trained = [contender.name for contender in contenders if contender.trains]
    for name in trained:
        needs = _missing_seconds(name, looks)
        if needs is not None and needs <= _MOST_OF_NEED * left:
            return Next(name, needs)
    started = sum(name in tried for name in trained)
    standing = trained[: max(started, _affordable(len(trained), left + spent, least))]
    step = _of_rounds(standing, looks, left)
    # Looks that overran may leave too little time: each has a fixed cost to start.
    if step is None or step.seconds < _TOO_SHORT * least:
        step = _of_the_rest(trained, looks, left, least)
    return step


def _missing_seconds(name: str, looks: Sequence[Look]) -> float | None:
    """The seconds for a second look at a contender whose first one was too short; None for others."""
    own = [look for look in looks if look.name == name]
    return _AMPLE * own[0].needs if len(own) == 1 and own[0].needs is not None else None


def _affordable(most: int, seconds: float, least: float) -> int:
    """The most contenders whose first looks are long enough; one if there is time for a single look that is short."""
    for count in range(most, 1, -1):
        if seconds / len(halving_rounds(count)) / count >= least:
            return count
    return min(most, int(seconds >= _TOO_SHORT * least))


def _of_rounds(standing: Sequence[str], looks: Sequence[Look], left: float) -> Next | None:
    """The next look of the halving rounds."""
    sizes = halving_rounds(len(standing)) if standing else []
    for number, size in enumerate(sizes):
        if number:
            standing = _best(standing, looks)[:size]
        waiting = [name for name in standing if _times(name, looks) <= number and not _ended(name, looks)]
        if waiting:
            shares = len(waiting) / size + len(sizes) - 1 - number
            return Next(waiting[0], left / shares / size)
    return None


def _of_the_rest(trained: Sequence[str], looks: Sequence[Look], left: float, least: float) -> Next | None:
    """A further look at the best contender that more time may help, else at an untried one; None without time."""
    best = next((name for name in _best(trained, looks) if not _ended(name, looks)), None)
    new = [name for name in trained if _times(name, looks) == 0]
    if left < least or not (best or new):
        return None
    return Next(best, left) if best else Next(new[0], max(left / len(new), least))


def _times(name: str, looks: Sequence[Look]) -> int:
    return sum(look.name == name for look in looks)


def _best(names: Sequence[str], looks: Sequence[Look]) -> list[str]:
    """Contenders with a value, best first; ties keep their order."""
    values = {name: _value(name, looks) for name in names}
    found = [name for name in names if values[name] > -math.inf]
    return sorted(found, key=lambda name: -values[name])


def _value(name: str, looks: Sequence[Look]) -> float:
    """The best value of its looks: earlier weights are kept if better."""
    return max((look.value for look in looks if look.name == name and look.value is not None), default=-math.inf)


def _ended(name: str, looks: Sequence[Look]) -> bool:
    """Whether more time does not help: the training ended, returned nothing, or gained nothing in two looks."""
    own = [look for look in looks if look.name == name]
    if not own:
        return False
    values = [-math.inf if look.value is None else look.value for look in own]
    idle = len(values) > 2 and max(values[-2:]) <= max(values[:-2])
    return own[-1].ended or own[-1].value is None or idle


def next_blend(
    values: Mapping[tuple[str, ...], float],
    may_be_first: Collection[str],
    failed: Collection[tuple[str, ...]] = (),
    contenders: Sequence[Contender] = (),
) -> tuple[str, ...] | None:
    """The parts of the next blend to try; None where all promising ones were tried.

    `values`: the metric of each tried blend and single contender, by parts; `failed`: those that returned nothing.
    The order of parts counts: the first's candidates are all that a blend finds. First the best contender is tried with
    each other one behind it; then the best blend with a third; then the second best contender. Counting and trained
    methods alternate, best first: the former are cheap and complement the latter. Variants of a part's own method come
    last.
    """
    single = sorted((parts[0] for parts in values if len(parts) == 1), key=lambda name: -values[(name,)])
    firsts = [name for name in single if name in may_be_first][:_MOST_FIRSTS]
    known = {contender.name: contender for contender in contenders}
    done = {*values, *failed}
    for place, first in enumerate(firsts):
        for other in _behind((first,), single, known):
            if (first, other) not in done:
                return first, other
        pairs = [parts for parts in values if len(parts) == _MOST_PARTS - 1]
        best = max(pairs, key=lambda parts: values[parts], default=None)
        if best is None or values[best] <= values[(single[0],)]:
            continue
        if place == 0 or best[0] == first:
            for other in _behind(best, single, known):
                if (*best, other) not in done:
                    return *best, other
    return None


def _behind(parts: Sequence[str], single: Sequence[str], known: Mapping[str, Contender]) -> list[str]:
    """The contenders to try behind these parts, in order; `single`: all, best first."""
    methods = {known[name].method for name in parts if name in known} - {""}
    others = [name for name in single if name not in parts]
    kin = [name for name in others if name in known and known[name].method in methods]
    trained = [name for name in others if name not in kin and name in known and known[name].trains]
    counting = [name for name in others if name not in kin and name not in trained]
    in_turn = [name for pair in zip_longest(counting, trained) for name in pair if name is not None]
    return in_turn + kin


def within(answers: Costs, milliseconds: float | None, megabytes: float | None) -> bool:
    """Whether an answer is within both cost limits."""
    slow = milliseconds is not None and answers.milliseconds > milliseconds
    return not slow and (megabytes is None or answers.megabytes <= megabytes)


def best_within(
    candidates: Sequence[Candidate], milliseconds: float | None = None, megabytes: float | None = None
) -> Candidate | None:
    """The best candidate within both budgets, None without one; ties go to the first.

    A candidate with more parts has to exceed one with fewer by half a standard error of the paired difference.
    """
    allowed = [candidate for candidate in candidates if within(candidate, milliseconds, megabytes)]
    best: Candidate | None = None
    for count in sorted({len(candidate.parts) for candidate in allowed}):
        fewer = best
        above = (each for each in allowed if len(each.parts) == count and (not fewer or _clearly_above(each, fewer)))
        best = max(above, key=lambda each: each.value, default=fewer)
    return best


def why_lower(best: Candidate, before: Candidate) -> str:
    """Why a best candidate is below the one before it, in words; "" where it is not."""
    return "" if best.value >= before.value else f"{before.name} has {before.value:.4f}, too little more for its cost"


def _clearly_above(one: Candidate, other: Candidate) -> bool:
    difference = np.asarray(one.values, float) - np.asarray(other.values, float)
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return float(difference.mean()) > _CERTAINTY * error
