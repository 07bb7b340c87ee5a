"""The steps after the training of a tree, within its time limit: the light head, and the choice of the search way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.data.queries import Queries
from beamwood.fitting.tree.light import Distillation
from beamwood.fitting.tree.search_choice import SearchChoice, SearchedBy, candidate_ways, choose_ways
from beamwood.fitting.tree.task import TreeTask
from beamwood.retrieval.tree import TreeSearcher
from beamwood.training.budget import Budget, price_of
from beamwood.types import IndexArray, SearchOptions

__all__ = ["LightStage", "one_of_each"]

# The histories that a head learns from, and the fewest worth using.
_HISTORIES, _FEWEST = 18_000, 256
# The share of the time left at the start that the head and the choice may take.
_SHARE = 0.25
# Histories of the trial measurement, and the cost of all ways together in full beams.
_PRICED, _ALL_WAYS = 48, 3.0
# The shares of the time left for learning, and then for the choice; saving needs the rest.
_LEARNING, _JUDGING = 0.6, 0.7
# Where a cheap way is undecided, at most this many times more users are asked.
_FURTHER = 4
# For so few items a full beam costs no more than the leaves judged after a light head.
_SMALL = 400
# A head is kept if one of its ways loses at most this share of the full beam's metric.
_WORTH = 0.05


def one_of_each(users_E: IndexArray, num: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """int64[num], drawn examples, one of each user before any user's second; also sorted by user.

    `users_E`: the user of each example, ascending. `num`: at most E.
    """
    first = np.flatnonzero(np.diff(users_E, prepend=-1))
    count = np.diff(first, append=len(users_E))
    starts = rng.integers(count)
    rows: list[NDArray[np.int64]] = []
    for turn in range(int(count.max(initial=0))):
        some = rng.permutation(np.flatnonzero(count > turn))
        rows.append(first[some] + (starts[some] + turn) % count[some])
        if sum(map(len, rows)) >= num:
            break
    return np.concatenate([*rows, np.empty(0, np.int64)])[:num]


@dataclass
class LightStage:
    """The light head of a task's tree, learned from `num` of its training histories, and the choice of a way."""

    task: TreeTask
    seed: int
    num: int | None = None
    seconds: float = 0.0
    blind: bool = False

    @property
    def whole(self) -> int:
        """The histories that it learns from without a time limit."""
        return min(_HISTORIES, len(self.task.examples))

    @property
    def said(self) -> int | str:
        """Its record in the training: the number of histories, or why there is no head."""
        if self.blind:
            return f"left out: no search that it steers comes within {_WORTH:.0%} of the full beam"
        return self.why_none or self.num or "left out: there was no time"

    @property
    def why_none(self) -> str:
        """The reason why there is no light head, "" where there is to be one."""
        task, width = self.task, self.task.config.model.light_width
        if width == 0:
            return "model.light_width is 0"
        if task.objective.loss.link.along_path:
            return "the loss scores paths, of which every level is judged"
        if task.tree.shape.depth == 1:
            return "the tree has one level, which is judged whole"
        if task.tree.num_items <= _SMALL:
            return f"the tree has {task.tree.num_items} items, few enough for the full beam"
        return ""

    def price(self, sample: TreeSearcher, budget: Budget) -> float:
        """The seconds of this stage, as far as it fits the time limit."""
        if self.why_none:
            return 0.0
        if budget.left <= 0:
            # There is not even time to measure its price.
            self.num = 0
            return 0.0
        cost = self._cost(sample, budget)
        self.num = self._fitting(cost, _SHARE * max(budget.left, 0.0))
        return cost(self.num)

    def of(self, searcher: TreeSearcher, budget: Budget) -> tuple[TreeSearcher, SearchChoice | None]:
        """The searcher with its light head and its chosen way, or unchanged where there was no time; the budget gets a
        note where either, or some histories, were left out.
        """
        if self.why_none:
            return searcher, None
        whole = self.whole
        num = whole if self.num is None else self.num
        if budget.limited and num:
            num = min(num, self._fitting(self._cost(searcher, budget), budget.left))
        self.num = num
        if num == 0:
            budget.leave_out(f"no light head: it takes {self.seconds:.0f} s, so searches are full beams")
            return searcher, None
        if num < whole:
            budget.leave_out(f"the light head learns from {num} of {whole} histories")
        own = Budget(_LEARNING * max(budget.left, 1.0), clock=budget.clock) if budget.limited else Budget()
        head = self._distillation(searcher).learn(self._histories(num), own)
        lit, first = self._with(searcher, light=head), self._judges(num / whole)
        own, judges = Budget(), self._queries(_FURTHER * first)
        if budget.limited:
            own, judges = Budget(_JUDGING * max(budget.left, 1.0), clock=budget.clock), self._queries(first)
        choice = choose_ways(lit, judges, self.task.config.choose.monitor, own, first=first)
        self.blind = choice.best_steered < 1 - _WORTH
        if self.blind:
            lit, choice = searcher, choice.of_beams()
        return self._with(lit, ways=choice.ways), choice

    def _fitting(self, cost: Callable[[int], float], room: float) -> int:
        """The number of histories that fit; 0 where they are too few."""
        num = bisect_right(range(1, self.whole + 1), room, key=cost)
        return 0 if num < min(_FEWEST, self.whole) else num

    def _cost(self, sample: TreeSearcher, budget: Budget) -> Callable[[int], float]:
        """The seconds of the whole stage by number of histories: learning from them, and the choice."""
        whole, few = self.whole, self._histories(min(_PRICED, self.whole))
        learning = self._distillation(sample).cost(few, budget.clock)
        searching = self._searching(sample, self._queries(self._judges(1.0)), budget)

        def cost(num: int) -> float:
            return learning.of(num) + searching * num / whole

        self.seconds = cost(whole)
        return cost

    def _searching(self, sample: TreeSearcher, queries: Queries, budget: Budget) -> float:
        """The seconds of the choice with these queries."""
        full = SearchedBy(sample, candidate_ways(sample.beam_width, steered=False)[-1])

        def search(num: int) -> Any:
            return full.search(queries.take(np.arange(num)).query(sample.needs), 20, SearchOptions())

        views = 2 if self.task.config.choose.monitor.startswith("both") else 1
        searching = price_of(search, len(queries), budget.clock) if len(queries) else 0.0
        return searching * views * _ALL_WAYS

    def _distillation(self, searcher: TreeSearcher) -> Distillation:
        width = self.task.config.model.light_width
        return Distillation(searcher.weights, searcher.tree, width=width, seed=self.seed, threads=searcher.threads)

    def _histories(self, num: int) -> NDArray[np.int32]:
        """int32[num, L], the leaves of a fixed draw of training histories."""
        task = self.task
        rows = one_of_each(task.examples.users, num, np.random.default_rng(self.seed))
        return task.tree.leaves_of(task.examples.histories(rows).padded(sum(task.config.model.windows)))

    def _judges(self, share: float) -> int:
        """The number of validation users who choose, or a share of them."""
        return max(1, int(share * self.task.config.choose.validation_users))

    def _queries(self, num: int) -> Queries:
        """At most `num` validation queries with labels, in drawn order, as only the first may fit the time limit."""
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
