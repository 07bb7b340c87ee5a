"""The time limit of a fit: one clock shared by initialisation, training and saving, and a record of skipped work."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from beamwood.errors import InputError, TimeLimitError

__all__ = ["Budget", "Clock", "price_of"]

Clock = Callable[[], float]
"""A monotonic clock, in seconds."""

# Rows of the two timed calls: the price of a call, and of a row, follow from their difference.
_FEW, _SOME = 4, 32
# An extrapolation may be too high, by chance or other load: this share of it is certain.
_SURELY = 0.6


class Budget:
    """The seconds of one fit, counted from its creation; `limit` is infinite without one.

    `name`: of the fit, in messages. `most`: a limit below what is needed is raised to that, up to `most`. `left_out`
    lists the work skipped for lack of time. `ahead`: the seconds of later parts that no other estimate covers, as far
    as known. `refuses`: work that does not fit is refused, except in a resumed run.
    """

    def __init__(
        self,
        limit: float | None = None,
        *,
        clock: Clock = time.monotonic,
        name: str = "this training",
        most: float | None = None,
    ) -> None:
        if limit is not None and not limit > 0:
            raise InputError(f"time_limit={limit} is not above 0 seconds; leave it out for no limit")
        self.limit = math.inf if limit is None else float(limit)
        self.most = self.limit if most is None else max(most, self.limit)
        self.clock, self.name = clock, name
        self.left_out: list[str] = []
        self.ahead, self.refuses = 0.0, True
        self._began, self._before = clock(), 0.0
        self._whole: tuple[Budget, float] | None = None

    @classmethod
    def of(cls, limit: float | Budget | None) -> Budget:
        """The budget itself, or one of this many seconds that starts here."""
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
        """Count the seconds of earlier parts of a resumed run, unless more are counted already."""
        self._before = max(self._before, seconds)
        if self._whole is not None:
            self._whole[0].count(seconds)

    def share(self, part: float, name: str) -> Budget:
        """A budget from here on, of at most that part of the whole limit and of the rest."""
        seconds = max(min(part * self.limit, self.left), 1e-3) if self.limited else None
        share = Budget(seconds, clock=self.clock, name=name)
        share._whole = self, part
        return share

    def require(self, seconds: float = 0.0, *, likely: float = 0.0) -> None:
        """Raise `TimeLimitError` with the needed limit where fewer seconds are left, and the limit is not below `most`;
        `likely`: further seconds in that limit that alone refuse nothing.
        """
        self._require(seconds + _SURELY * self.ahead, seconds + self.ahead + likely)

    def require_rest(self, done: float, total: float, began: float) -> None:
        """`require` the time of the remaining work, extrapolated from the time of `done` of its `total` parts.

        `began`: when the work did, by `clock`. An estimate up to two thirds too high refuses nothing.
        """
        rest = (self.clock() - began) / done * (total - done)
        self._require(_SURELY * (rest + self.ahead), rest + self.ahead)

    def _require(self, surely: float, likely: float) -> None:
        if surely <= self.left or not self.refuses:
            return
        budget, floor = self, self.seconds + likely
        if self.seconds + surely <= self.most:
            self.limit = min(floor, self.most)
            return
        while budget._whole is not None:
            whole, part = budget._whole
            floor = max(floor / part, whole.seconds - budget.seconds + floor)
            budget = whole
        raise TimeLimitError(
            f"time_limit={budget.limit:g} s is below {math.ceil(floor)} s, what {self.name} needs here; raise it",
            floor,
        )

    def leave_out(self, line: str) -> None:
        """Record skipped work."""
        self.left_out.append(line)
        if self._whole is not None:
            self._whole[0].leave_out(f"{self.name}: {line}")


def price_of(work: Callable[[int], Any], whole: int, clock: Clock) -> float:
    """The seconds of `work(whole)`, extrapolated from two calls with a few rows each.

    A first call, which is slower, is not counted.
    """
    few, some = min(_FEW, whole), min(_SOME, whole)
    for count in (few, some):
        work(count)
    times = [clock()]
    for count in (few, some):
        work(count)
        times.append(clock())
    at_once, more = times[1] - times[0], times[2] - times[1]
    return more if some == whole else more + max(more - at_once, 0.0) * (whole - some) / (some - few)
