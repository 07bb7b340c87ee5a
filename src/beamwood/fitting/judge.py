"""Validation during and after a training, and the share of a time limit that it may take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from beamwood.fitting.choose import Choice, Measure
from beamwood.training.budget import Budget, price_of
from beamwood.training.pace import Prices

if TYPE_CHECKING:
    from beamwood.fitting.run import SearchedTask

__all__ = ["Later", "TimedValidation"]

Later = Callable[[Any, Budget], float]
"""The seconds of a step after the training, from a sample searcher and the time left."""

# The share of the time left at the start that one validation, or a choice, may take, and the fewest users for it.
_SHARE, _FEWEST = 0.1, 64
# Numbers of users within this ratio count as equal.
_ALIKE = 2
# Bytes a second of saving with digests on a slow disk; a checkpoint has the weights, the best ones, and two moments of
# each.
_BYTES_A_SECOND, _STATES = 1e8, 4


class TimedValidation:
    """The validation of a task's searcher, on all queries or as many as fit the time limit.

    `choice` and `later`: steps after the training for which time is reserved.
    """

    def __init__(
        self, task: SearchedTask[Any], measure: Measure, choice: Choice | None = None, later: Later | None = None
    ) -> None:
        self.task, self.measure, self.choice, self.later = task, measure, choice, later
        self.num: int | None = None

    def __call__(self) -> dict[str, float]:
        return self.measure(self.task.searcher(), self.num)

    @torch.no_grad()
    def prices(self, budget: Budget, *, checkpoints: bool, before: int | None = None) -> Prices:
        """The prices of validation and later steps, measured with a sample of the task's searcher.

        `checkpoints`: some are saved. `before`: the number of queries in an earlier part of the training, which is kept
        approximately, so that its metrics stay comparable.
        """
        task = self.task
        sample, making = task.sample(budget.clock)
        training = task.model.training
        task.model.eval()
        size = len(self.measure)
        price, num = _priced(lambda num: self.measure(sample, num), size, budget)
        if before is not None and num and before <= size and before / _ALIKE < num < before * _ALIKE:
            price, num = price * before / num, before
        if num < size:
            self.num = num
            budget.leave_out(f"{num} of {size} validation users judge")
        held = sum(tensor.nbytes for tensor in task.model.state_dict().values())
        save = _STATES * held / _BYTES_A_SECOND if checkpoints else 0.0
        finish = making + held / _BYTES_A_SECOND
        budget.require(making + price + save + finish)
        if self.choice is not None:
            work = self.choice.work
            chosen, self.choice.num = _priced(lambda num: work(sample, num), self.choice.num, budget)
            finish += chosen
            budget.require(making + price + save + finish)
        if self.later is not None:
            # With gradients, as the later step may train.
            with torch.enable_grad():
                finish += self.later(sample, budget)
        task.model.train(training)
        return Prices(making + price, finish, save, self.num)


def _priced(work: Callable[[int], Any], size: int, budget: Budget) -> tuple[float, int]:
    """The measured seconds, and the number of queries that fit the time limit."""
    if size == 0:
        return 0.0, 0
    whole, room = price_of(work, size, budget.clock), _SHARE * max(budget.left, 0.0)
    num = min(size, max(_FEWEST, int(size * room / max(whole, 1e-9))))
    return whole * num / size, num
