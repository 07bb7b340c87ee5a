"""The prefix tree: nodes against sets of tuples, children, live nodes under a filter, refused codes."""

import numpy as np
import pytest

from beamwood.errors import ArtefactError
from beamwood.tree.prefixes import Prefixes


def drawn(num_items=60, num_places=3, num_words=5, seed=0):
    """Distinct codes in random order."""
    rng = np.random.default_rng(seed)
    every = np.array(np.meshgrid(*[np.arange(num_words)] * num_places)).reshape(num_places, -1).T
    return every[rng.permutation(len(every))[:num_items]]


@pytest.mark.parametrize("seed", range(4))
def test_nodes_are_the_existing_prefixes(seed):
    codes = drawn(seed=seed)
    tree = Prefixes.of(codes)
    for place in range(3):
        own = sorted({tuple(row[: place + 1]) for row in codes.tolist()})
        assert tree.words[place].tolist() == [prefix[-1] for prefix in own]
        above = [()] if place == 0 else sorted({tuple(row[:place]) for row in codes.tolist()})
        assert [above[parent] for parent in tree.parents[place]] == [prefix[:-1] for prefix in own]
        for node, prefix in enumerate(own):
            below = tree.item_of_leaf[tree.starts[place][node] : tree.starts[place][node + 1]]
            assert {tuple(codes[item][: place + 1]) for item in below} == {prefix}
            assert len(below) == sum(tuple(row[: place + 1]) == prefix for row in codes.tolist())
            assert (tree.nodes_of[place][tree.starts[place][node] : tree.starts[place][node + 1]] == node).all()
    assert np.array_equal(tree.item_of_leaf[tree.leaves()], np.arange(60))
    assert np.array_equal(tree.words[2], codes[tree.item_of_leaf][:, 2])


def test_children_and_live_nodes():
    codes = drawn()
    tree = Prefixes.of(codes)
    nodes, counts = tree.children(1, np.array([2, 0, 0]))
    expected = [np.flatnonzero(tree.parents[1] == node) for node in (2, 0, 0)]
    assert nodes.tolist() == np.concatenate(expected).tolist()
    assert counts.tolist() == [len(each) for each in expected]
    allowed = np.zeros(60, bool)
    allowed[[3, 17]] = True
    for place in range(3):
        kept = {tuple(codes[item][: place + 1]) for item in (3, 17)}
        own = sorted({tuple(row[: place + 1]) for row in codes.tolist()})
        assert tree.alive(place, allowed).tolist() == [prefix in kept for prefix in own]


def test_invalid_codes_are_refused():
    with pytest.raises(ArtefactError, match="two items have the same codes"):
        Prefixes.of(np.array([[1, 2], [0, 1], [1, 2]]))
    with pytest.raises(ArtefactError, match="codes of 0 or more"):
        Prefixes.of(np.array([[1, -2]]))
    with pytest.raises(ArtefactError, match="give a row of codes"):
        Prefixes.of(np.empty((0, 2), np.int32))
