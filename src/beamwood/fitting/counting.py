"""Shared parts of the counting methods: interaction matrices, and a grid search on validation users."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_origin

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator
from scipy import sparse

from beamwood.data.dataset import Dataset
from beamwood.data.queries import Queries
from beamwood.data.split import Split
from beamwood.evaluation.protocol import evaluate_both
from beamwood.evaluation.significance import mean_exceeds
from beamwood.fitting.method_config import MethodConfig, SettingsGroup
from beamwood.fitting.settings import ChoiceSettings, HistoryLength
from beamwood.fitting.validation import CUT
from beamwood.retrieval.searchers.neighbours import NeighbourSearcher, SeenPlace
from beamwood.steps import step
from beamwood.training.budget import Budget, estimated_seconds
from beamwood.types import FloatArray, ItemLists
from beamwood.words import counted

__all__ = [
    "CountLast",
    "CountingConfig",
    "Decay",
    "GridSettings",
    "Power",
    "best_of_grid",
    "counts_within",
    "interactions",
    "weighted_counts",
]

Decay = Annotated[float, Field(gt=0, le=1)]
"""The factor of a history item's weight against the next newer one."""
Power = Annotated[float, Field(ge=0, le=10)]
"""The exponent of a frequency."""
CountLast = Annotated[int, Field(ge=2, description="latest interactions per history that form pairs")]
"""A bound on long histories, whose pairs grow with the square of their length: those of bots could take hours."""


class GridSettings(SettingsGroup):
    """The values that validation chooses from; a single value fixes a setting."""

    seen: tuple[SeenPlace, ...] = Field(
        ("counted", "first", "last"),
        min_length=1,
        description="rank of seen items: by score (the plain method), first, or after all scored items",
    )
    decay: tuple[Decay, ...] = Field(
        (1.0, 0.98, 0.95, 0.9, 0.8),
        min_length=1,
        description="factor by which an item's weight falls with each newer item",
    )
    length: HistoryLength = 69
    num_neighbours: int = Field(1000, ge=1, description="neighbours stored per item")

    @field_validator("*", mode="before")
    @classmethod
    def _one_value_is_a_grid(cls, value: Any, info: ValidationInfo) -> Any:
        grid = get_origin(cls.model_fields[str(info.field_name)].annotation) is tuple
        return (value,) if grid and not isinstance(value, list | tuple) else value


class CountingConfig(MethodConfig):
    """The settings of every counting method."""

    model: GridSettings = GridSettings()
    choose: ChoiceSettings = ChoiceSettings(validation_users=10_000)


# The share of the time left that evaluation may take under a limit, and the fewest queries for it.
_SHARE, _FEWEST = 0.5, 64
# The number of queries on which a candidate may be ruled out early, and the standard errors by which it must be worse.
_PART, _SURELY = 2000, 3.0


def interactions(
    histories: ItemLists,
    num_items: int,
    count_last: int = 2**31 - 1,
    facts: dict[str, Any] | None = None,
    weights: NDArray[np.float32] | None = None,
) -> sparse.csr_matrix:
    """float64 [users, N]: 1 for each user and item of an interaction, or the largest of the `weights` of its
    interactions.

    Of longer histories only the latest `count_last` interactions count, which is noted in `facts`.
    """
    longer = int(np.count_nonzero(histories.lengths > count_last))
    if longer and facts is not None:
        facts["long_histories"] = (
            f"of {counted(longer, 'history', 'histories')} of more than {count_last:,} interactions the latest form "
            "pairs (model.count_last)"
        )
    if weights is not None:
        return _weighted_interactions(histories, weights, num_items, count_last)
    distinct = histories.last(count_last).distinct()
    ones = np.ones(len(distinct.items))
    return sparse.csr_matrix((ones, distinct.items, distinct.indptr), shape=(len(distinct), num_items))


