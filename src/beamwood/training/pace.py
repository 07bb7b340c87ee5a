"""What a run under a time limit still has room for: each part is asked its price before it starts."""

from __future__ import annotations

from collections.abc import Callable

from beamwood.errors import InputError
from beamwood.training.budget import Budget

__all__ = ["Pace"]

# Of what is left, no more goes to updates of a tree: a new tree is worth what is trained on it.
_UPDATES_SHARE = 0.5


class Pace:
    """The prices of a run's parts in seconds, and what they leave room for.

    `finish(validation)`: what comes after the last validation, given the price of one: choosing of weights and saving.
    Prices grow to the longest so far; `validation` may be estimated before the first.
    """

    def __init__(
        self, budget: Budget, *, validation: float = 0.0, finish: Callable[[float], float] | None = None
    ) -> None:
        self.budget, self._finish = budget, finish or (lambda _: 0.0)
        self.validation, self.step, self.save = validation, 0.0, 0.0

    @property
    def reserve(self) -> float:
        """For the last validation and what comes after it."""
        return self.validation + self.finish

    @property
    def finish(self) -> float:
        """For what comes after the last validation."""
        return self._finish(self.validation) + self.save

    def validated(self, seconds: float, *, first: bool) -> None:
        """A validation took so long; the first tells better than its estimate."""
        self.validation = seconds if first else max(self.validation, seconds)

    def check_floor(self, method: str) -> None:
        """Raise `InputError` where what is left cannot hold one validation and what comes after it."""
        floor = self.budget.seconds + self.reserve
        if floor > self.budget.limit:
            raise InputError(
                f"time_limit={self.budget.limit:g} s is below {floor:.0f} s, what {method} needs here to start, "
                "validate once and save; raise it"
            )

    def has_room_for_step(self) -> bool:
        """Is there time for one more step, and to validate and save what it makes?"""
        return self.step + self.reserve <= self.budget.left

    def has_room_for_validation(self) -> bool:
        """Is there time for a validation that is not the last one?"""
        return self.validation + self.step + self.reserve <= self.budget.left

    def num_updates(self, wanted: int, price: float) -> int:
        """How many of so many updates there is room for, each with a validation before it and one after."""
        if not self.budget.limited:
            return wanted
        room = _UPDATES_SHARE * (self.budget.left - self.reserve)
        return max(0, min(wanted, int(room / max(price + 2 * self.validation, 1e-9))))

    def for_update(self) -> Budget:
        """What an update may take until it has to give up."""
        if not self.budget.limited:
            return Budget(clock=self.budget.clock)
        return Budget(max(self.budget.left - self.reserve - self.validation, 1e-3), clock=self.budget.clock)

    def fraction(self, prepared: float) -> float:
        """The share of the training's time that is over, `prepared` seconds not being of it."""
        whole = self.budget.limit - prepared - self.reserve
        return min(1.0, (self.budget.seconds - prepared) / whole) if whole > 0 else 1.0
