"""The search for the best model of a log: short fits ("looks") of many methods, blends of them, and the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from beamwood.data.split import Split
from beamwood.errors import InputError, NotSavedError, TimeLimitError
from beamwood.extras import is_installed
from beamwood.fitting.start_cache import caching
from beamwood.recipes.portfolio.blends import Blends
from beamwood.recipes.portfolio.final_evaluation import FinalEvaluation
from beamwood.recipes.portfolio.looks import Looks
from beamwood.recipes.portfolio.members import Member, members_of
from beamwood.recipes.portfolio.outline import Outline
from beamwood.recipes.portfolio.search_folder import SearchFolder
from beamwood.recipes.portfolio.share import Share
from beamwood.recipes.portfolio.trials import Trials
from beamwood.recipes.portfolio.validation import Validation, num_validation_users, without_test_users
from beamwood.recipes.portfolio.wanted import Reports, Wanted
from beamwood.retrieval.retriever import Retriever
from beamwood.training.budget import Budget, Clock
from beamwood.training.interrupt import SAVING, Interrupted

__all__ = ["PortfolioResult", "Search"]


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
        self.outline, self.trains = Outline.of(split), is_installed("train")
        if members is None:
            members = members_of(self.outline, trains=self.trains)
        # Nothing but the final evaluation is given the test users.
        known = without_test_users(split)
        folder.validation_users = folder.validation_users or num_validation_users(wanted.time_limit)
        validation = Validation(known, wanted.monitor, folder.validation_users, seed=wanted.seed)
        self.folder, self.budget = folder, budget or Budget(wanted.time_limit, name="the search")
        self.budget.count(folder.seconds)
        self.trials = Trials(folder, wanted, members, self.outline, validation, self.budget, reports)
        self.final = FinalEvaluation(self.trials, split.test)
        self.looks = Looks(self.trials, known, Share(self.budget.clock, processor))
        self.blends = Blends(self.trials, known, self.final)

    def run(self) -> PortfolioResult:
        """Look, blend, choose, and evaluate the choice on the test users; if interrupted, return the best so far
        untested.

        Errors: `Interrupted` where nothing was found yet; `InputError` where nothing is within the budgets;
        `NotSavedError` where the disk is full; the state of the search stays valid.
        """
        try:
            with caching():
                self.looks.run()
            self.blends.run()
            return self.found(tested=True)
        except NotSavedError as error:
            raise NotSavedError(f"{error}; the same command with --resume goes on with what was found") from error
        except (KeyboardInterrupt, Interrupted):
            SAVING.set()
            self.folder.write(self.budget.seconds)
            if self.trials.best is None:
                raise Interrupted("interrupted before anything was found; run the same command with --resume") from None
            return replace(self.found(tested=False), interrupted=True)

    def found(self, *, tested: bool) -> PortfolioResult:
        """The best of the trials so far, `tested` on the test users."""
        best = self.trials.best
        if best is None:
            raise self._no_result()
        document = self.trials.document()
        if tested:
            figures = self.final.figures(self.trials.retriever(best, document).searcher)
            document |= {"test": figures, "seconds": round(self.budget.seconds, 2)}
        self.folder.write(self.budget.seconds)
        return PortfolioResult(self.trials.retriever(best, document), document)

    def _no_result(self) -> InputError:
        """The error if there is nothing to choose."""
        wanted, candidates = self.trials.wanted, self.trials.candidates
        if not candidates:
            why = next((each.why for each in self.folder.trials if each.why), "there was no time")
            return TimeLimitError(f"time_limit={wanted.time_limit:g} s produced no model: {why}; raise it")
        least = min(candidates, key=lambda each: (each.milliseconds, each.megabytes))
        given = {"budget_ms": wanted.budget_ms, "budget_mb": wanted.budget_mb}
        budgets = " and ".join(f"{name}={value:g}" for name, value in given.items() if value is not None)
        return InputError(
            f"nothing is within {budgets}: the fastest, {least.name}, takes {least.milliseconds:.2f} ms and "
            f"{least.megabytes:.1f} MB; raise what is too low"
        )
