"""The trials of a search: measuring and storing them, the candidates among them, and the best one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from beamwood.fitting.fitted import notes_of_fit
from beamwood.fitting.stages import two_stage
from beamwood.recipes.portfolio.choice import Candidate, Contender, Costs, best_within, why_lower, within
from beamwood.recipes.portfolio.members import Member
from beamwood.recipes.portfolio.outline import Outline
from beamwood.recipes.portfolio.search_folder import SearchFolder, Trial
from beamwood.recipes.portfolio.table import as_rows
from beamwood.recipes.portfolio.validation import Validation
from beamwood.recipes.portfolio.wanted import Reports, Wanted
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget
from beamwood.types import FloatArray, Searcher

__all__ = ["Trials"]


class Trials:
    """All trials of a search for what is `wanted`, stored in its locked `folder`.

    `members`: to try, by name; `outline`: of the log, for the table. `validation` measures all trials.
    """

    def __init__(
        self,
        folder: SearchFolder,
        wanted: Wanted,
        members: Sequence[Member],
        outline: Outline,
        validation: Validation,
        budget: Budget,
        reports: Reports,
    ) -> None:
        self.folder, self.wanted, self.outline, self.validation = folder, wanted, outline, validation
        self.members = {member.name: member for member in members}
        self.budget, self.reports = budget, reports

    @property
    def contenders(self) -> list[Contender]:
        """The members, as `choice` knows them."""
        return [member.contender for member in self.members.values()]

    @property
    def singles(self) -> list[Trial]:
        """The looks at single members."""
        return [each for each in self.folder.trials if len(each.parts) == 1 and each.name in self.members]

    @property
    def candidates(self) -> list[Candidate]:
        """All trials with a value, in the order of their first measurement."""
        found: dict[str, Candidate] = {}
        for each in self.folder.trials:
            values = self.folder.values.get(each.name)
            if each.value is not None and values is not None:
                found[each.name] = Candidate(each.parts, values, each.milliseconds, each.megabytes)
        return list(found.values())

    @property
    def best(self) -> Candidate | None:
        """The best candidate within the budgets."""
        return best_within(self.candidates, self.wanted.budget_ms, self.wanted.budget_mb)

    def within(self, answers: Costs) -> bool:
        """Whether an answer is within the budgets."""
        return within(answers, self.wanted.budget_ms, self.wanted.budget_mb)

    def evaluation_seconds(self, name: str) -> float:
        """The most seconds that its evaluation took; 0 before any."""
        return max((each.evaluation_seconds for each in self.folder.trials if each.name == name), default=0.0)

    def measure(self, trial: Trial, searcher: Searcher) -> FloatArray:
        """The metric of each validation user; the trial gets their mean, and the seconds that it took."""
        began = self.budget.clock()
        values = self.validation.values(searcher)
        trial.evaluation_seconds = round(self.budget.clock() - began, 3)
        trial.value = float(values.mean())
        return values

    def measure_cost(self, trial: Trial, searcher: Searcher) -> None:
        """Measure the cost of an answer; the trial gets it."""
        cost = self.validation.cost(searcher)
        trial.milliseconds, trial.megabytes = cost.milliseconds, cost.megabytes

    def add_better(
        self, trial: Trial, began: float, values: FloatArray, searcher: Searcher, fitted: Retriever | None = None
    ) -> None:
        """Store an evaluated trial, or its earlier best where that is no worse, or alone within the budgets."""
        before = self.folder.kept(trial.name)
        if before is None or values.mean() > self.folder.values[trial.name].mean():
            self.measure_cost(trial, searcher)
            if before is None or self.within(trial) or not self.within(before):
                self.add(trial, began, values, fitted)
                return
            trial.value = float(self.folder.values[trial.name].mean())
        self.add_same(trial, before, began)

    def add_same(self, trial: Trial, before: Trial, began: float) -> None:
        """Store a trial that leaves the model, or the blend, of the one before it."""
        trial.folders, trial.weights = before.folders, before.weights
        trial.milliseconds, trial.megabytes = before.milliseconds, before.megabytes
        self.add(trial, began)

    def add(
        self, trial: Trial, began: float, values: FloatArray | None = None, fitted: Retriever | None = None
    ) -> None:
        """Store a trial, and report the best model where it changed."""
        trial.seconds = round(self.budget.clock() - began, 3)
        before = self.best
        self.folder.add(trial, self.budget.seconds, values, fitted)
        if trial.value is None:
            self.reports.say(f"{trial.name}: {trial.why}")
        else:
            told = f"{trial.name}: {self.validation.named} {trial.value:.4f} after {trial.seconds:.0f} s"
            self.reports.say("; ".join((told, *(() if fitted is None else notes_of_fit(fitted)))))
        best = self.best
        if best is not None and (before is None or (best.name, best.value) != (before.name, before.value)):
            why = "" if before is None else why_lower(best, before)
            self.reports.better(self.retriever(best, self.document()))
            self.reports.say(f"best so far: {best.name}{why and f' ({why})'}")

    def kept(self, parts: tuple[str, ...]) -> Trial:
        """The trial with the best model of a member, or models of a blend."""
        trial = self.folder.kept("+".join(parts))
        assert trial is not None, "it has a result"
        return trial

    def fitted(self, parts: tuple[str, ...]) -> Retriever:
        """A member's best model, or the best blend of several with the models and weights of its trial."""
        trial = self.kept(parts)
        found, *others = map(self.folder.model, trial.folders)
        for other, own in zip(others, trial.weights, strict=True):
            first, seen = own["retriever_weight"], own["seen_weight"]
            found = two_stage(found, other, retriever_weight=first, seen_weight=seen)
        return found

    def retriever(self, candidate: Candidate, document: dict[str, Any]) -> Retriever:
        """A candidate's retriever, which stores the table of measurements."""
        fitted = self.fitted(candidate.parts)
        return replace(fitted, metadata=fitted.metadata | {"portfolio": document})

    def document(self) -> dict[str, Any]:
        """The table of all measurements so far."""
        wanted, best, tried = self.wanted, self.best, {each.name for each in self.singles}
        return {
            "chosen": None if best is None else best.name,
            "monitor": self.validation.monitor,
            "metric": self.validation.metric,
            "validation_users": len(self.validation),
            "time_limit": wanted.time_limit,
            "seconds": round(self.budget.seconds, 2),
            "budget_ms": wanted.budget_ms,
            "budget_mb": wanted.budget_mb,
            "log": self.outline.as_dict(),
            "rows": as_rows(self.candidates, self.folder.trials, best, wanted.budget_ms, wanted.budget_mb),
            "not_tried": [name for name in self.members if name not in tried],
        }
