"""What a run under a time limit still has room for: each part is asked its price before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beamwood.training.budget import Budget

__all__ = ["Pace", "Prices", "Validator"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds, estimated: of a validation, of what comes after the last one, and of a checkpoint.

    `judges`: by how many queries a validation is, None: by all.
    """

    validation: float = 0.0
    finish: float = 0.0
    save: float = 0.0
    judges: int | None = None


@dataclass(frozen=True, slots=True)
class Validator:
    """What says how good the weights of a run are.

    `evaluate`: the metrics of the weights as they are now, by name. `prices(judges)`: what that takes, estimated, and
    what comes after it; `judges` as in `Prices`, of an earlier part of the run.
    """

    evaluate: Callable[[], Mapping[str, float]]
    prices: Callable[[int | None], Prices] = lambda _: Prices()


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

    def fraction(self, prepared: float) -> float:
        """The share of the training's time that is over, `prepared` seconds not being of it."""
        whole = self.budget.limit - prepared - self.reserve
        return min(1.0, (self.budget.seconds - prepared) / whole) if whole > 0 else 1.0