def _weighted_interactions(
    histories: ItemLists, weights: NDArray[np.float32], num_items: int, count_last: int
) -> sparse.csr_matrix:
    ends = np.repeat(histories.indptr[1:], histories.lengths)
    kept = np.flatnonzero(ends - np.arange(len(ends)) <= count_last)
    rows, items, values = histories.rows[kept].astype(np.int64), histories.items[kept], weights[kept]
    keys = rows * num_items + items
    order = np.lexsort((values, keys))
    keys = keys[order]
    last = np.flatnonzero(np.append(keys[1:] != keys[:-1], True)) if len(keys) else np.zeros(0, np.int64)
    rows, items = np.divmod(keys[last], num_items)
    shape = (len(histories), num_items)
    return sparse.csr_matrix((values[order][last].astype(np.float64), (rows, items)), shape=shape)


def weighted_counts(data: Dataset) -> NDArray[np.float64]:
    """float64[N], the interactions of each item, or the sum of their weights."""
    counts: NDArray[np.float64] = np.bincount(data.histories.items, data.weights, data.num_items).astype(np.float64)
    return counts


def counts_within(
    histories: ItemLists,
    num_items: int,
    steps: int,
    *,
    power: float = 1.0,
    weights: FloatArray | None = None,
    of_events: NDArray[np.float32] | None = None,
    budget: Budget | None = None,
) -> sparse.csr_matrix:
    """[N, N]: the sum of 1 / gap^power over all pairs (i, then j `gap` steps later) of a history, gap 1..steps.

    `weights` [histories]: a factor of each history; None for 1. `of_events`: a factor of each interaction; a pair has
    the product of both. Errors: `TimeLimitError` once it is certain to exceed `budget`.
    """
    budget = budget or Budget()
    total = sparse.csr_matrix((num_items, num_items))
    rows, began = histories.rows, budget.clock()
    gaps = range(1, min(steps + 1, int(histories.lengths.max(initial=0))))
    for gap in gaps:
        same = rows[gap:] == rows[:-gap]
        first, later = histories.items[:-gap][same], histories.items[gap:][same]
        values = np.full(len(first), float(gap) ** -power)
        if weights is not None:
            values *= weights[rows[gap:][same]]
        if of_events is not None:
            values *= of_events[:-gap][same] * of_events[gap:][same]
        total = total + sparse.csr_matrix((values, (first, later)), shape=(num_items, num_items))
        budget.require_rest(gap, len(gaps), began)
    total.setdiag(0)
    total.eliminate_zeros()
    return sparse.csr_matrix(total)


def best_of_grid(
    split: Split,
    config: CountingConfig,
    matrix: Callable[..., sparse.csr_matrix],
    seed: int,
    budget: Budget | None = None,
    **tried: Sequence[Any],
) -> tuple[NeighbourSearcher, dict[str, Any]]:
    """A grid search: the best searcher of `matrix(**values)` [N, N], and its values.

    `tried`: by name, the values of each argument of `matrix`; decays and places of seen items are those of `config`.
    The best has the largest f@20, the mean over both views, on `config.choose.validation_users` validation queries. A
    limited budget tries the candidates that fit, at least the first.
    """
    budget = budget or Budget()
    build = _Builder(matrix, tuple(tried), split.train.item_counts, config.model.length)
    values, places = tried | {"decay": config.model.decay}, config.model.seen
    candidates = [
        dict(zip(values, each, strict=True)) | {"seen": places[0]} for each in itertools.product(*values.values())
    ]
    count = len(candidates) + len(places) - 1
    with step("trying settings", count) as trying:
        began = budget.clock()
        first = build(candidates[0])
        build_seconds = budget.clock() - began
        queries = split.valid.sample(config.choose.validation_users, seed=seed)
        queries = _affordable(queries, first, budget, len(candidates))
        search = _GridSearch(build, queries, budget, build_seconds)
        for candidate in candidates:
            search.evaluate(candidate)
            trying.advance()
        # The place of seen items is chosen last, for the best of the other values.
        chosen = search.best
        build.keep(chosen, search.searcher.similarity)
        for place in places[1:]:
            search.evaluate(chosen | {"seen": place})
            trying.advance()
    if search.skipped:
        budget.leave_out(f"{count - search.skipped} of {count} settings tried")
    return search.searcher, search.best | {f"valid/f@{search.cut}": search.value} | budget.notes()


