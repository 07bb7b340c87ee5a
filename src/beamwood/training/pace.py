"""Whether the next part of a run still fits its time limit, by the estimated or measured seconds of each part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beamwood.training.budget import Budget

__all__ = ["Pace", "Estimates", "Validator"]


@dataclass(frozen=True, slots=True)
class Estimates:
    """Estimated seconds: of a `validation`, of the work after the last one (`finish`), and of a checkpoint (`save`).

    `num_queries`: the number of queries of a validation, None: all.
    """

    validation: float = 0.0
    finish: float = 0.0
    save: float = 0.0
    num_queries: int | None = None


@dataclass(frozen=True, slots=True)
class Validator:
    """The validation of a run's weights.

    `evaluate`: the metrics of the current weights, by name. `estimates(num_queries)`: the estimated seconds of that and
    of later work; `num_queries`: as in `Estimates`, of the earlier part of a resumed run.
    """

    evaluate: Callable[[], Mapping[str, float]]
    estimates: Callable[[int | None], Estimates] = lambda _: Estimates()


class Pace:
    """The seconds of a run's parts, and whether one more of each fits its budget.

    Estimates are replaced by measurements: the longest so far counts.
    """

    def __init__(self, budget: Budget, estimates: Estimates) -> None:
        self.budget, self.finish, self.num_queries = budget, estimates.finish, estimates.num_queries
        self.validation, self.step, self.save = estimates.validation, 0.0, estimates.save
        self._saved = False

    @property
    def reserve(self) -> float:
        """The seconds reserved for the last validation, the last checkpoint and later work."""
        return self.validation + self.save + self.finish

    def check_limit(self) -> None:
        """Raise `TimeLimitError` where the time left does not cover the reserve."""
        self.budget.require(self.reserve)

    def saved(self, seconds: float) -> None:
        """Record the seconds of a checkpoint."""
        self.save, self._saved = max(self.save, seconds) if self._saved else seconds, True

    def validated(self, seconds: float, *, first: bool) -> None:
        """Record the seconds of a validation; the first replaces the estimate."""
        self.validation = seconds if first else max(self.validation, seconds)

    def has_room_for_step(self) -> bool:
        """Whether one more step, its validation and saving still fit."""
        return self.step + self.reserve <= self.budget.left

    def has_room_for_validation(self) -> bool:
        """Whether a validation besides the last one still fits."""
        return self.validation + self.step + self.reserve <= self.budget.left

    def fraction(self, prepared: float) -> float:
        """The share of the training time that is used, without `prepared` seconds."""
        whole = self.budget.limit - prepared - self.reserve
        return min(1.0, (self.budget.seconds - prepared) / whole) if whole > 0 else 1.0
