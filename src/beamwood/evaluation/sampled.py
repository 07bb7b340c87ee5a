"""The sampled protocol: each label is ranked among drawn items; faster than full ranking, but not comparable.

Shape legend: Q queries, P pairs of a query and a label, M negatives of a pair.

It is not an estimate of full ranking: the order of two models may differ (Krichene and Rendle 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.data.queries import Queries
from beamwood.data.unseen import UnseenItems
from beamwood.errors import InputError, nearest
from beamwood.evaluation.protocol import checked_ks
from beamwood.types import Searcher

__all__ = ["Sampled", "SampledValidation", "evaluate_sampled"]

_METRICS = ("hit_rate", "ndcg", "mrr")
# Scores held at a time.
_BLOCK_CELLS = 2**20
# Items among which a label is ranked, as in most papers, and the cuts of validation.
_NEGATIVES, _CUTS = 99, (5, 10, 20)


class Sampled:
    """For each label of each query `num_negatives` distinct items that the user has not seen, drawn once.

    Neither seen items nor the query's other labels are drawn. Errors: a user who has seen too many items.
    """

    def __init__(self, queries: Queries, num_items: int, *, num_negatives: int = _NEGATIVES, seed: int = 0) -> None:
        self.queries, self.num_negatives, self.seed, labels = queries, num_negatives, seed, queries.labels
        self.rows_P = labels.rows
        unseen = UnseenItems(queries.seen.union(labels), num_items)
        most = num_items - int(unseen.lengths[self.rows_P].max(initial=0))
        if not 1 <= num_negatives <= most:
            raise InputError(
                f"num_negatives={num_negatives} is outside 1..{most}: a query leaves {most} of {num_items} items to "
                f"draw; {f'ask for at most {most} (--sampled {most})' if most else 'leave --sampled out'}"
            )
        negatives = unseen.distinct(self.rows_P, num_negatives, np.random.default_rng(seed))
        self.items_PM = np.concatenate([labels.items[:, None].astype(np.int64), negatives], axis=1)

    @property
    def rule(self) -> str:
        """The protocol in words."""
        return (
            f"each label among {self.num_negatives} items that the user has not seen, drawn with seed {self.seed}; an "
            "equal score counts against the label; not comparable with full ranking"
        )

    def ranks(self, searcher: Searcher) -> NDArray[np.int64]:
        """int64[P], the place of each label among its negatives, 1 the best; an equal score counts against it."""
        ranks = np.empty(len(self.rows_P), np.int64)
        for part in slices(len(ranks), _BLOCK_CELLS // self.items_PM.shape[1]):
            rows, items = self.rows_P[part], self.items_PM[part]
            scores = searcher.score(self.queries.take(rows).query(searcher.needs), items)
            if np.isnan(scores).any():
                raise InputError("a score is NaN; items can only be ordered by numbers")
            ranks[part] = 1 + (scores[:, 1:] >= scores[:, :1]).sum(axis=1)
        return ranks


def evaluate_sampled(
    searcher: Searcher, sampled: Sampled, *, ks: Sequence[int] = _CUTS
) -> dict[str, NDArray[np.float64]]:
    """float64[Q] by name: hit rate, NDCG and MRR at each k, the mean over a query's labels of each on its own."""
    ranks, rows = sampled.ranks(searcher), sampled.rows_P
    num_queries = len(sampled.queries)
    labels = np.bincount(rows, minlength=num_queries)
    values = {}
    for k in checked_ks(ks, None):
        if k > sampled.items_PM.shape[1]:
            raise InputError(f"k={k} is above {sampled.items_PM.shape[1]}, the items of a list; give lower cuts")
        inside = ranks <= k
        gains = (inside, inside / np.log2(1 + ranks), inside / ranks)
        for name, gain in zip(_METRICS, gains, strict=True):
            values[f"{name}@{k}"] = np.bincount(rows, gain, minlength=num_queries)[labels > 0] / labels[labels > 0]
    return values


class SampledValidation:
    """Metrics of a searcher on fixed lists for a fixed draw of queries; names as "sampled/ndcg@10".

    Each label is ranked among 99 drawn items. Where the catalogue leaves a user fewer, all lists have that length.
    Errors: lists too short for any cut, and an unknown `monitor`.
    """

    def __init__(self, queries: Queries, num_items: int, *, num_users: int, seed: int, monitor: str) -> None:
        self.queries, self.num_items, self.seed = queries.sample(num_users, seed=seed), num_items, seed
        left = num_items - int(self.queries.seen.union(self.queries.labels).lengths.max(initial=0))
        self.num_negatives = min(_NEGATIVES, left)
        self.cuts = [k for k in _CUTS if k <= self.num_negatives + 1]
        if not self.cuts:
            raise InputError(
                f"a validation user leaves {left} of {num_items} items to draw, too few for choose.protocol=sampled; "
                "set choose.protocol=full and choose.monitor=removed/ndcg@20"
            )
        names = [f"sampled/{metric}@{k}" for metric in _METRICS for k in self.cuts]
        if monitor not in names:
            raise InputError(f"choose.monitor='{monitor}' is not measured{nearest(monitor, names)}")
        self._lists: dict[int | None, Sampled] = {None: self._drawn(self.queries)}

    def __len__(self) -> int:
        return len(self.queries)

    def __call__(self, searcher: Any, num: int | None = None) -> dict[str, float]:
        """The metrics of all queries, or of the first `num`, whose lists are then drawn differently."""
        if num not in self._lists:
            self._lists[num] = self._drawn(self.queries.take(np.arange(num or 0)))
        values = evaluate_sampled(searcher, self._lists[num], ks=self.cuts)
        return {f"sampled/{name}": float(column.mean()) for name, column in values.items()}

    def _drawn(self, queries: Queries) -> Sampled:
        return Sampled(queries, self.num_items, num_negatives=self.num_negatives, seed=self.seed)
