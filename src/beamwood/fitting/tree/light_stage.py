"""The work after a tree's training, within its time limit: the light head, and the choice of the search way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.queries import Queries
from beamwood.fitting.tree.light import Distillation
from beamwood.fitting.tree.search_choice import FixedWay, SearchChoice, candidate_ways, choose_ways
from beamwood.fitting.tree.task import TreeTask
from beamwood.fitting.validation import Monitor
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.types import IndexArray, SearchOptions

__all__ = ["LightStage", "one_of_each"]

# The most histories that a head learns from, and the fewest that are worth the time.
_HISTORIES, _FEWEST = 18_000, 256
# The share of the time left at the start that the head and the choice may take.
_SHARE = 0.25
# Histories on which times are measured, and the cost of all search ways together, in full beams.
_TIMED, _ALL_WAYS = 48, 3.0
# The shares of the time left for learning, and then for the choice; saving needs the rest.
_LEARNING, _CHOOSING = 0.6, 0.7
# While a cheap way is undecided, the number of queries is raised, at most to this multiple.
_FURTHER = 4
# With so few items a full beam costs no more than scoring the leaves that a light head finds.
_SMALL = 400
# A head is kept if one of its search ways loses at most this share of the full beam's metric.
_MAX_LOSS = 0.05


def one_of_each(users_E: IndexArray, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[num], random examples: one of each user, then a second one of each user that has more, and so on.

    `users_E`: the user of each example, ascending. `num`: at most E.
    """
    first = np.flatnonzero(np.diff(users_E, prepend=-1))
    count = np.diff(first, append=len(users_E))
    starts = rng.integers(count)
    rows: list[NDArray[np.int64]] = []
    found = 0
    for turn in range(int(count.max(initial=0))):
        some = rng.permutation(np.flatnonzero(count > turn))
        rows.append(first[some] + (starts[some] + turn) % count[some])
        found += len(some)
        if found >= num:
            break
    return np.concatenate([*rows, np.empty(0, np.int64)])[:num]


