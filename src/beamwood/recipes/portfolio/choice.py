"""What a search for the best method does next, by what was measured so far and the seconds that are left.

Nothing here fits or measures. First everything that counts is looked at, once. What trains goes through rounds of
halves: each round gives its share of the time to those still standing, who go on from where they stopped, and the
better half goes on to the next. Source of the rounds: Jamieson and Talwalkar, "Non-stochastic Best Arm Identification
and Hyperparameter Optimization" (AISTATS 2016), successive halving.
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
    "within",
]

SHORTEST = 45.0
"""Seconds below which a look at a training on a large log says little."""

# Rows of a large log, and the part of `SHORTEST` that the smallest ones need: starts and validations take less there.
_LARGE, _LEAST = 1_000_000, 1 / 3

# Of what is left, no more goes to a method that counts.
_COUNTING = 0.08
# What had too little time gets so many times what it needs, if that is no more than this part of what is left.
_AMPLE, _MOST_OF_NEED = 1.5, 0.5
# Of the shortest look that says something, what is no look any more.
_TOO_SHORT = 0.5
# A blend is dearer to answer with than its first part: what it gains is to be this much of its standard error.
_CERTAINTY = 0.5
_MOST_PARTS, _MOST_FIRSTS = 3, 2


@dataclass(frozen=True, slots=True)
class Contender:
    """A method with its settings, by name; `trains`: it goes on where it stopped, else one look is all.

    `method`: that of others with other settings is the same one; where it is empty, none is.
    """

    name: str
    trains: bool = True
    method: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a contender: the metric, None where it brought nothing that may be chosen; `ended`: more time will
    bring no more; `needs`: the seconds that it would have needed to bring anything.
    """

    name: str
    value: float | None
    ended: bool = False
    needs: float | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """Whom to look at, and for how many seconds more."""

    name: str
    seconds: float


