"""DTR with a custom term: recent interactions of a node's items relative to all their interactions."""

from dataclasses import replace
from functools import partial

import numpy as np
from array_api_compat import array_namespace

from beamwood.kernels.terms import Term, moved_leaves, sums_of_leaves
from beamwood.methods.dtr import METHOD as DTR
from beamwood.retrieval.searchers.tree import TreeSearcher, searcher_with


class Trend(Term):
    """`weight (log(1 + late(n)) - log(1 + taken(n)))`; training learns `weight`."""

    name, learned, by_node = "trend", ("weight",), ("counts",)

    def arrays(self, shape, history_length):
        return {"counts": np.zeros((shape.num_nodes, 2), np.float32), "weight": np.zeros(1, np.float32)}

    def start(self, held, counted):
        late = np.bincount(counted.histories.last(2).items, minlength=len(counted.item_counts))
        leaves = np.zeros((counted.tree.shape.capacity, 2), np.float32)
        leaves[counted.tree.leaf_of_item] = np.stack([late, counted.item_counts], axis=1)
        held["counts"][:], held["weight"][:] = sums_of_leaves(leaves, counted.tree.shape), 0.5

    def move(self, held, place, shape):
        held["counts"][:] = sums_of_leaves(moved_leaves(held["counts"][-shape.capacity :], place), shape)

    def score(self, held, query):
        counts = array_namespace(held["counts"]).log1p(query.of_nodes(held["counts"]))
        return held["weight"] * (counts[..., 0] - counts[..., 1])


METHOD = replace(
    DTR,
    name="dtr-trend",
    fit=partial(DTR.fit, terms=(Trend(),)),
    searchers={TreeSearcher.kind: searcher_with(Trend())},
)
