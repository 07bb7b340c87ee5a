"""A custom searcher: the user's items first, most recent first, then the most popular items.

Shape legend: B rows, M items a row, N items, k results.
"""

import numpy as np

from beamwood.fitting.method_config import MethodConfig
from beamwood.methods import Method
from beamwood.retrieval.top_k import top_k
from beamwood.types import QueryNeeds, SearchOptions


class TookLately:
    """`share_N` float32[N] in 0..1: each item's share of all interactions."""

    kind, needs = "took-lately", QueryNeeds()

    def __init__(self, share_N):
        self.share_N = share_N

    @property
    def num_items(self):
        return len(self.share_N)

    def _every(self, histories):
        """float32[B, N]: the position in the history, from 1, else the share."""
        scores_BN = np.tile(self.share_N, (len(histories), 1))
        places = np.arange(len(histories.items)) - histories.indptr[histories.rows] + 1
        np.maximum.at(scores_BN, (histories.rows, histories.items), places.astype(np.float32))
        return scores_BN

    def search(self, query, k, options=SearchOptions()):
        return top_k(self._every(query.histories), k, excluded=options.excluded, allowed=options.allowed)

    def score(self, query, items_BM):
        own_BM = np.take_along_axis(self._every(query.histories), np.maximum(items_BM, 0), axis=1)
        return np.where(items_BM < 0, np.float32(-np.inf), own_BM)

    def export(self):
        return {}, {"share": self.share_N}

    @classmethod
    def restore(cls, config, arrays, *, threads=1):  # noqa: ARG003
        return cls(arrays["share"])


def build(split, config, seed, budget):
    counts_N = split.train.item_counts
    return TookLately((counts_N / max(1, counts_N.sum())).astype(np.float32))


METHOD = Method(
    name="took-lately",
    summary="what the user took, the latest first, and then what many took",
    Config=MethodConfig,
    build=build,
    searchers={TookLately.kind: TookLately},
)
