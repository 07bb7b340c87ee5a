"""Buckets of items, which may overlap: the opened ones, and exact products inside them.

Shape legend: C buckets, N items, P buckets opened, M items inside, D width, k results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamwood.errors import ArtefactError
from beamwood.kernels.arrays import check_integers, sound
from beamwood.ragged import indptr_of, is_in, sorted_distinct
from beamwood.retrieval.top_k import of_columns, top_k
from beamwood.types import FloatArray, Hits, IndexArray, ItemLists, SearchOptions

__all__ = ["Buckets", "best_inside", "best_of", "probed_items"]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Items by bucket as compressed rows: `lists[c]` holds the items of bucket c, ascending.

    Every item is in at least one bucket. `overlap`: some are in several.
    """

    lists: ItemLists
    num_items: int
    overlap: bool

    @classmethod
    def of(cls, bucket_N: IndexArray, num_buckets: int) -> Buckets:
        """Each item in one bucket."""
        return cls.of_pairs(bucket_N, np.arange(len(bucket_N)), num_buckets, len(bucket_N))

    @classmethod
    def of_pairs(cls, buckets: IndexArray, items: IndexArray, num_buckets: int, num_items: int) -> Buckets:
        """Item `items[p]` in bucket `buckets[p]`; repeated pairs count once."""
        pairs = sorted_distinct(np.asarray(buckets, np.int64) * num_items + np.asarray(items, np.int64))
        indptr = indptr_of(np.bincount(pairs // num_items, minlength=num_buckets))
        lists = ItemLists(indptr, (pairs % num_items).astype(np.int32))
        return cls(lists, num_items, len(pairs) > num_items)

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """int64[C], the number of items in each."""
        return self.lists.lengths

    def members(self, buckets_P: IndexArray) -> NDArray[np.int32]:
        """int32[M], the items of some buckets, ascending, each once."""
        indptr, items = self.lists.indptr, self.lists.items
        found = np.concatenate([items[:0], *(items[indptr[c] : indptr[c + 1]] for c in buckets_P.tolist())])
        found.sort()
        return found[np.diff(found, prepend=-1) > 0] if self.overlap else found

    def of_item(self) -> NDArray[np.int32]:
        """int32[N], the bucket of each item, the last of several."""
        bucket_N = np.zeros(self.num_items, np.int32)
        bucket_N[self.lists.items] = self.lists.rows
        return bucket_N

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays to save."""
        return {"bucket_starts": self.lists.indptr, "bucket_items": self.lists.items}

    @classmethod
    def restore(cls, arrays: dict[str, NDArray[Any]], num_items: int, num_buckets: int | None = None) -> Buckets:
        """The buckets of saved `arrays`. Errors: `ArtefactError` unless every item is in a bucket, in ascending order,
        without repeats, and there are `num_buckets` of them (None: any number).
        """
        check_integers(arrays, {"bucket_starts": (np.int64,), "bucket_items": (np.int32,)})
        lists = ItemLists(arrays["bucket_starts"], arrays["bucket_items"])
        if num_buckets is not None and len(lists) != num_buckets:
            raise ArtefactError(f"the index has {len(lists)} buckets, expected {num_buckets}")
        inside = np.diff(lists.items) > 0
        starts = lists.indptr[1:-1]
        inside[starts[(starts > 0) & (starts < len(lists.items))] - 1] = True
        if not inside.all() or (len(lists.items) and int(lists.items.max()) >= num_items):
            raise ArtefactError(f"the index's buckets do not hold ascending items of {num_items}")
        if np.bincount(lists.items, minlength=num_items).min(initial=1) < 1:
            raise ArtefactError("the index has items in no bucket")
        return cls(lists, num_items, len(lists.items) > num_items)


def probed_items(
    buckets: Buckets, order_C: IndexArray, num_probed: int, k: int, options: SearchOptions
) -> NDArray[np.int32]:
    """int32[M], ascending, the allowed items of one row in the first `num_probed` buckets of `order_C`.

    Where fewer than k items are left, the number of buckets is doubled, up to all.
    """
    count = min(num_probed, len(order_C))
    while True:
        items = buckets.members(np.asarray(order_C[:count], np.int64))
        if options.allowed is not None:
            items = items[options.allowed[items]]
        if options.excluded is not None and len(options.excluded.items):
            items = items[~is_in(items, options.excluded.items)]
        if len(items) >= k or count == len(order_C):
            return items
        count = min(2 * count, len(order_C))


def best_of(items_M: NDArray[np.int32], scores_M: FloatArray, k: int) -> Hits:
    """The k best of one row's items, which ascend, by their scores, in the order of `top_k`."""
    return of_columns(top_k(sound(scores_M)[None], k), items_M)


def best_inside(
    buckets: Buckets,
    vectors_ND: FloatArray,
    query_D: FloatArray,
    order_C: IndexArray,
    num_probed: int,
    k: int,
    options: SearchOptions,
) -> Hits:
    """The k largest products of one row inside its opened buckets; `scored` counts these products."""
    items = probed_items(buckets, order_C, num_probed, k, options)
    return best_of(items, vectors_ND[items] @ query_D, k)