@dataclass
class LightStage:
    """The light head of a task's tree, and the choice of the search way.

    `num_histories`: those for which `estimate` reserves time, None without it; `seconds`: the estimate for all.
    """

    task: TreeTask
    seed: int
    num_histories: int | None = None
    seconds: float = 0.0

    @property
    def max_histories(self) -> int:
        """The number of histories that the head learns from without a time limit."""
        return min(_HISTORIES, len(self.task.examples))

    @property
    def why_none(self) -> str:
        """The reason why the settings, the loss or the tree allow no light head; "" where they do."""
        task = self.task
        if task.objective.loss.link.along_path:
            return "the loss scores paths, of which every level is judged"
        if task.config.model.light_width == 0:
            return "model.light_width is 0"
        if task.tree.shape.depth == 1:
            return "the tree has one level, which is judged whole"
        if task.tree.num_items <= _SMALL:
            return f"the tree has {task.tree.num_items} items, few enough for the full beam"
        return ""

    def estimate(self, sample: TreeSearcher, budget: Budget) -> float:
        """The estimated seconds of `finish`, on as many histories as fit the time limit."""
        if self.why_none:
            return 0.0
        if budget.left <= 0:
            # There is no time even for the measurement.
            self.num_histories = 0
            return 0.0
        cost = self._cost(sample, budget)
        self.num_histories = self._affordable(cost, _SHARE * max(budget.left, 0.0))
        return cost(self.num_histories)

    def finish(self, searcher: TreeSearcher, budget: Budget) -> tuple[TreeSearcher, SearchChoice | None, int | str]:
        """The searcher with its light head and its chosen way, or unchanged where there is no head or no time.

        Last the number of histories that the head learned from, or why there is none. What the time limit leaves out is
        noted in the budget.
        """
        if self.why_none:
            return searcher, None, self.why_none
        most = self.max_histories
        num = most if self.num_histories is None else self.num_histories
        if budget.limited and num:
            num = min(num, self._affordable(self._cost(searcher, budget), budget.left))
        if num == 0:
            budget.leave_out(f"no light head: it takes {self.seconds:.0f} s, so searches are full beams")
            return searcher, None, "left out: there was no time"
        if num < most:
            budget.leave_out(f"the light head learns from {num} of {most} histories")
        learning = _part_of(budget, _LEARNING)
        head = self._distillation(searcher).learn(self._histories(num), learning)
        lit, first = self._with(searcher, light=head), self._num_queries(num / most)
        choosing, queries = _part_of(budget, _CHOOSING), self._queries(first if budget.limited else _FURTHER * first)
        choice = choose_ways(lit, queries, self.task.config.choose.monitor, choosing, first=first)
        if choice.best_steered >= 1 - _MAX_LOSS:
            return self._with(lit, ways=choice.ways), choice, num
        choice, why = choice.of_beams(), f"no search that it steers comes within {_MAX_LOSS:.0%} of the full beam"
        return self._with(searcher, ways=choice.ways), choice, f"left out: {why}"

    def _affordable(self, cost: Callable[[int], float], room: float) -> int:
        """The number of histories that fit so many seconds; 0 where they are too few to be worth it."""
        num = bisect_right(range(1, self.max_histories + 1), room, key=cost)
        return 0 if num < min(_FEWEST, self.max_histories) else num

    def _cost(self, sample: TreeSearcher, budget: Budget) -> Callable[[int], float]:
        """The estimated seconds of the whole stage as a function of the number of histories."""
        most, few = self.max_histories, self._histories(min(_TIMED, self.max_histories))
        learning = self._distillation(sample).cost(few, budget.clock)
        choosing = self._choice_seconds(sample, self._queries(self._num_queries(1.0)), budget)

        def cost(num: int) -> float:
            return learning.of(num) + choosing * num / most

        self.seconds = cost(most)
        return cost

    def _choice_seconds(self, sample: TreeSearcher, queries: Queries, budget: Budget) -> float:
        """The estimated seconds of the choice on these queries."""
        full = FixedWay(sample, candidate_ways(sample.beam_width, steered=False)[-1])

        def search(num: int) -> Any:
            return full.search(queries.take(np.arange(num)).query(sample.needs), 20, SearchOptions())

        views = len(Monitor.of(self.task.config.choose.monitor).views)
        searching = estimated_seconds(search, len(queries), budget.clock) if len(queries) else 0.0
        return searching * views * _ALL_WAYS

    def _distillation(self, searcher: TreeSearcher) -> Distillation:
        width = self.task.config.model.light_width
        return Distillation(searcher.weights, searcher.tree, width=width, seed=self.seed, threads=searcher.threads)

    def _histories(self, num: int) -> NDArray[np.int32]:
        """int32[num, L], the leaves of a fixed draw of training histories."""
        task = self.task
        rows = one_of_each(task.examples.users, num, np.random.default_rng(self.seed))
        return task.tree.leaves_of(task.examples.histories(rows).padded(sum(task.config.model.windows)))

    def _num_queries(self, share: float) -> int:
        """A share of the number of validation queries on which choices are made."""
        return max(1, int(share * self.task.config.choose.validation_users))

    def _queries(self, num: int) -> Queries:
        """At most `num` random validation queries, in random order: only the first may fit the time limit."""
        labelled = self.task.split.valid.labelled()
        return labelled.take(np.random.default_rng(self.seed).permutation(len(labelled))[:num])

    def _with(self, searcher: TreeSearcher, *, light: Any = None, ways: Any = None) -> TreeSearcher:
        weights = searcher.weights if light is None else replace(searcher.weights, light=light)
        return TreeSearcher(
            weights,
            searcher.tree,
            beam_width=searcher.beam_width,
            threads=searcher.threads,
            link=searcher.link,
            ways=ways,
        )


def _part_of(budget: Budget, share: float) -> Budget:
    """A budget that starts now with a share of the time left; without a limit, one without."""
    return Budget(share * max(budget.left, 1.0), clock=budget.clock) if budget.limited else Budget()
