"""The evaluation of a search: every query, the whole catalogue, in one pass, with memory independent of the
catalogue.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from beamwood.arguments import naming_arguments
from beamwood.blocks import slices
from beamwood.data.split import Split
from beamwood.errors import InputError
from beamwood.evaluation.groups import by_popularity
from beamwood.evaluation.metrics import (
    METRICS,
    add_exposure,
    coverage,
    gini,
    metrics_at,
    relevance,
    share_of,
)
from beamwood.evaluation.results import VIEWS, GroupHits, PerQuery, Views
from beamwood.evaluation.tail import Tail, TailRule
from beamwood.steps import step
from beamwood.types import Hits, IndexArray, ItemLists, Query, QueryNeeds, SearchOptions

__all__ = [
    "LabelledQueries",
    "Searches",
    "checked_ks",
    "evaluate_both",
    "evaluate_split",
    "evaluate_views",
]


@runtime_checkable
class Searches(Protocol):
    """The evaluated part of a `types.Searcher`."""

    @property
    def needs(self) -> QueryNeeds: ...
    def search(self, query: Query, k: int, options: SearchOptions = SearchOptions()) -> Hits: ...


class LabelledQueries(Protocol):
    """Q queries: users, histories, labels and seen items."""

    @property
    def users(self) -> NDArray[np.int64]: ...
    @property
    def labels(self) -> ItemLists: ...
    @property
    def seen(self) -> ItemLists: ...
    def query(self, needs: QueryNeeds) -> Query: ...
    def take(self, rows: IndexArray) -> Self: ...


@dataclass(slots=True)
class _Running:
    """The accumulators of one pass: a value for each query and metric, and N counts for each cut."""

    ks: tuple[int, ...]
    exposures: dict[int, NDArray[np.int64]]
    group_N: IndexArray | None
    num_groups: int
    values: dict[str, list[NDArray[np.float64]]] = field(default_factory=dict)
    grouped: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=list)
    scored: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, ks: tuple[int, ...], num_items: int | None, group_N: IndexArray | None) -> Self:
        """Empty ones; without `num_items` nothing is counted by item."""
        exposures = {} if num_items is None else {k: np.zeros(num_items, np.int64) for k in ks}
        return cls(ks, exposures, group_N, 0 if group_N is None else int(group_N.max()) + 1)

    def add(self, hits: Hits, labels: ItemLists) -> None:
        relevant = relevance(hits.items, labels)
        for k in self.ks:
            for name, column in metrics_at(relevant, labels.lengths, k).items():
                self.values.setdefault(f"{name}@{k}", []).append(column)
            if self.exposures:
                add_exposure(self.exposures[k], hits.items[:, :k])
        if self.group_N is not None:
            rows, places = np.nonzero(relevant[:, : self.ks[0]])
            found = self._by_group(rows, hits.items[rows, places], len(labels))
            self.grouped.append((found, self._by_group(labels.rows, labels.items, len(labels))))
        self.scored += int(hits.scored.sum())

    def _by_group(self, rows: IndexArray, items: IndexArray, num_rows: int) -> NDArray[np.int64]:
        """int64[num_rows, G], the number of items of each row in each group."""
        assert self.group_N is not None
        cells = rows * self.num_groups + self.group_N[items]
        counts = np.bincount(cells, minlength=num_rows * self.num_groups)
        return counts.reshape(num_rows, self.num_groups).astype(np.int64)

    def groups(self) -> GroupHits | None:
        """The labels found of each group, None without groups."""
        if not self.grouped:
            return None
        found, labels = zip(*self.grouped, strict=True)
        return GroupHits(np.concatenate(found), np.concatenate(labels))


def evaluate_both(
    searcher: Searches,
    queries: LabelledQueries,
    *,
    ks: Sequence[int],
    batch_size: int = 256,
    tail: Tail | None = None,
    group_N: IndexArray | None = None,
) -> Views:
    """`evaluate_views` of both: "kept" (seen items kept) and "removed" (seen items removed)."""
    return evaluate_views(searcher, queries, tuple(VIEWS), ks=ks, batch_size=batch_size, tail=tail, group_N=group_N)


def evaluate_views(
    searcher: Searches,
    queries: LabelledQueries,
    views: Sequence[str],
    *,
    ks: Sequence[int],
    batch_size: int = 256,
    tail: Tail | None = None,
    group_N: IndexArray | None = None,
) -> Views:
    """Rank the whole catalogue for every query that has labels and measure every metric at every k, in each view.

    In "removed" the search must leave out the query's seen items; labels stay as they are, so a label seen before
    counts as a miss. A query is encoded once for all views. `tail`, as of `TailRule.tail`, adds coverage, the Gini
    index of exposure, and the share of the tail. `group_N` int[N], a group of each item, from 0: what is found of each
    is counted at the least cut. Queries without labels are left out and counted.
    Errors: a k outside 1..N, no query with labels, a search that answers with seen or unknown items.
    """
    num_items = None if tail is None else len(tail.mask)
    cuts = checked_ks(ks, num_items)
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size} is below 1; give at least 1")
    labels = queries.labels.distinct()
    judged = np.flatnonzero(labels.lengths > 0)
    if len(judged) == 0:
        raise InputError(f"none of the {len(labels)} queries has a label; nothing can be measured")
    running = {view: _Running.of(cuts, num_items, group_N) for view in views}
    with step("evaluating users", len(judged)) as progress:
        for part in slices(len(judged), batch_size):
            rows = judged[part]
            asked = queries.take(rows)
            query, wanted = asked.query(searcher.needs), labels.take(rows)
            for view, own in running.items():
                excluded = asked.seen if view == "removed" else None
                began = time.perf_counter()
                hits = searcher.search(query, cuts[-1], SearchOptions(excluded))
                own.seconds += time.perf_counter() - began
                _check_hits(hits, len(rows), cuts[-1], num_items, excluded)
                own.add(hits, wanted)
            progress.advance(len(rows))
    users, without = queries.users[judged], len(labels) - len(judged)
    finished = {
        view: _finished(own, users, without, view, tail, encodes=view == views[0]) for view, own in running.items()
    }
    return Views(finished)


@naming_arguments
def evaluate_split(
    searcher: Searches, split: Split, *, ks: Sequence[int] = (20,), rule: TailRule | None = None
) -> Views:
    """`evaluate_both` of a searcher on the test queries; tail and groups of items are by the training part.

    The tail is by `rule`, the groups by popularity, as of `groups.by_popularity`.
    """
    tail = (rule or TailRule()).tail(split.train)
    return evaluate_both(searcher, split.test, ks=ks, tail=tail, group_N=by_popularity(split).group_of)


def checked_ks(ks: Sequence[int], num_items: int | None) -> tuple[int, ...]:
    """The cuts, sorted and distinct. Errors: no cut; one that is not a whole number in 1..N, if N is known."""
    try:
        cuts = tuple(sorted({operator.index(k) for k in ks}))
    except TypeError:
        raise InputError(f"ks={ks!r} is not a list of whole numbers; give cuts, as ks=(20,)") from None
    if not cuts:
        raise InputError("ks is empty; give at least one cut, as ks=(20,)")
    if cuts[0] < 1:
        raise InputError(f"k={cuts[0]} is below 1; every cut must be at least 1")
    if num_items is not None and cuts[-1] > num_items:
        raise InputError(
            f"k={cuts[-1]} is above the {num_items} items of the catalogue; give lower cuts, as ks=({num_items},)"
        )
    return cuts


def _check_hits(hits: Hits, num_rows: int, k: int, num_items: int | None, excluded: ItemLists | None) -> None:
    if not isinstance(hits, Hits):
        raise InputError(f"the search answered with a {type(hits).__name__}; give Hits(items, scores, scored)")
    items: Any = hits.items
    if not isinstance(items, np.ndarray) or items.dtype.kind not in "iu":
        kind = items.dtype if isinstance(items, np.ndarray) else type(items).__name__
        raise InputError(f"the search answered with items of {kind}; give whole numbers, as int32")
    if np.isnan(hits.scores).any():
        raise InputError("the search answered with scores that are NaN; items can only be ordered by numbers")
    if hits.items.shape != (num_rows, k):
        raise InputError(f"the search answered with shape {hits.items.shape}; expected {(num_rows, k)}")
    if num_items is not None and int(hits.items.max(initial=-1)) >= num_items:
        raise InputError(
            f"the search answered with item {int(hits.items.max())}; the catalogue ends at {num_items - 1}"
        )
    if excluded is not None:
        wrong = int(relevance(hits.items, excluded).sum())
        if wrong:
            raise InputError(f"the search answered with {wrong} excluded items; it must honour `excluded`")


def _finished(
    running: _Running,
    users: NDArray[np.int64],
    without_labels: int,
    view: str,
    tail: Tail | None,
    *,
    encodes: bool,
) -> PerQuery:
    overall = {}
    if tail is not None:
        overall = {f"coverage@{k}": coverage(shown) for k, shown in running.exposures.items()}
        overall |= {f"tail_share@{k}": share_of(shown, tail.mask) for k, shown in running.exposures.items()}
        overall |= {f"gini@{k}": gini(shown) for k, shown in running.exposures.items()}
    by_name = {name: np.concatenate(parts) for name, parts in running.values.items()}
    return PerQuery(
        users=users,
        values={f"{name}@{k}": by_name[f"{name}@{k}"] for name in METRICS for k in running.ks},
        overall=overall,
        view=view,
        ks=running.ks,
        without_labels=without_labels,
        tail_rule=None if tail is None else tail.rule,
        scored=running.scored / len(users),
        seconds=running.seconds,
        encodes=encodes,
        groups=running.groups(),
    )
