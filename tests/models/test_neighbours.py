"""Counted neighbours of the nodes of every level, against plain loops."""

import numpy as np
import pytest
import torch
from scipy import sparse

from beamwood.models.neighbours import NodeNeighbours
from beamwood.tree.tree import Shape

SHAPE = Shape(3, 4, 3)
COUNTS = sparse.random_array((48, 48), density=0.2, rng=np.random.default_rng(0), format="csr")


def expected_shares(level):
    """[size, size]: the share that each node has of what surrounded another."""
    below, counts = SHAPE.leaves_below(level), COUNTS.toarray()
    shares = np.zeros((SHAPE.level_size(level),) * 2)
    for a in range(48):
        for b in range(48):
            shares[a // below, b // below] += counts[a, b]
    return shares / np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)


@pytest.mark.parametrize("count", [1, 5, 48])
def test_lists_hold_the_roots_of_the_largest_shares(count):
    near = NodeNeighbours(SHAPE, count, 6)
    near.start(COUNTS, torch.ones(6))
    for level in (1, 2, 3):
        offset, shares = SHAPE.level_offset(level), expected_shares(level)
        for node, row in enumerate(shares):
            listed, strengths = near.nodes[offset + node].numpy(), near.strengths[offset + node].numpy()
            kept = np.flatnonzero(listed >= 0)
            assert len(kept) == min(count, np.count_nonzero(row))
            assert not strengths[listed < 0].any()
            np.testing.assert_allclose(strengths[kept] ** 2, row[listed[kept]], rtol=1e-5)
            largest = np.sort(row)[::-1][: len(kept)]
            np.testing.assert_allclose(np.sort(strengths[kept] ** 2)[::-1], largest, rtol=1e-5)


def test_places_weigh_what_their_entry_lists():
    near = NodeNeighbours(SHAPE, 48, 3)
    near.start(COUNTS, torch.tensor([1.0, 10.0, 100.0]))
    leaves = torch.tensor([[-1, 7, 40], [-1, -1, -1]])
    for level in (1, 2, 3):
        below, strengths = SHAPE.leaves_below(level), np.sqrt(expected_shares(level))
        expected = np.zeros((2, SHAPE.level_size(level)))
        expected[0] = 10 * strengths[7 // below] + 100 * strengths[40 // below]
        np.testing.assert_allclose(near(leaves, level, None).detach(), expected, rtol=1e-5, atol=1e-5)
        some = torch.tensor([[2, 0], [1, 1]])
        got = near(leaves, level, some).detach()
        np.testing.assert_allclose(got, np.take_along_axis(expected, some.numpy(), 1), rtol=1e-5, atol=1e-5)


def test_moved_twice_back_to_where_they_were():
    """With lists that hold all there is nothing is lost, and what surrounded a leaf goes with it."""
    near = NodeNeighbours(SHAPE, 48, 3)
    near.start(COUNTS, torch.ones(3))
    nodes, strengths = near.nodes.clone(), near.strengths.clone()
    items, other = np.arange(48), np.random.default_rng(1).permutation(48)
    near.move(items, other)
    assert not torch.equal(near.nodes, nodes)
    near.move(other, items)
    torch.testing.assert_close(near.strengths, strengths, rtol=1e-4, atol=1e-5)
    # Shares that are equal may change places.
    assert (near.nodes == nodes).float().mean() > 0.95
