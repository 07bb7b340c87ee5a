"""Siblings come first, then uniform draws of the level; the target and its siblings are never drawn."""

import numpy as np
import pytest
import torch

from beamwood.retrieval.index.clusters import ClusterTree
from beamwood.sampling.siblings import siblings_first

# Children of the root: 1, 2, 3. Node 1 has the children 4, 5, 6, node 2 none, and node 3 the children 7, 8.
TREE = ClusterTree.of([3, 3, 0, 2, 0, 0, 0, 0, 0])


def drawn(targets, level, count, seed=0):
    siblings, parents = torch.from_numpy(TREE.siblings()), torch.from_numpy(TREE.parents)
    rng = torch.Generator().manual_seed(seed)
    return siblings_first(torch.tensor(targets), siblings, parents, level, count, rng).numpy()


def test_siblings_are_the_other_children():
    own = [sorted(row[row >= 0].tolist()) for row in TREE.siblings()]
    assert own == [[], [2, 3], [1, 3], [1, 2], [5, 6], [4, 6], [4, 5], [8], [7]]
    # Missing entries come last.
    assert all((np.diff(row < 0) >= 0).all() for row in TREE.siblings())


def test_they_come_first_and_are_never_drawn():
    found = drawn([4, 8] * 50, (4, 9), 4)
    assert found.shape == (100, 4)
    assert (found[::2, :2] == [5, 6]).all()
    assert set(found[::2, 2:].ravel().tolist()) == {-1, 7, 8}
    assert (found[1::2, 0] == 7).all()
    assert set(found[1::2, 1:].ravel().tolist()) == {-1, 4, 5, 6}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_of_more_siblings_each_is_as_likely(count):
    """A chi-square test over the 4 siblings of a node; another node has a single one."""
    tree = ClusterTree.of([2, 5, 2, *[0] * 7])
    siblings, parents = torch.from_numpy(tree.siblings()), torch.from_numpy(tree.parents)
    rng = torch.Generator().manual_seed(count)
    found = siblings_first(torch.tensor([3, 8] * 2000), siblings, parents, (3, 10), count, rng).numpy()
    assert all(len(set(row)) == count for row in found[::2].tolist())
    counts, expected = np.bincount(found[::2].ravel(), minlength=8), 2000 * count / 4
    assert counts[:4].sum() == 0
    assert ((counts[4:] - expected) ** 2 / expected).sum() < 25
    assert (found[1::2, 0] == 9).all()


def test_draws_are_uniform_over_other_nodes():
    """A chi-square test over 3 outcomes: for node 8, the nodes with another parent."""
    found = drawn([8] * 4000, (4, 9), 4)[:, 1:].ravel()
    counts = np.bincount(found[found >= 0], minlength=9)[4:7]
    expected = 4000 * 3 / 5
    assert ((counts - expected) ** 2 / expected).sum() < 20
