"""A custom index: items are in buckets by direction; a query probes the nearest buckets, and all if necessary.

Shape legend: B rows, N items, D width, C buckets.
"""

from dataclasses import replace
from functools import partial

import numpy as np

from beamwood.methods.sasrec import METHOD as SASREC
from beamwood.retrieval.index import IndexInputs, IndexSettings, own_settings
from beamwood.retrieval.products import best_products
from beamwood.retrieval.searchers.vectors import VectorSearcher, searcher_with
from beamwood.types import SearchOptions


class Buckets:
    """C = 8 centres drawn from the items; each item is in the bucket of its nearest centre, and half are probed."""

    kind, Settings, modules, trains = "buckets", IndexSettings, (), False

    def __init__(self, vectors_ND, settings=None, inputs=IndexInputs(), *, bucket_N=None):
        own_settings(IndexSettings, settings)
        self.vectors = vectors_ND
        centres_CD = vectors_ND[:: -(-len(vectors_ND) // 8)]
        self.bucket_N = np.argmax(vectors_ND @ centres_CD.T, axis=1).astype(np.int32) if bucket_N is None else bucket_N
        self.centres_CD = centres_CD

    def search(self, queries_BD, k, options=SearchOptions()):
        hits = best_products(queries_BD, self.vectors, k, excluded=options.excluded, allowed=options.allowed)
        near_BC = np.argsort(-queries_BD @ self.centres_CD.T, axis=1)[:, : -(-len(self.centres_CD) // 2)]
        for row, near in enumerate(near_BC):
            mask = np.isin(self.bucket_N, near)
            mask = mask if options.allowed is None else mask & options.allowed
            banned = options.take(np.array([row])).excluded
            found = best_products(queries_BD[row : row + 1], self.vectors, k, excluded=banned, allowed=mask)
            if (found.items >= 0).all():
                hits.items[row], hits.scores[row], hits.scored[row] = found.items, found.scores, mask.sum()
        return hits

    def export(self):
        return {}, {"bucket": self.bucket_N}

    @classmethod
    def restore(cls, vectors_ND, config, arrays):  # noqa: ARG003
        return cls(vectors_ND, bucket_N=arrays["bucket"])


METHOD = replace(
    SASREC,
    name="sasrec-buckets",
    fit=partial(SASREC.fit, index=Buckets),
    searchers={VectorSearcher.kind: searcher_with(indexes=[Buckets])},
)