@dataclass(slots=True)
class _Builder:
    """Builds the searcher of a candidate; its values named in `arguments` are those of `matrix`.

    The last matrix is kept: candidates that differ only in the decay follow each other.
    """

    matrix: Callable[..., sparse.csr_matrix]
    arguments: tuple[str, ...]
    counts_N: NDArray[np.int64]
    length: int
    _kept: tuple[dict[str, Any], sparse.csr_matrix] | None = None

    def __call__(self, candidate: Mapping[str, Any]) -> NeighbourSearcher:
        if not self.has_matrix(candidate):
            self.keep(candidate, self.matrix(**self._arguments_of(candidate)))
        assert self._kept is not None
        decay, seen = candidate["decay"], candidate["seen"]
        return NeighbourSearcher(self._kept[1], self.counts_N, decay=decay, length=self.length, seen=seen)

    def has_matrix(self, candidate: Mapping[str, Any]) -> bool:
        """Whether the kept matrix is that of the candidate."""
        return self._kept is not None and self._kept[0] == self._arguments_of(candidate)

    def keep(self, candidate: Mapping[str, Any], matrix: sparse.csr_matrix) -> None:
        """Keep the matrix of a candidate."""
        self._kept = self._arguments_of(candidate), matrix

    def _arguments_of(self, candidate: Mapping[str, Any]) -> dict[str, Any]:
        return {name: candidate[name] for name in self.arguments}


def _affordable(queries: Queries, searcher: NeighbourSearcher, budget: Budget, num_candidates: int) -> Queries:
    """The queries, or a sample of them on which so many candidates can be evaluated within the time limit."""
    if not budget.limited or len(queries) <= _FEWEST:
        return queries
    whole = estimated_seconds(
        lambda num: evaluate_both(searcher, queries.sample(num, seed=0), ks=(1,)), len(queries), budget.clock
    )
    num = budget.affordable(len(queries), num_candidates * whole, share=_SHARE, fewest=_FEWEST)
    if num == len(queries):
        return queries
    budget.leave_out(f"validation uses {num} of {len(queries)} users")
    return queries.sample(num, seed=0)


class _GridSearch:
    """Evaluates candidates and keeps the best, ties to the first; those that do not fit the time limit are skipped.

    A candidate that is significantly worse on a random part of the queries is not evaluated on the others.
    """

    def __init__(self, build: _Builder, queries: Queries, budget: Budget, build_seconds: float) -> None:
        self._build, self._budget = build, budget
        order = np.random.default_rng(0).permutation(len(queries))
        self._parts = [queries.take(np.sort(part)) for part in (order[:_PART], order[_PART:]) if len(part)]
        self._build_seconds, self._evaluation_seconds = build_seconds, 0.0
        self.value, self.skipped, self.cut = -1.0, 0, 0
        self.best: dict[str, Any] = {}
        self.searcher: NeighbourSearcher
        self._best_values: list[FloatArray] = []

    def evaluate(self, settings: dict[str, Any]) -> None:
        """Evaluate a candidate, unless it would exceed the time left; the first always."""
        seconds = self._evaluation_seconds + (0.0 if self._build.has_matrix(settings) else self._build_seconds)
        if self.best and seconds > self._budget.left:
            self.skipped += 1
            return
        searcher, began = self._build(settings), self._budget.clock()
        self.cut = min(CUT, searcher.num_items)
        values: list[FloatArray] = []
        for queries in self._parts:
            if values and self.best and mean_exceeds(self._best_values[0] - values[0], _SURELY):
                return
            values.append(self._values(searcher, queries))
        value = float(np.concatenate(values).mean())
        self._evaluation_seconds = max(self._evaluation_seconds, self._budget.clock() - began)
        if not self.best or value > self.value:
            self.value, self.searcher, self.best, self._best_values = value, searcher, settings, values

    def _values(self, searcher: NeighbourSearcher, queries: Queries) -> FloatArray:
        """float64[queries]: f@20, the mean over both views."""
        views = evaluate_both(searcher, queries, ks=(self.cut,)).values()
        values: FloatArray = np.mean([view.values[f"f@{self.cut}"] for view in views], axis=0)
        return values
