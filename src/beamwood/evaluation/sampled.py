"""The sampled protocol: each label is ranked among drawn items; faster than full ranking, but not comparable.

Shape legend: Q queries, P pairs of a query and a label, M negatives of a pair.

It is not an estimate of full ranking: the order of two models may differ (Krichene and Rendle 2020).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beamwood.blocks import slices
from beamwood.data.queries import Queries
from beamwood.data.unseen import UnseenItems
from beamwood.errors import InputError
from beamwood.evaluation.protocol import checked_ks
from beamwood.types import Searcher

__all__ = ["NUM_NEGATIVES", "SAMPLED_METRICS", "Sampled", "evaluate_sampled"]

SAMPLED_METRICS = ("hit_rate", "ndcg", "mrr")
# Scores held at a time.
_BLOCK_CELLS = 2**20
NUM_NEGATIVES = 99
"""Items among which a label is ranked, as in most papers."""


class Sampled:
    """For each label of each query `num_negatives` distinct items that the user has not seen, drawn once.

    Neither seen items nor the query's other labels are drawn. Errors: a user who has seen too many items.
    """

    def __init__(self, queries: Queries, num_items: int, *, num_negatives: int = NUM_NEGATIVES, seed: int = 0) -> None:
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


def evaluate_sampled(searcher: Searcher, sampled: Sampled, *, ks: Sequence[int]) -> dict[str, NDArray[np.float64]]:
    """float64[Q] by name: hit rate, NDCG and MRR at each k, the mean over a query's labels of each on its own.

    Errors: a cut above the length of the lists.
    """
    ranks, rows = sampled.ranks(searcher), sampled.rows_P
    num_queries = len(sampled.queries)
    labels = np.bincount(rows, minlength=num_queries)
    values = {}
    for k in checked_ks(ks, None):
        if k > sampled.items_PM.shape[1]:
            raise InputError(f"k={k} is above {sampled.items_PM.shape[1]}, the items of a list; give lower cuts")
        inside = ranks <= k
        gains = (inside, inside / np.log2(1 + ranks), inside / ranks)
        for name, gain in zip(SAMPLED_METRICS, gains, strict=True):
            values[f"{name}@{k}"] = np.bincount(rows, gain, minlength=num_queries)[labels > 0] / labels[labels > 0]
    return values
