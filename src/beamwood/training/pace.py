"""What a run under a time limit still has room for: each part is asked its price before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from beamwood.training.budget import Budget

__all__ = ["Pace", "Prices"]

# Of what is left, no more goes to updates of a tree: a new tree is worth what is trained on it.
_UPDATES_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds, estimated: of a validation, of what comes after the last one, and of a checkpoint.

    `judges`: by how many queries a validation is, None: by all.
    """

    validation: float = 0.0
    finish: float = 0.0
    save: float = 0.0
    judges: int | None = None


class Pace:
    """The prices of a run's parts in seconds, and what they leave room for.

    Estimates are replaced by what was measured, the longest so far.
    """

    def __init__(self, budget: Budget, prices: Prices) -> None:
        self.budget, self.finish, self.judges = budget, prices.finish, prices.judges
        self.validation, self.step, self.save = prices.validation, 0.0, prices.save
        self._saved = False

    @property
    def reserve(self) -> float:
        """For the last validation and what comes after it."""
        return self.validation + self.save + self.finish

    def check_floor(self) -> None:
        """Raise `TimeLimitError` where what is left cannot hold one validation and what comes after it."""
        self.budget.require(self.reserve)

    def saved(self, seconds: float) -> None:
        """A checkpoint took so long."""
        self.save, self._saved = max(self.save, seconds) if self._saved else seconds, True

    def validated(self, seconds: float, *, first: bool) -> None:
        """A validation took so long; the first tells better than its estimate."""
        self.validation = seconds if first else max(self.validation, seconds)

    def has_room_for_step(self) -> bool:
        """Is there time for one more step, and to validate and save what it makes?"""
        return self.step + self.reserve <= self.budget.left

    def has_room_for_validation(self) -> bool:
        """Is there time for a validation that is not the last one?"""
        return self.validation + self.step + self.reserve <= self.budget.left

    def num_updates(self, wanted: int, price: float) -> int:
        """How many of so many updates there is room for in what is left of the run."""
        room = _UPDATES_SHARE * (self.budget.left - self.reserve)
        return max(0, min(wanted, int(room / max(self._with_validations(price), 1e-9))))

    def has_room_for_update(self, price: float) -> bool:
        """Is there time for one, and for a step on what it makes?"""
        return self._with_validations(price) + self.step + self.reserve <= self.budget.left

    def _with_validations(self, price: float) -> float:
        """An update has a validation before it and one after, and a checkpoint."""
        return price + 2 * self.validation + self.save

    def for_update(self) -> Budget:
        """What an update may take until it has to give up."""
        if not self.budget.limited:
            return Budget(clock=self.budget.clock)
        return Budget(max(self.budget.left - self.reserve - self.validation, 1e-3), clock=self.budget.clock)

    def fraction(self, prepared: float) -> float:
        """The share of the training's time that is over, `prepared` seconds not being of it."""
        whole = self.budget.limit - prepared - self.reserve
        return min(1.0, (self.budget.seconds - prepared) / whole) if whole > 0 else 1.0