class Costs(Protocol):
    """What answers cost."""

    @property
    def milliseconds(self) -> float: ...
    @property
    def megabytes(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """What may be chosen: one contender or a blend of several, `parts` by name, the first bringing candidates.

    `values` float64[Q] of the validation users, the same for all; `milliseconds` and `megabytes` of an answer.
    """

    parts: tuple[str, ...]
    values: FloatArray
    milliseconds: float
    megabytes: float

    @property
    def name(self) -> str:
        """As a sum of methods is named."""
        return "+".join(self.parts)

    @property
    def value(self) -> float:
        """The mean."""
        return float(np.mean(self.values))


def halving_rounds(contenders: int) -> list[int]:
    """How many are looked at in each round: all, then the better half, rounded up, until one is left."""
    sizes = [contenders]
    while sizes[-1] > 1:
        sizes.append(math.ceil(sizes[-1] / 2))
    return sizes


def shortest(rows: int) -> float:
    """Seconds below which a look at a training says little on a log of so many rows."""
    return SHORTEST * min(1.0, max(_LEAST, math.sqrt(rows / _LARGE)))


def next_look(
    contenders: Sequence[Contender],
    looks: Sequence[Look],
    left: float,
    spent: float = 0.0,
    least: float | None = None,
) -> Next | None:
    """The next look; None where there is no time for one, or nothing left to look at.

    `left`: seconds that looks may still take; `spent`: those that looks at trainings took; `least`: those of a look
    that says something, None: `SHORTEST`; fewer methods are looked at rather than shorter. Contenders are in the order
    in which they are tried: where time is short, the last ones are not. A round's seconds that somebody did not need
    are the others'.
    """
    least = SHORTEST if least is None else least
    tried = {look.name for look in looks}
    for contender in contenders:
        # The first is looked at whatever the limit: there is always an answer.
        if not contender.trains and contender.name not in tried and (left > 0 or not tried):
            return Next(contender.name, max(_COUNTING * left, 1e-3))
    if left <= 0:
        return None
    trained = [contender.name for contender in contenders if contender.trains]
    for name in trained:
        needs = _asks_for(name, looks)
        if needs is not None and needs <= _MOST_OF_NEED * left:
            return Next(name, needs)
    started = sum(name in tried for name in trained)
    standing = trained[: max(started, _affordable(len(trained), left + spent, least))]
    step = _of_rounds(standing, looks, left)
    # Where looks took longer than they had, those that are left would be too short: a start takes its time each time.
    if step is None or step.seconds < _TOO_SHORT * least:
        step = _of_the_rest(trained, looks, left, least)
    return step


def _asks_for(name: str, looks: Sequence[Look]) -> float | None:
    """The seconds with which one that had too few is looked at once more."""
    own = [look for look in looks if look.name == name]
    return _AMPLE * own[0].needs if len(own) == 1 and own[0].needs is not None else None


def _affordable(most: int, seconds: float, least: float) -> int:
    """How many can be looked at in rounds whose first looks are not too short; one where there is time for that."""
    for count in range(most, 1, -1):
        if seconds / len(halving_rounds(count)) / count >= least:
            return count
    return min(most, int(seconds >= least))


def _of_rounds(standing: Sequence[str], looks: Sequence[Look], left: float) -> Next | None:
    """The first that still waits for its look of a round."""
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
    """The best that more time may help, or one not looked at yet; None where too little is left."""
    best = next((name for name in _best(trained, looks) if not _ended(name, looks)), None)
    new = [name for name in trained if _times(name, looks) == 0]
    if left < least or not (best or new):
        return None
    return Next(best, left) if best else Next(new[0], max(left / len(new), least))


def _times(name: str, looks: Sequence[Look]) -> int:
    return sum(look.name == name for look in looks)


def _best(names: Sequence[str], looks: Sequence[Look]) -> list[str]:
    """Those that brought something, best first; of equal ones the first."""
    values = {name: _value(name, looks) for name in names}
    found = [name for name in names if values[name] > -math.inf]
    return sorted(found, key=lambda name: -values[name])


def _value(name: str, looks: Sequence[Look]) -> float:
    """The best look's: what was better earlier is kept."""
    return max((look.value for look in looks if look.name == name and look.value is not None), default=-math.inf)


def _ended(name: str, looks: Sequence[Look]) -> bool:
    """Does more time bring no more: it said so, brought nothing, or gained nothing in two looks in a row?"""
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
    """The parts of the next blend to try; None where all that promise something were tried.

    `values`: the metric of what was tried, by its parts, single ones too; `failed`: those that brought nothing. The
    best one is tried with each other behind it; what came out best with a third; then the second best. Of the others
    come one that counts and one that trains in turn, best first: the former costs little and sees what the latter do
    not. Those of a part's own method come last.
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
    """Who may stand behind these parts, in the order in which they are tried; `single`, best first."""
    methods = {known[name].method for name in parts if name in known} - {""}
    others = [name for name in single if name not in parts]
    kin = [name for name in others if name in known and known[name].method in methods]
    trained = [name for name in others if name not in kin and name in known and known[name].trains]
    counting = [name for name in others if name not in kin and name not in trained]
    in_turn = [name for pair in zip_longest(counting, trained) for name in pair if name is not None]
    return in_turn + kin


def within(answers: Costs, milliseconds: float | None, megabytes: float | None) -> bool:
    """Is an answer within what it may cost?"""
    slow = milliseconds is not None and answers.milliseconds > milliseconds
    return not slow and (megabytes is None or answers.megabytes <= megabytes)


def best_within(
    candidates: Sequence[Candidate], milliseconds: float | None = None, megabytes: float | None = None
) -> Candidate | None:
    """The best that is within both budgets, None where none is; of equal ones the first.

    More parts have to be above fewer by half a standard error of the paired difference.
    """
    allowed = [candidate for candidate in candidates if within(candidate, milliseconds, megabytes)]
    best: Candidate | None = None
    for count in sorted({len(candidate.parts) for candidate in allowed}):
        other = max((each for each in allowed if len(each.parts) == count), key=lambda each: each.value)
        if best is None or _clearly_above(other, best):
            best = other
    return best


def _clearly_above(one: Candidate, other: Candidate) -> bool:
    difference = np.asarray(one.values, float) - np.asarray(other.values, float)
    error = float(difference.std(ddof=1)) / math.sqrt(len(difference)) if len(difference) > 1 else 0.0
    return float(difference.mean()) > _CERTAINTY * error
