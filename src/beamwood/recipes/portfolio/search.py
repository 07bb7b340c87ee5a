"""The search for the best model of a log: short fits ("looks") of many methods, blends of them, and the choice.

Source of the blends: Caruana et al., "Ensemble Selection from Libraries of Models" (ICML 2004), greedy, of few parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError, NotSavedError, TimeLimitError
from beamwood.evaluation.protocol import evaluate_both
from beamwood.extras import is_installed
from beamwood.fitting.fitted import notes_of_fit, training_seconds
from beamwood.fitting.stages import two_stage
from beamwood.fitting.start_cache import caching
from beamwood.recipes.portfolio.choice import (
    Candidate,
    Costs,
    Look,
    Next,
    best_within,
    next_blend,
    next_look,
    shortest,
    why_lower,
    within,
)
from beamwood.recipes.portfolio.first_part import FirstPart
from beamwood.recipes.portfolio.members import Member, members_of
from beamwood.recipes.portfolio.outline import Outline
from beamwood.recipes.portfolio.search_folder import SearchFolder, Trial
from beamwood.recipes.portfolio.share import Share
from beamwood.recipes.portfolio.table import as_rows, figures_of
from beamwood.recipes.portfolio.validation import Validation, num_validation_users, without_test_users
from beamwood.recipes.portfolio.wanted import Reports, Wanted
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget, Clock
from beamwood.training.interrupt import SAVING, Interrupted
from beamwood.types import FloatArray, Searcher

__all__ = ["PortfolioResult", "Search"]

# The share of the limit, and the most seconds, for blends and the test; the share for the test alone; where that takes
# longer, fewer test users are evaluated, but at least this many.
_AFTER, _MOST_AFTER, _READING, _FEWEST = 0.2, 300.0, 0.1, 200
# The cost of a blend relative to evaluating its first part: to choose its weights, and to be evaluated; then both where
# the first's candidates are cached.
_CHOSEN, _EVALUATED, _CHOSEN_AGAIN, _EVALUATED_AGAIN = 2.25, 1.5, 0.5, 0.25
# The share of a look that its evaluation may take.
_MOST_JUDGING = 0.3
# Reasons of a stop after which more time does not help.
_ENDED = ("patience", "max_steps", "max_epochs")


@dataclass(frozen=True, slots=True)
class PortfolioResult:
    """The best retriever, and the table of all measurements; `interrupted`: the search was not completed."""

    retriever: Retriever
    document: dict[str, Any]
    interrupted: bool = False


class Search:
    """A search for what is `wanted`, which stores its results in a locked `folder`.

    `members`: to try, None: those that suit the log. `budget`: of the limit, where it began earlier, or has its own
    clock. `processor`: the CPU seconds of this process, None where no other process runs.
    """

    def __init__(
        self,
        split: Split,
        wanted: Wanted,
        folder: SearchFolder,
        *,
        members: Sequence[Member] | None = None,
        budget: Budget | None = None,
        processor: Clock | None = None,
        reports: Reports = Reports(),
    ) -> None:
        self.whole, self.split = split, without_test_users(split)
        self.wanted, self.folder, self.reports = wanted, folder, reports
        self.outline, self.trains = Outline.of(split), is_installed("train")
        listed = members_of(self.outline, trains=self.trains) if members is None else members
        self.members = {member.name: member for member in listed}
        folder.validation_users = folder.validation_users or num_validation_users(wanted.time_limit)
        self.validation = Validation(self.split, wanted.monitor, folder.validation_users, seed=wanted.seed)
        self.budget = budget or Budget(wanted.time_limit, name="the search")
        self.budget.count(folder.seconds)
        self.best: Candidate | None = None
        self._pace = Share(self.budget.clock, processor)
        self._first: FirstPart | None = None

    def run(self) -> PortfolioResult:
        """Look, blend, choose, and evaluate the choice on the test users; if interrupted, return the best so far
        untested.

        Errors: `Interrupted` where nothing was found yet; `InputError` where nothing is within the budgets;
        `NotSavedError` where the disk is full; the state of the search stays valid.
        """
        self.best = self._choose()
        try:
            with caching():
                self._look_at_all()
            self._blend()
            return self._found(read=True)
        except NotSavedError as error:
            raise NotSavedError(f"{error}; the same command with --resume goes on with what was found") from error
        except (KeyboardInterrupt, Interrupted):
            SAVING.set()
            self.folder.write(self.budget.seconds)
            if self.best is None:
                raise Interrupted("interrupted before anything was found; run the same command with --resume") from None
            return replace(self._found(read=False), interrupted=True)

    def _look_at_all(self) -> None:
        contenders = [member.contender for member in self.members.values()]
        while True:
            spent = sum(each.seconds for each in self._singles if self.members[each.name].contender.trains)
            left = self.budget.left - self._after
            step = next_look(contenders, self._looks(), left, spent, self._least(left, spent))
            if step is None:
                return
            self._look(self.members[step.name], step)

    def _least(self, left: float, spent: float) -> float:
        """The shortest useful look in seconds; the first one may be as short as the time left.

        With other processes running it is longer, as starting and evaluating take longer.
        """
        least = shortest(self.outline.rows)
        shared = least / self._pace.now()
        return shared if spent else min(shared, max(least, left))

    @property
    def _after(self) -> float:
        """The seconds reserved for blends and the test."""
        return min(_AFTER * self.budget.limit, _MOST_AFTER)

    @property
    def _singles(self) -> list[Trial]:
        return [each for each in self.folder.trials if len(each.parts) == 1 and each.name in self.members]

    def _looks(self) -> list[Look]:
        """The looks so far; a result over a budget counts as nothing."""
        return [
            Look(each.name, each.value if self._within(each) else None, each.ended, each.needs)
            for each in self._singles
        ]

    def _evaluation_seconds(self, name: str) -> float:
        """The most seconds that its evaluation took; 0 before any."""
        return max((each.evaluation_seconds for each in self.folder.trials if each.name == name), default=0.0)

    def _within(self, answers: Costs) -> bool:
        return within(answers, self.wanted.budget_ms, self.wanted.budget_mb)

    def _look(self, member: Member, step: Next) -> None:
        """Fit or continue a member, and evaluate it."""
        began = self.budget.clock()
        if member.contender.trains:
            self.reports.say(f"{member.name}: {step.seconds:.0f} s{' more' if self.folder.kept(member.name) else ''}")
        trial = Trial(member.name, (member.name,))
        try:
            fitted = self._fitted(member, step.seconds)
        except NotSavedError:
            # A full disk is not the member's failure; it may still be the best.
            raise
        except (InputError, MemoryError) as error:
            trial.why = str(error) or "there is too little memory"
            if isinstance(error, TimeLimitError) and error.min_seconds is not None:
                trial.needs = error.min_seconds
                trial.why = (
                    f"its look had {step.seconds:.0f} s and needs {error.min_seconds:.0f}; a longer limit has more"
                )
            trial.ended = True
            self._add(trial, began)
        else:
            self._judge(trial, fitted, began)

    def _fitted(self, member: Member, seconds: float) -> Retriever:
        method, wanted = member.load(), self.wanted
        options: dict[str, Any] = {"seed": wanted.seed, "progress": False}
        limit = seconds
        if method.needs.steps:
            from beamwood.training.run_folder import RunFolder

            limit += max((each.trained for each in self._singles if each.name == member.name), default=0.0)
            # An evaluation of a new member may take longer than those of others.
            known = self._evaluation_seconds(member.name)
            longest = max((each.evaluation_seconds for each in self._singles), default=0.0)
            limit -= min(known or 2 * longest, _MOST_JUDGING * seconds)
            run = RunFolder(self.folder.run_of(member.name))
            options |= {"run": run, "resume": run.path.exists()}
        # If initialisation exceeds the look, the limit is raised by the seconds of an evaluation, lest it be lost.
        most = limit + max(self.budget.left - self._after - seconds, 0.0)
        options["time_limit"] = Budget(limit, clock=self.budget.clock, name=member.name, max_limit=most)
        return method.fitted(self.split, member.settings_for(wanted.monitor), **options)

    def _judge(self, trial: Trial, fitted: Retriever, began: float) -> None:
        """Evaluate on validation users; earlier weights are kept if better."""
        training = fitted.metadata.get("training", {})
        trial.ended, trial.trained = training.get("stopped") in _ENDED, training_seconds(fitted)
        known, before = self.folder.values.get(trial.name), self.folder.kept(trial.name)
        if before is not None and self._is_as_before(trial.name, fitted):
            trial.value, trial.evaluation_seconds = before.value, before.evaluation_seconds
        else:
            values = self._values(trial, fitted.searcher)
            if before is None or known is None or values.mean() > known.mean():
                self._note(trial, fitted, values)
                self._add(trial, began, values, fitted)
                return
            trial.value = float(values.mean())
        trial.folder, trial.milliseconds, trial.megabytes = before.folder, before.milliseconds, before.megabytes
        self._add(trial, began)

    def _is_as_before(self, name: str, fitted: Retriever) -> bool:
        """Whether the model equals that of an earlier look, which was already evaluated."""
        keys = ("best_step", "seen_weight", "light_head", "tree_updates")
        one, other = (each.metadata.get("training", {}) for each in (fitted, self.folder.fitted(name)))
        return "best_step" in one and all(one.get(key) == other.get(key) for key in keys)

    def _values(self, trial: Trial, searcher: Searcher) -> FloatArray:
        """The metric of each validation user, recording the time."""
        began = self.budget.clock()
        values = self.validation.values(searcher)
        trial.evaluation_seconds = round(self.budget.clock() - began, 3)
        return values

    def _note(self, trial: Trial, fitted: Retriever, values: FloatArray) -> None:
        """Record the value and the cost of answers."""
        cost = self.validation.cost(fitted.searcher)
        trial.value = float(values.mean())
        trial.milliseconds, trial.megabytes = cost.milliseconds, cost.megabytes

    def _add(
        self, trial: Trial, began: float, values: FloatArray | None = None, fitted: Retriever | None = None
    ) -> None:
        """Store a trial, and report the best model where it changed."""
        trial.seconds = round(self.budget.clock() - began, 3)
        self.folder.add(trial, self.budget.seconds, values, fitted)
        if trial.value is None:
            self.reports.say(f"{trial.name}: {trial.why}")
        else:
            told = f"{trial.name}: {self.validation.named} {trial.value:.4f} after {trial.seconds:.0f} s"
            self.reports.say("; ".join((told, *(() if fitted is None else notes_of_fit(fitted)))))
        best, before = self._choose(), self.best
        if best is not None and (before is None or (best.name, best.value) != (before.name, before.value)):
            why = "" if before is None else why_lower(best, before, self.candidates())
            self.best = best
            self.reports.better(self._with_table(self.document()))
            self.reports.say(f"best so far: {best.name}{why and f' ({why})'}")

    def _blend(self) -> None:
        """Try blends while there is time for one more and for the test."""
        contenders = [member.contender for member in self.members.values()]
        too_long: list[tuple[str, ...]] = []
        while True:
            values = {each.parts: each.value for each in self.candidates() if self._may_blend(each)}
            tried = [each.parts for each in self.folder.trials if each.parts not in values]
            firsts = [each.parts[0] for each in self.candidates() if len(each.parts) == 1 and self._within(each)]
            names = next_blend(values, firsts, tried + too_long, contenders)
            if names is None:
                return
            known = self._first is not None and self._first.names == names[:-1]
            chosen, evaluated = (_CHOSEN_AGAIN, _EVALUATED_AGAIN) if known else (_CHOSEN, _EVALUATED)
            unit = self._evaluation_seconds("+".join(names[:-1]))
            room = self.budget.left - min(self._reading(), _READING * self.budget.limit) - evaluated * unit
            if room > 0 and room > chosen * unit:
                self._try_blend(names, Budget(room, clock=self.budget.clock))
            else:
                too_long.append(names)

    def _may_blend(self, candidate: Candidate) -> bool:
        """Whether a candidate may be part of blends: not if it alone exceeds the memory budget."""
        small = within(candidate, None, self.wanted.budget_mb)
        return small and all(name in self.members and self.members[name].blends for name in candidate.parts)

    def _try_blend(self, names: tuple[str, ...], choosing: Budget) -> None:
        """Build a blend, with weights chosen within a budget."""
        began, trial = self.budget.clock(), Trial("+".join(names), names)
        before, first = self._weights(names[:-1]), self._first_part(names[:-1])
        try:
            blend = first.behind(self.folder.fitted(names[-1]), choosing)
        except InputError as error:
            trial.why = str(error)
            self.folder.add(trial, self.budget.seconds)
            return
        weights = blend.metadata["config"]
        trial.weights = [*before, {key: weights[key] for key in ("retriever_weight", "seen_weight")}]
        searched = self._evaluation_seconds("+".join(names[:-1])) if first.is_searched else 0.0
        values = self._values(trial, first.measured(blend))
        # An evaluation of the blend alone would search its first part too.
        trial.evaluation_seconds += searched
        self._note(trial, blend, values)
        self._add(trial, began, values)

    def _first_part(self, names: tuple[str, ...]) -> FirstPart:
        """The first part of blends, cached while others are tried behind it."""
        if self._first is None or self._first.names != names:
            found = self._blend_of(names, self._weights(names))
            self._first = FirstPart(names, found, self.split, self.validation, seed=self.wanted.seed)
        return self._first

    def _weights(self, names: tuple[str, ...]) -> list[dict[str, float]]:
        return next((each.weights for each in self.folder.trials if each.parts == names), [])

    def _blend_of(self, names: tuple[str, ...], weights: Sequence[dict[str, float]]) -> Retriever:
        """The blend of these fitted models with given weights."""
        found = self.folder.fitted(names[0])
        for name, own in zip(names[1:], weights, strict=True):
            first, seen = own["retriever_weight"], own["seen_weight"]
            found = two_stage(found, self.folder.fitted(name), retriever_weight=first, seen_weight=seen)
        return found

    def candidates(self) -> list[Candidate]:
        """All trials with a value, in the order of their first measurement."""
        found: dict[str, Candidate] = {}
        for each in self.folder.trials:
            values = self.folder.values.get(each.name)
            if each.value is not None and values is not None:
                found[each.name] = Candidate(each.parts, values, each.milliseconds, each.megabytes)
        return list(found.values())

    def document(self) -> dict[str, Any]:
        """The table of all measurements so far."""
        wanted, candidates, tried = self.wanted, self.candidates(), {each.name for each in self._singles}
        rows = as_rows(candidates, self.folder.trials, self.best, wanted.budget_ms, wanted.budget_mb)
        return {
            "chosen": None if self.best is None else self.best.name,
            "monitor": self.validation.monitor,
            "metric": self.validation.metric,
            "validation_users": len(self.validation),
            "time_limit": wanted.time_limit,
            "seconds": round(self.budget.seconds, 2),
            "budget_ms": wanted.budget_ms,
            "budget_mb": wanted.budget_mb,
            "log": self.outline.as_dict(),
            "rows": rows,
            "not_tried": [name for name in self.members if name not in tried],
        }

    def _choose(self) -> Candidate | None:
        return best_within(self.candidates(), self.wanted.budget_ms, self.wanted.budget_mb)

    def _with_table(self, document: dict[str, Any]) -> Retriever:
        assert self.best is not None
        fitted = self._blend_of(self.best.parts, self._weights(self.best.parts))
        return replace(fitted, metadata=fitted.metadata | {"portfolio": document})

    def _found(self, *, read: bool) -> PortfolioResult:
        self.best = self._choose()
        if self.best is None:
            raise self._no_result()
        document = self.document()
        if read:
            estimate, left = self._reading(), max(self.budget.left, 0.0)
            num = num_validation_users(self.wanted.time_limit)
            num = num if estimate <= left else max(_FEWEST, int(min(num, len(self.whole.test)) * left / estimate))
            test = self.whole.test.sample(num, seed=self.wanted.seed)
            views = evaluate_both(self._with_table(document).searcher, test, ks=(self.validation.cut,), batch_size=1024)
            document |= {"test": figures_of(views), "seconds": round(self.budget.seconds, 2)}
        self.folder.write(self.budget.seconds)
        return PortfolioResult(self._with_table(document), document)

    def _reading(self) -> float:
        """The estimated seconds of evaluating the best so far on the test users, in both views."""
        if self.best is None:
            return 0.0
        views = self.validation.measured.views
        num = min(len(self.whole.test), num_validation_users(self.wanted.time_limit))
        return self._evaluation_seconds(self.best.name) * 2 / len(views) * num / len(self.validation)

    def _no_result(self) -> InputError:
        """The error if there is nothing to choose."""
        candidates = self.candidates()
        if not candidates:
            why = next((each.why for each in self.folder.trials if each.why), "there was no time")
            return TimeLimitError(f"time_limit={self.wanted.time_limit:g} s produced no model: {why}; raise it")
        least = min(candidates, key=lambda each: (each.milliseconds, each.megabytes))
        given = {"budget_ms": self.wanted.budget_ms, "budget_mb": self.wanted.budget_mb}
        budgets = " and ".join(f"{name}={value:g}" for name, value in given.items() if value is not None)
        return InputError(
            f"nothing is within {budgets}: the fastest, {least.name}, takes {least.milliseconds:.2f} ms and "
            f"{least.megabytes:.1f} MB; raise what is too low"
        )
