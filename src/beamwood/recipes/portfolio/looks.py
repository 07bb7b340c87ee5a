"""The looks of a search: short fits of its members, which later looks continue."""

from __future__ import annotations

from typing import Any

from beamwood.data.split import Split
from beamwood.errors import TimeLimitError, why_failed
from beamwood.fitting.fitted import training_seconds
from beamwood.recipes.portfolio.choice import Look, next_look, shortest
from beamwood.recipes.portfolio.members import Member
from beamwood.recipes.portfolio.search_folder import Trial
from beamwood.recipes.portfolio.share import Share
from beamwood.recipes.portfolio.trials import Trials
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget

__all__ = ["Looks"]

# The share of the limit, and the most seconds, for blends and the test.
_AFTER, _MOST_AFTER = 0.2, 300.0
# The share of a look that its evaluation may take.
_MOST_JUDGING = 0.3
# Reasons of a stop after which more time does not help.
_ENDED = ("patience", "max_steps", "max_epochs")


class Looks:
    """Fits the members of `trials` on `split` by turns, as `choice.next_look` says, and adds each look to the trials.

    `share`: of the CPU that this process gets.
    """

    def __init__(self, trials: Trials, split: Split, share: Share) -> None:
        self._trials, self._split, self._share = trials, split, share
        self._folder, self._budget = trials.folder, trials.budget

    def run(self) -> None:
        """Look while there is time for a useful look."""
        trials = self._trials
        while True:
            spent = sum(each.seconds for each in trials.singles if trials.members[each.name].contender.trains)
            left = self._left
            step = next_look(trials.contenders, self._so_far(), left, spent, self._least(left, spent))
            if step is None:
                return
            if left <= 0:
                trials.reports.say(f"the limit leaves no time, so {step.name} alone is fitted, beyond it")
            self._look(trials.members[step.name], step.seconds)

    @property
    def _left(self) -> float:
        """The seconds left, without those reserved for blends and the test."""
        return self._budget.left - min(_AFTER * self._budget.limit, _MOST_AFTER)

    def _so_far(self) -> list[Look]:
        """The looks so far; a result over a budget counts as nothing."""
        return [
            Look(each.name, each.value if self._trials.within(each) else None, each.ended, each.needs)
            for each in self._trials.singles
        ]

    def _least(self, left: float, spent: float) -> float:
        """The shortest useful look in seconds; the first one may be as short as the time left.

        With other processes running it is longer, as starting and evaluating take longer.
        """
        least = shortest(self._trials.outline.rows)
        shared = least / self._share.now()
        return shared if spent else min(shared, max(least, left))

    def _look(self, member: Member, seconds: float) -> None:
        """Fit or continue a member, and evaluate it."""
        began, name = self._budget.clock(), member.name
        if member.contender.trains:
            self._trials.reports.say(f"{name}: {seconds:.0f} s{' more' if self._folder.kept(name) else ''}")
        trial = Trial(name, (name,))
        try:
            fitted = self._fitted(member, seconds)
        except Exception as error:
            # A full disk is not the member's failure; it may still be the best.
            trial.why = why_failed(error)
            if trial.why is None:
                raise
            if isinstance(error, TimeLimitError) and error.min_seconds is not None:
                trial.needs = error.min_seconds
                trial.why = f"its look had {seconds:.0f} s and needs {error.min_seconds:.0f}; a longer limit has more"
            trial.ended = True
            self._trials.add(trial, began)
        else:
            self._judge(trial, fitted, began)

    def _fitted(self, member: Member, seconds: float) -> Retriever:
        method, wanted, singles = member.load(), self._trials.wanted, self._trials.singles
        options: dict[str, Any] = {"seed": wanted.seed, "progress": False}
        limit = seconds
        if method.needs.steps:
            from beamwood.training.run_folder import RunFolder

            limit += max((each.trained for each in singles if each.name == member.name), default=0.0)
            # An evaluation of a new member may take longer than those of others.
            known = self._trials.evaluation_seconds(member.name)
            longest = max((each.evaluation_seconds for each in singles), default=0.0)
            limit -= min(known or 2 * longest, _MOST_JUDGING * seconds)
            run = RunFolder(self._folder.run_of(member.name))
            options |= {"run": run, "resume": run.path.exists()}
        # If initialisation exceeds the look, the limit is raised by the seconds of an evaluation, lest it be lost.
        most = limit + max(self._left - seconds, 0.0)
        options["time_limit"] = Budget(limit, clock=self._budget.clock, name=member.name, max_limit=most)
        return method.fitted(self._split, member.settings_for(wanted.monitor), **options)

    def _judge(self, trial: Trial, fitted: Retriever, began: float) -> None:
        """Evaluate on validation users; earlier weights are kept if better."""
        training = fitted.metadata.get("training", {})
        trial.ended, trial.trained = training.get("stopped") in _ENDED, training_seconds(fitted) or 0.0
        before = self._folder.kept(trial.name)
        if before is not None and self._is_as(before, fitted):
            trial.value, trial.evaluation_seconds = before.value, before.evaluation_seconds
            self._trials.add_same(trial, before, began)
        else:
            values = self._trials.measure(trial, fitted.searcher)
            self._trials.add_better(trial, began, values, fitted.searcher, fitted)

    def _is_as(self, before: Trial, fitted: Retriever) -> bool:
        """Whether the model equals that of an earlier look, which was already evaluated."""
        keys = ("best_step", "seen_weight", "light_head", "tree_updates")
        one, other = (each.metadata.get("training", {}) for each in (fitted, self._folder.model(*before.folders)))
        return "best_step" in one and all(one.get(key) == other.get(key) for key in keys)
