"""An estimate, before a tree is trained, of the time of the searches for validation users."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from beamwood.data.split import Split
from beamwood.fitting.tree.config import TreeConfig
from beamwood.fitting.tree.settings import ORDERS
from beamwood.fitting.validation import CUT
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.training.budget import Clock
from beamwood.tree import Tree, flat_tree, random_tree
from beamwood.types import ItemLists, Query

__all__ = ["estimated_search_seconds"]

# Users and repetitions of the timed searches, and the most items of the timed tree.
_TIMED, _TIMES, _MOST_ITEMS = 16, 2, 50_000
# Searches before a model can be returned, each for this many users, or all if fewer: to time and choose the initial
# weight of seen items; to time validation in both views and the choice of a weight, to validate, and to choose.
_OF_START, _OF_ALL = (36, 36, 32, 32), (36, 36, 36, 36, 36, 36, 64, 64, 64)


def estimated_search_seconds(
    split: Split, config: TreeConfig, searcher: Callable[[Tree], TreeSearcher], clock: Clock
) -> float:
    """The estimated seconds of all searches before a model can be returned; 0 where nothing can be timed.

    They are extrapolated from searches for a few users. `searcher` builds one for a tree that is as large as the one to
    be trained, or smaller.
    """
    num_items, start = min(split.train.num_items, _MOST_ITEMS), config.tree.start
    num_labelled = int(np.count_nonzero(split.valid.labels.lengths))
    if num_labelled == 0 or (start not in ORDERS and start != "flat"):
        return 0.0
    tree = flat_tree(num_items)
    if start in ORDERS:
        tree = random_tree(num_items, np.random.default_rng(0), shape=config.tree.shape_of(num_items))
    searches = (*_OF_ALL, *(_OF_START if config.start.seen is None else ()))
    timed = searcher(tree)
    some = split.valid.take(np.arange(min(_TIMED, len(split.valid)))).histories
    histories = ItemLists(some.indptr, some.items % num_items)
    times = []
    for _ in range(_TIMES + 1):
        began = clock()
        timed.search(Query.of(histories), min(CUT, num_items))
        times.append(clock() - began)
    num_searches = sum(min(users, num_labelled) for users in searches)
    return float(min(times[1:]) / len(histories) * num_searches)
