"""What the counting methods share: who took what, and parameters chosen on validation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, get_origin

import numpy as np
from pydantic import Field, ValidationInfo, field_validator
from scipy import sparse

from beamwood.data.split import Queries, Split
from beamwood.evaluation.protocol import evaluate_both
from beamwood.fitting.choose import drawn
from beamwood.fitting.settings import Choose, Group, HistoryLength, Settings
from beamwood.retrieval.neighbours import NeighbourSearcher, SeenPlace
from beamwood.types import FloatArray, ItemLists

__all__ = ["CountingConfig", "Decay", "Grid", "Power", "best_of_grid", "counts_within", "interactions"]

Decay = Annotated[float, Field(gt=0, le=1)]
"""The weight of a history item against that of the next newer one."""
Power = Annotated[float, Field(ge=0, le=10)]
"""The exponent of a frequency."""


class Grid(Group):
    """What validation chooses from; give one value each to fix them."""

    seen: tuple[SeenPlace, ...] = Field(
        ("counted", "first", "last"),
        min_length=1,
        description="seen items: as counted (the plain method), before all others, or behind all that has a score",
    )
    decay: tuple[Decay, ...] = Field(
        (1.0, 0.98, 0.95, 0.9, 0.8), min_length=1, description="weight of a history item against the next newer one"
    )
    length: HistoryLength = 69
    num_neighbours: int = Field(1000, ge=1, description="neighbours kept for each item")

    @field_validator("*", mode="before")
    @classmethod
    def _one_value_is_a_grid(cls, value: Any, info: ValidationInfo) -> Any:
        grid = get_origin(cls.model_fields[str(info.field_name)].annotation) is tuple
        return (value,) if grid and not isinstance(value, list | tuple) else value


class CountingConfig(Settings):
    """What every counting method has."""

    model: Grid = Grid()
    choose: Choose = Choose(validation_users=10_000)


_Build = Callable[[Mapping[str, Any]], NeighbourSearcher]
_Tried = tuple[float, NeighbourSearcher, dict[str, Any]]


def interactions(histories: ItemLists, num_items: int) -> sparse.csr_matrix:
    """Binary float64 [users, N]: who took what."""
    distinct = histories.distinct()
    ones = np.ones(len(distinct.items))
    return sparse.csr_matrix((ones, distinct.items, distinct.indptr), shape=(len(distinct), num_items))


def counts_within(
    histories: ItemLists, num_items: int, steps: int, *, power: float = 1.0, weights: FloatArray | None = None
) -> sparse.csr_matrix:
    """[N, N]: the sum of 1 / gap^power over all pairs (i, then j `gap` steps later) of a history, gap 1..steps.

    `weights` [histories]: what a pair of each history counts besides; None for 1.
    """
    total = sparse.csr_matrix((num_items, num_items))
    rows = histories.rows
    for gap in range(1, min(steps + 1, int(histories.lengths.max(initial=0)))):
        same = rows[gap:] == rows[:-gap]
        first, later = histories.items[:-gap][same], histories.items[gap:][same]
        values = np.full(len(first), float(gap) ** -power)
        if weights is not None:
            values *= weights[rows[gap:][same]]
        total = total + sparse.csr_matrix((values, (first, later)), shape=(num_items, num_items))
    total.setdiag(0)
    total.eliminate_zeros()
    return sparse.csr_matrix(total)


def best_of_grid(
    split: Split, config: CountingConfig, matrix: Callable[..., sparse.csr_matrix], seed: int, **tried: Sequence[Any]
) -> tuple[NeighbourSearcher, dict[str, Any]]:
    """The searcher by `matrix(**values)` [N, N] and what was chosen: of the values `tried` by name, and of the decays.

    Chosen is what has the best f@20 on validation queries, the mean of seen items kept and removed: all of them, or a
    draw of `config.choose.validation_users`.
    """
    matrix = functools.lru_cache(maxsize=1)(matrix)  # the decays of one matrix follow each other

    def build(candidate: Mapping[str, Any]) -> NeighbourSearcher:
        return NeighbourSearcher(
            matrix(**{name: candidate[name] for name in tried}),
            split.train.item_counts,
            decay=candidate["decay"],
            length=config.model.length,
            seen=candidate["seen"],
        )

    values = tried | {"decay": config.model.decay}
    candidates = (dict(zip(values, each, strict=True)) for each in itertools.product(*values.values()))
    queries = drawn(split.valid, config.choose.validation_users, seed=seed)
    return _choose(candidates, build, queries, config.model.seen)


def _choose(
    candidates: Iterable[Mapping[str, Any]], build: _Build, queries: Queries, seen: Sequence[SeenPlace]
) -> tuple[NeighbourSearcher, dict[str, Any]]:
    """The best on the queries, of equal ones the first.

    The first of `seen` stands for all until a candidate is chosen, of which the best is kept then.
    """
    best = None
    for candidate in candidates:
        best = _better(best, dict(candidate) | {"seen": seen[0]}, build, queries)
    assert best is not None, "the grid is not empty"
    chosen = best[2]
    for place in seen[1:]:
        best = _better(best, chosen | {"seen": place}, build, queries)
    value, searcher, chosen = best
    return searcher, chosen | {f"valid/f@{min(20, searcher.num_items)}": value}


def _better(best: _Tried | None, settings: dict[str, Any], build: _Build, queries: Queries) -> _Tried:
    """What is better on the queries: the best so far, or the given settings."""
    searcher = build(settings)
    cut = min(20, searcher.num_items)
    views = evaluate_both(searcher, queries, ks=(cut,))
    value = float(np.mean([view.means()[f"f@{cut}"] for view in views.values()]))
    return (value, searcher, settings) if best is None or value > best[0] else best
