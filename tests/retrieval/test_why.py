"""The path to an item has the ranks and scores by which the search decides."""

import numpy as np
import pytest

from beamwood.kernels.links import LINKS
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.retrieval.why import reasons
from beamwood.types import ItemLists, Query
from retrieval_cases import tree_searcher

N = 500


@pytest.mark.parametrize("link", ["softmax", "path"])
def test_ranks_are_those_of_the_search(link):
    """A node is not ranked behind itself, whose score beside other nodes may be rounded otherwise."""
    plain = tree_searcher(N, width=24)
    searcher = TreeSearcher(plain.weights, plain.tree, beam_width=N, link=LINKS[link])
    for seed in range(5):
        history = np.random.default_rng(seed).integers(0, N, 9).astype(np.int32)
        found = searcher.search(Query.of(ItemLists.from_lists([history])), N)
        leaves = [why.path[-1] for why in reasons(searcher, history, found.items[0])]
        assert [leaf.rank for leaf in leaves] == list(range(1, N + 1))
        assert {(leaf.of, leaf.reached) for leaf in leaves} == {(N, True)}
        np.testing.assert_allclose([leaf.score for leaf in leaves], found.scores[0], rtol=1e-4, atol=1e-5)
