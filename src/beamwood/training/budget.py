"""The time limit of a fit, shared by all of its parts, with a record of the work skipped for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from beamwood.errors import InputError, TimeLimitError

__all__ = ["Budget", "Clock", "estimated_seconds"]

Clock = Callable[[], float]
"""A monotonic clock, in seconds."""

# Rows of the two timed calls; their difference separates the cost of a row from the fixed cost of a call.
_FEW, _SOME = 4, 32
# An extrapolation may be too high, by chance or because of other load; at least this share of it is taken as certain.
_CERTAIN = 0.6


class Budget:
    """The time limit of one fit in seconds, counted from its creation; `limit` is infinite without one.

    `name`: of the fit, in messages. `max_limit`: a `limit` that is too short is raised as far as needed, up to this.
    `left_out`: notes on work skipped for lack of time. `reserved`: estimated seconds of later work, added to each
    requirement. `refuses`: whether work that does not fit raises an error; it does not in a resumed run, nor in a share
    that begins after one.
    """

    def __init__(
        self,
        limit: float | None = None,
        *,
        clock: Clock = time.monotonic,
        name: str = "this training",
        max_limit: float | None = None,
    ) -> None:
        if limit is not None and not limit > 0:
            raise InputError(f"time_limit={limit} is not above 0 seconds; leave it out for no limit")
        self.limit = math.inf if limit is None else float(limit)
        self.max_limit = self.limit if max_limit is None else max(max_limit, self.limit)
        self.clock, self.name = clock, name
        self.left_out: list[str] = []
        self.reserved, self.refuses = 0.0, True
        self._began, self._counted = clock(), 0.0
        self._shares: list[Budget] = []
        self._whole: _Whole | None = None

    @classmethod
    def of(cls, limit: float | Budget | None) -> Budget:
        """A given budget unchanged, or a new one with this limit that starts now."""
        return limit if isinstance(limit, Budget) else cls(limit)

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return math.isfinite(self.limit)

    @property
    def seconds(self) -> float:
        """The seconds used, including earlier parts of a resumed run."""
        return self._before + self.clock() - self._began

    @property
    def left(self) -> float:
        """The seconds left; negative once overdrawn."""
        return self.limit - self.seconds

    def count(self, seconds: float) -> None:
        """Add the seconds of the earlier parts of a resumed run, which include those that its shares count.

        Of several calls the largest value counts. Shares follow each other, so without a call theirs are added up.
        """
        self._counted = max(self._counted, seconds)

    def share(self, part: float, name: str) -> Budget:
        """A budget that starts now, with the fraction `part` of this limit, or what is left if that is less."""
        return self._share(min(part * self.limit, self.left), part, name, of_rest=False)

    def share_of_rest(self, part: float, name: str) -> Budget:
        """A budget that starts now, with the fraction `part` of the time left."""
        return self._share(part * self.left, part, name, of_rest=True)

    @contextmanager
    def reserving(self, seconds: float) -> Iterator[None]:
        """A context in which these estimated seconds of later work are `reserved` too."""
        before = self.reserved
        self.reserved += seconds
        try:
            yield
        finally:
            self.reserved = before

    def require(self, seconds: float = 0.0, *, likely: float = 0.0) -> None:
        """Raise `TimeLimitError`, which states the needed limit, unless `seconds` of further work fit.

        `likely`: seconds that will probably be needed too; they count in the stated limit only.
        """
        self._require(seconds + _CERTAIN * self.reserved, seconds + self.reserved + likely)

    def require_rest(self, done: float, total: float, began: float) -> None:
        """`require` the time of the remaining work, extrapolated from `done` of its `total` parts since `began`.

        `began`: a time of `clock`. An estimate up to two thirds too high refuses nothing.
        """
        rest = (self.clock() - began) / done * (total - done)
        self._require(_CERTAIN * (rest + self.reserved), rest + self.reserved)

    def affordable(self, total: int, seconds: float, *, share: float, fewest: int = 0) -> int:
        """How many of `total` equal parts, which take `seconds` together, fit that share of the time left.

        At least `fewest`, as far as there are that many; all without a limit.
        """
        if not self.limited:
            return total
        room = share * max(self.left, 0.0)
        return min(total, max(fewest, int(total * room / max(seconds, 1e-9))))

    def _require(self, certain: float, likely: float) -> None:
        if certain <= self.left or not self.refuses:
            return
        budget, floor = self, self.seconds + likely
        if self.seconds + certain <= self.max_limit:
            self.limit = min(floor, self.max_limit)
            return
        while (whole := budget._whole) is not None:
            at_start = whole.budget.seconds - budget.seconds
            floor = max((at_start if whole.of_rest else 0.0) + floor / whole.part, at_start + floor)
            budget = whole.budget
        raise TimeLimitError(
            f"time_limit={budget.limit:g} s is below {math.ceil(floor)} s, what {self.name} needs here; raise it",
            floor,
        )

    def leave_out(self, line: str) -> None:
        """Record skipped work, here and in the budget that this one is a share of."""
        self.left_out.append(line)
        if self._whole is not None:
            self._whole.budget.leave_out(f"{self.name}: {line}")

    def notes(self) -> dict[str, list[str]]:
        """`left_out` for the metadata of a fit; nothing where no work was skipped."""
        return {"left_out": list(self.left_out)} if self.left_out else {}

    @property
    def _before(self) -> float:
        """The seconds of the earlier parts of a resumed run."""
        return max(self._counted, sum(share._before for share in self._shares))

    def _share(self, seconds: float, part: float, name: str, *, of_rest: bool) -> Budget:
        share = Budget(max(seconds, 1e-3) if self.limited else None, clock=self.clock, name=name)
        share.refuses = self.refuses and all(each.refuses for each in self._shares)
        share._whole = _Whole(self, part, of_rest)
        self._shares.append(share)
        return share


class _Whole(NamedTuple):
    """The budget that one is a share of, and which `part` of its limit, or of the time that it had left."""

    budget: Budget
    part: float
    of_rest: bool


def estimated_seconds(work: Callable[[int], Any], whole: int, clock: Clock) -> float:
    """The estimated seconds of `work(whole)`, extrapolated from two calls with a few rows each."""
    few, some = min(_FEW, whole), min(_SOME, whole)
    # The first call of each size is slower, and so is not timed.
    for count in (few, some):
        work(count)
    times = [clock()]
    for count in (few, some):
        work(count)
        times.append(clock())
    of_few, of_some = times[1] - times[0], times[2] - times[1]
    return of_some if some == whole else of_some + max(of_some - of_few, 0.0) * (whole - some) / (some - few)
