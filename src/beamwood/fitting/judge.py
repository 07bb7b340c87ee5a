"""What validation users say of a training, on its way and at its end, and how much of a limit they may take."""

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
"""The seconds that what comes after a training takes, by a sample of its searcher and what is left."""

# Of what is left when a training starts, no more goes to one validation, or to a choice; but so many users have a say.
_SHARE, _FEWEST = 0.1, 64
# Numbers of users below this ratio are alike.
_ALIKE = 2
# Saving, with digests, on a slow disk; a checkpoint has the weights, the best ones, and two moments of each.
_BYTES_A_SECOND, _STATES = 1e8, 4


class TimedValidation:
    """The measure of a task's searcher, by all queries or as many as there is time for.

    `choice` and `later`: what is chosen and made after the training, for which time is kept.
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
        """By what a part of the queries takes with a sample of the task's searcher.

        `checkpoints`: some are saved. `before`: how many judged in an earlier part of the training; about as many
        judge again, so that what was measured holds.
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
            # With gradients, as it may be a training itself.
            with torch.enable_grad():
                finish += self.later(sample, budget)
        task.model.train(training)
        return Prices(making + price, finish, save, self.num)


def _priced(work: Callable[[int], Any], size: int, budget: Budget) -> tuple[float, int]:
    """The seconds of what there is time for, and how many queries these are."""
    if size == 0:
        return 0.0, 0
    whole, room = price_of(work, size, budget.clock), _SHARE * max(budget.left, 0.0)
    num = min(size, max(_FEWEST, int(size * room / max(whole, 1e-9))))
    return whole * num / size, num
