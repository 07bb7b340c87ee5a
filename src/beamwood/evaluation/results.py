"""The results of an evaluation: values of each query, and overall metrics, in views with and without seen items.

Shape legend: Q queries, G groups of items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.notebook import lines, table
from beamwood.words import counted

__all__ = ["VIEWS", "GroupHits", "PerQuery", "Views"]

VIEWS = {"kept": "seen items kept", "removed": "seen items removed"}


@dataclass(frozen=True, slots=True)
class GroupHits:
    """For each query, by group of items: `labels` int64[Q, G], the number of labels, and `found`, those in
    the first k.
    """

    found: NDArray[np.int64]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PerQuery:
    """The results of an evaluation.

    `users` int64[Q], the users of the evaluated queries in order; `values` float64[Q] by name, as "f@20"; `overall`:
    metrics of all lists together, as "coverage@20", "tail_share@20" and "gini@20"; `view`: a key of `VIEWS`;
    `without_labels`: queries that could not be evaluated; `tail_rule` in words; `scored`: items or nodes scored a
    query; `seconds` of the search, and of encoding the queries if `encodes`, as only the first view does; `groups`:
    with groups of items, the labels found at the smallest cut.
    """

    users: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]
    overall: dict[str, float]
    view: str
    ks: tuple[int, ...]
    without_labels: int
    tail_rule: str | None
    scored: float
    seconds: float
    encodes: bool
    groups: GroupHits | None = None

    def __len__(self) -> int:
        return len(self.users)

    def means(self) -> dict[str, float]:
        """The mean over queries of each metric, and the overall figures."""
        return {name: float(column.mean()) for name, column in self.values.items()} | self.overall

    def __repr__(self) -> str:
        return f"PerQuery of {counted(len(self), 'user')}\n{lines(*Views({self.view: self}).shown())}"

    def _repr_html_(self) -> str:
        return table(*Views({self.view: self}).shown())

    def as_dict(self) -> dict[str, Any]:
        """The means and the protocol, JSON-able."""
        return {
            "metrics": self.means(),
            "protocol": {
                "view": self.view,
                "seen": VIEWS[self.view],
                "ks": list(self.ks),
                "queries": len(self),
                "queries_without_labels": self.without_labels,
                "candidates": "the whole catalogue",
                "tail_rule": self.tail_rule,
            },
            "scored_per_query": self.scored,
            "seconds": self.seconds,
            "seconds_of": "encoding and search" if self.encodes else "search, of queries encoded for the other view",
        }


class Views(dict[str, PerQuery]):
    """The results by view, "kept" and "removed"; the means are shown."""

    def shown(self) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        """Columns and rows of a table of the means."""
        means = {VIEWS.get(view, view): found.means() for view, found in self.items()}
        names = dict.fromkeys(name for found in means.values() for name in found)
        rows = [(name, *(found.get(name) for found in means.values())) for name in names]
        return ("mean of test users", *means), rows

    def __repr__(self) -> str:
        return lines(*self.shown())

    def _repr_html_(self) -> str:
        return table(*self.shown())
