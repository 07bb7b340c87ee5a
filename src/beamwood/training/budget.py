"""What a fit may still take: one clock that starts, training and saving share, and what was left out for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from beamwood.errors import InputError, TimeLimitError

__all__ = ["Budget", "Clock", "price_of"]

Clock = Callable[[], float]
"""Seconds that never fall."""

# Rows that tell how long all take: a call has its own price, and each row.
_FEW, _SOME = 4, 32
# What a part says of the whole may be too much, by chance or other programs: so much of it is needed surely.
_SURELY = 0.6


class Budget:
    """The seconds of one fit, counted from when this was made; `limit` is infinite where none was set.

    `name`: whose they are, for messages. `most`: where a limit is too low for what is needed, it becomes as high as
    that, and no higher than this. `left_out` holds a line for each thing that there was no time for. `ahead`: the
    seconds that parts which no other estimate covers will take, as far as that is known. `refuses`: what does not fit
    is refused; a run that goes on never is.
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
        """A budget as it is, or one of so many seconds that begins here."""
        return limit if isinstance(limit, Budget) else cls(limit)

    @property
    def limited(self) -> bool:
        """Is there a limit?"""
        return math.isfinite(self.limit)

    @property
    def seconds(self) -> float:
        """What is gone, with what earlier parts of a resumed run took."""
        return self._before + self.clock() - self._began

    @property
    def left(self) -> float:
        """What is left; below 0 once it is overdrawn."""
        return self.limit - self.seconds

    def count(self, seconds: float) -> None:
        """Count what earlier parts of a resumed run took, unless more of them is counted already."""
        self._before = max(self._before, seconds)
        if self._whole is not None:
            self._whole[0].count(seconds)

    def share(self, part: float, name: str) -> Budget:
        """A budget from here on, of at most that part of the whole limit and of what is left."""
        seconds = max(min(part * self.limit, self.left), 1e-3) if self.limited else None
        share = Budget(seconds, clock=self.clock, name=name)
        share._whole = self, part
        return share

    def require(self, seconds: float = 0.0, *, likely: float = 0.0) -> None:
        """Raise `TimeLimitError` with the floor where fewer than so many seconds are left, and the limit is no lower
        than `most`; `likely`: those that the floor has besides, and that refuse nothing.
        """
        self._require(seconds + _SURELY * self.ahead, seconds + self.ahead + likely)

    def require_rest(self, done: float, total: float, began: float) -> None:
        """`require` what the rest of some work takes, by the time that `done` of its `total` parts took.

        `began` is when the work did, by `clock`. The estimate may be two thirds too high before something is refused.
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
        """Note what there was no time for."""
        self.left_out.append(line)
        if self._whole is not None:
            self._whole[0].leave_out(f"{self.name}: {line}")


def price_of(work: Callable[[int], Any], whole: int, clock: Clock) -> float:
    """The seconds that `work(whole)` takes, from what it takes with a few of the rows, each called twice.

    The first call of its kind is slower, and not counted.
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
