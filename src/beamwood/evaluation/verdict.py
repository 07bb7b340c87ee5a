"""Which method is best, by how much, and whether so many users are enough to say so.

Shape legend: Q queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from beamwood.evaluation.results import VIEWS, PerQuery
from beamwood.evaluation.significance import (
    ROUNDING,
    PairedComparison,
    paired_comparisons,
    paired_difference,
    signed_rank_sum,
)
from beamwood.types import FloatArray

__all__ = ["Rival", "Verdict", "verdicts_in_words", "judge", "judge_both", "users_to_settle"]

LEVEL = 0.05
POWER = 0.8


@dataclass(frozen=True, slots=True)
class Rival:
    """The winner against one other: mean of winner - rival, its interval, and what the users say of it.

    `p`: the largest of all tests, adjusted after Holm; 1 where ranks favour the rival, which speaks against the winner.
    `certain`: p is below 0.05. `needed`: about how many users would settle it, None where no number would, and where it
    is uncertain though there are as many: the tests disagree. `better`, `equal`, `worse`: shares of users for whom the
    winner is so.
    """

    name: str
    difference: float
    low: float
    high: float
    p: float
    certain: bool
    needed: int | None
    better: float
    equal: float
    worse: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one view says: the best method by its mean, the others best first; nobody wins where nothing was found.

    `simplest` is the name of the simplest method of all, the winner perhaps; `on_tail`: labels are rare items alone.
    """

    view: str
    metric: str
    users: int
    winner: str | None
    value: float
    simplest: str
    rivals: tuple[Rival, ...]
    tests: tuple[PairedComparison, ...]
    on_tail: bool = False

    @property
    def next(self) -> Rival:
        """The best of the others."""
        return self.rivals[0]

    def against(self, name: str) -> Rival | None:
        """The winner against this one, None where it is the winner."""
        return next((rival for rival in self.rivals if rival.name == name), None)

    @property
    def certain(self) -> bool:
        """Is the winner certainly above every other?"""
        return self.winner is not None and self.uncertain is None

    @property
    def uncertain(self) -> Rival | None:
        """The best of those that the winner is not certainly above; a lower mean may vary more."""
        return next((rival for rival in self.rivals if not rival.certain), None)

    @property
    def chosen(self) -> str | None:
        """What to use: the winner, or the simplest where nobody is certainly above it."""
        simplest = self.against(self.simplest)
        return self.winner if simplest is None or simplest.certain else self.simplest

    def sentences(self) -> list[str]:
        """The verdict in plain words."""
        seen, places = VIEWS[self.view], self.metric.partition("@")[2]
        if self.winner is None and self.on_tail:
            return [
                f"No method finds the tail with {seen}: of the {self.users:,} test users with a label there none has "
                f"one in the first {places}."
            ]
        if self.winner is None:
            return [
                f"Nothing was learned: with {seen}, no method found an item of any of the {self.users:,} test users "
                f"in its first {places}."
            ]
        is_best = "is best" if self.certain else "leads"
        lines = [f"{self.winner} {is_best} with {seen}: {self.metric} {self.value:.4f}."]
        is_both = self.next.name == self.simplest
        lines += self._about(self.next, ", the next and the simplest" if is_both else ", the next")
        if self.uncertain is not None and self.uncertain.name not in (self.next.name, self.simplest):
            lines += self._about(self.uncertain, "")
        if is_both:
            return [*lines, *self._advice()]
        simplest = self.against(self.simplest)
        if simplest is None:
            return [*lines, "It is the simplest method here, too."]
        return [*lines, *self._about(simplest, ", the simplest"), *self._advice()]

    def _about(self, rival: Rival, what: str) -> list[str]:
        """How far the winner is above a rival, and whether that is certain."""
        line = f"It is {rival.difference:.4f} above {rival.name}{what}"
        if rival.certain:
            return [f"{line}, and {self.users:,} users make that certain."]
        if rival.difference == 0:
            return [f"{line}: they are level."]
        if rival.needed is None:
            return [f"{line}; {self.users:,} users do not make that certain, as the tests disagree."]
        return [f"{line}; {self.users:,} users do not make that certain.", f"About {rival.needed:,} would settle it."]

    def _advice(self) -> list[str]:
        """What to do where the winner may be none."""
        if self.chosen == self.winner:
            return []
        return [f"Use {self.chosen} until then: it is simpler."]

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON can hold it."""
        own = asdict(self)
        del own["tests"]
        return own | {"certain": self.certain, "chosen": self.chosen, "words": " ".join(self.sentences())}


def judge_both(
    results: Mapping[str, Mapping[str, PerQuery]], metric: str, simplest: str, *, on_tail: bool = False
) -> dict[str, Verdict]:
    """`judge` of both views; `results` by method, then view; `on_tail`: the labels are those of rare items."""
    values = {view: {name: views[view].values[metric] for name, views in results.items()} for view in VIEWS}
    return {view: replace(judge(values[view], view, metric, simplest), on_tail=on_tail) for view in VIEWS}


def judge(values: Mapping[str, FloatArray], view: str, metric: str, simplest: str) -> Verdict:
    """The verdict on float[Q] values by method, at least two; of equal means the simplest wins, else the first."""
    means = {name: float(np.mean(column)) for name, column in values.items()}
    users = len(next(iter(values.values())))
    best = max(means.values()) - ROUNDING
    winner = max(means, key=lambda name: (means[name] >= best, name == simplest))
    tests = tuple(paired_comparisons(values, winner, np.random.default_rng(0)))
    rivals = [_against(values, test, len(tests)) for test in tests]
    rivals.sort(key=lambda rival: rival.difference)
    found = means[winner] > 0
    return Verdict(
        view, metric, users, winner if found else None, means[winner], simplest, tuple(rivals), tests if found else ()
    )


def _against(values: Mapping[str, FloatArray], test: PairedComparison, num_rivals: int) -> Rival:
    difference = paired_difference(values[test.baseline], values[test.rival])
    mean = test.difference.mean
    p = 1.0 if signed_rank_sum(difference) < 0 else max(test.adjusted.values())
    needed = users_to_settle(difference, level=LEVEL / num_rivals)
    if p >= LEVEL and needed is not None and needed <= len(difference):
        needed = None
    return Rival(
        name=test.rival,
        difference=0.0 if abs(mean) <= ROUNDING else mean,
        low=test.difference.low,
        high=test.difference.high,
        p=p,
        certain=p < LEVEL,
        needed=needed,
        better=float((difference > 0).mean()),
        equal=float((difference == 0).mean()),
        worse=float((difference < 0).mean()),
    )


def users_to_settle(difference: FloatArray, *, level: float = LEVEL) -> int | None:
    """How many users a paired test needs to find a mean difference as large as that of float[Q] differences.

    n = ((z_(1 - level / 2) + z_power) s / |d|)^2, to two significant digits; None for a mean of 0.
    Source: the normal approximation of a paired test's power.
    """
    mean = abs(float(np.mean(difference)))
    if mean <= ROUNDING:
        return None
    spread = float(np.std(difference, ddof=1))
    reach = float(special.ndtri(1 - level / 2) + special.ndtri(POWER))
    exact = (reach * spread / mean) ** 2
    unit = int(10 ** max(0, math.floor(math.log10(max(exact, 1.0))) - 1))
    return max(2, math.ceil(exact / unit) * unit)


def verdicts_in_words(verdicts: Mapping[str, Verdict]) -> str:
    """All views in one paragraph."""
    return " ".join(sentence for verdict in verdicts.values() for sentence in verdict.sentences())
