"""The validation of a training under a time limit: on fewer queries where all would take too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from beamwood.fitting.searched_task import SearchedTask
from beamwood.fitting.validation import Choice, Measure
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.training.pace import Estimates

__all__ = ["Later", "TimedValidation"]

Later = Callable[[Any, Budget], float]
"""Estimates the seconds of work after the training, given a sample searcher and the budget."""

# The share of the time left at the start that one validation, or a choice, may take, and the fewest queries for it.
_SHARE, _FEWEST = 0.1, 64
# A resumed run keeps its number of queries if the affordable number is within this ratio of it.
_SIMILAR = 2
# Bytes a second of saving with digests on a slow disk. A checkpoint holds the weights, the best ones, and two moments
# of each.
_BYTES_A_SECOND, _STATES = 1e8, 4


class TimedValidation:
    """The validation of a task's searcher, on all queries or as many as fit the time limit.

    `choice` and `later`: work after the training, for which time is reserved.
    """

    def __init__(
        self, task: SearchedTask[Any], measure: Measure, choice: Choice | None = None, later: Later | None = None
    ) -> None:
        self.task, self.measure, self.choice, self.later = task, measure, choice, later
        self.num: int | None = None

    def __call__(self) -> dict[str, float]:
        return self.measure(self.task.searcher(), self.num)

    @torch.no_grad()
    def estimates(self, budget: Budget, *, checkpoints: bool, before: int | None = None) -> Estimates:
        """The estimated seconds of validation and later work, from a sample of the task's searcher.

        `checkpoints`: whether any are saved. `before`: the number of queries in the earlier part of a resumed run. It
        is kept if about as many fit now, so that the metrics of both parts are comparable.
        """
        task = self.task
        sample, build_seconds = task.sample(budget.clock)
        training = task.model.training
        task.model.eval()
        size = len(self.measure)
        seconds, num = _affordable(lambda num: self.measure(sample, num), size, budget)
        if before is not None and num and before <= size and before / _SIMILAR < num < before * _SIMILAR:
            seconds, num = seconds * before / num, before
        if num < size:
            self.num = num
            budget.leave_out(f"validation uses {num} of {size} users")
        held = sum(tensor.nbytes for tensor in task.model.state_dict().values())
        save = _STATES * held / _BYTES_A_SECOND if checkpoints else 0.0
        finish = build_seconds + held / _BYTES_A_SECOND
        budget.require(build_seconds + seconds + save + finish)
        if self.choice is not None:
            choose, most = self.choice.choose, self.choice.num_queries
            choosing, self.choice.num_queries = _affordable(lambda num: choose(sample, num), most, budget)
            if self.choice.num_queries < most:
                budget.leave_out(f"after the training, weights are chosen on {self.choice.num_queries} of {most} users")
            finish += choosing
            budget.require(build_seconds + seconds + save + finish)
        if self.later is not None:
            # With gradients, as the later step may train.
            with torch.enable_grad():
                finish += self.later(sample, budget)
        task.model.train(training)
        return Estimates(build_seconds + seconds, finish, save, num if num < size or self.measure.is_cut else None)


def _affordable(work: Callable[[int], Any], size: int, budget: Budget) -> tuple[float, int]:
    """The estimated seconds of `work`, and the number of queries that fit the time limit."""
    if size == 0:
        return 0.0, 0
    whole = estimated_seconds(work, size, budget.clock)
    num = budget.affordable(size, whole, share=_SHARE, fewest=_FEWEST)
    return whole * num / size, num
