"""The blends of a search: members that were looked at, behind each other, with weights chosen on validation users.

Source: Caruana et al., "Ensemble Selection from Libraries of Models" (ICML 2004), greedy, of few parts.
"""

from __future__ import annotations

from beamwood.data.split import Split
from beamwood.errors import why_failed
from beamwood.recipes.portfolio.choice import Candidate, next_blend, within
from beamwood.recipes.portfolio.final_evaluation import FinalEvaluation
from beamwood.recipes.portfolio.first_part import FirstPart
from beamwood.recipes.portfolio.search_folder import Trial
from beamwood.recipes.portfolio.trials import Trials
from beamwood.training.budget import Budget

__all__ = ["Blends"]

# The cost of a blend relative to evaluating its first part: to choose its weights, and to be evaluated; then both where
# the first's candidates are cached.
_CHOSEN, _EVALUATED, _CHOSEN_AGAIN, _EVALUATED_AGAIN = 2.25, 1.5, 0.5, 0.25


class Blends:
    """Blends the members of `trials` in the order of `choice.next_blend`, and adds each blend to the trials.

    Time is reserved for the `final` evaluation.
    """

    def __init__(self, trials: Trials, split: Split, final: FinalEvaluation) -> None:
        self._trials, self._split, self._final, self._budget = trials, split, final, trials.budget
        self._first: FirstPart | None = None

    def run(self) -> None:
        """Try blends while there is time for one more and for the test."""
        too_long: list[tuple[str, ...]] = []
        while True:
            names = self._next(too_long)
            if names is None:
                return
            known = self._first is not None and self._first.names == names[:-1]
            chosen, evaluated = (_CHOSEN_AGAIN, _EVALUATED_AGAIN) if known else (_CHOSEN, _EVALUATED)
            unit = self._trials.evaluation_seconds("+".join(names[:-1]))
            room = self._budget.left - self._final.reserve - evaluated * unit
            if room > 0 and room > chosen * unit:
                self._try(names, Budget(room, clock=self._budget.clock))
            else:
                too_long.append(names)

    def _next(self, too_long: list[tuple[str, ...]]) -> tuple[str, ...] | None:
        """The parts of the next blend, by all trials so far."""
        trials, candidates = self._trials, self._trials.candidates
        tried = trials.folder.tried()
        # Of what was tried with an earlier model of a part, the better of then and now is kept.
        values = {each.parts: each.value for each in candidates if self._may_blend(each) and each.parts in tried}
        firsts = [each.parts[0] for each in candidates if len(each.parts) == 1 and trials.within(each)]
        return next_blend(values, firsts, [*tried, *too_long], trials.contenders)

    def _may_blend(self, candidate: Candidate) -> bool:
        """Whether a candidate may be part of blends: not if it alone exceeds the memory budget."""
        members = self._trials.members
        small = within(candidate, None, self._trials.wanted.budget_mb)
        return small and all(name in members and members[name].blends for name in candidate.parts)

    def _try(self, names: tuple[str, ...], choosing: Budget) -> None:
        """Build a blend, with weights chosen within a budget, and evaluate it."""
        trials, began, trial = self._trials, self._budget.clock(), Trial("+".join(names), names)
        first = self._first_part(names[:-1])
        try:
            blend = first.behind(trials.fitted(names[-1:]), choosing)
        except Exception as error:
            trial.why = why_failed(error)
            if trial.why is None:
                raise
            trials.folder.add(trial, self._budget.seconds)
            return
        weights = blend.metadata["config"]
        own = {key: weights[key] for key in ("retriever_weight", "seen_weight")}
        before = trials.kept(first.names)
        trial.weights, trial.folders = [*before.weights, own], [*before.folders, *trials.kept(names[-1:]).folders]
        # An evaluation of the blend alone would search its first part too.
        searched = trials.evaluation_seconds("+".join(first.names)) if first.is_searched else 0.0
        values = trials.measure(trial, first.measured(blend))
        trial.evaluation_seconds += searched
        trials.add_better(trial, began, values, blend.searcher)

    def _first_part(self, names: tuple[str, ...]) -> FirstPart:
        """The first part of blends, cached while others are tried behind it."""
        if self._first is None or self._first.names != names:
            found, seed = self._trials.fitted(names), self._trials.wanted.seed
            self._first = FirstPart(names, found, self._split, self._trials.validation, seed=seed)
        return self._first
