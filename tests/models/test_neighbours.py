"""Counted neighbours of the nodes of every level, against plain loops."""

import numpy as np
import pytest
import torch
from scipy import sparse

from beamwood.models.neighbours import NodeNeighbours
from beamwood.tree.tree import Shape

SHAPE = Shape(3, 4, 3)
RNG = np.random.default_rng(0)
COUNTS = [sparse.random_array((48, 48), density=0.2, rng=RNG, format="csr") for _ in range(3)]
FREQUENCIES = RNG.dirichlet(np.ones(48))


def started(count, places):
    near = NodeNeighbours(SHAPE, count, len(places), folds=2)
    near.start(COUNTS, FREQUENCIES, torch.tensor(places), 0.5)
    return near


def expected_lifts(version, level):
    """[size, size]: the share that each node has of what surrounded another, over its own of all; and the shares."""
    below, counts = SHAPE.leaves_below(level), COUNTS[version].toarray()
    shares, frequencies = np.zeros((SHAPE.level_size(level),) * 2), np.zeros(SHAPE.level_size(level))
    for a in range(48):
        frequencies[a // below] += FREQUENCIES[a]
        for b in range(48):
            shares[a // below, b // below] += counts[a, b]
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1e-9)
    return shares / frequencies, shares


@pytest.mark.parametrize("count", [1, 5, 48])
def test_lists_hold_the_lifts_of_the_largest_shares(count):
    near = started(count, [1.0] * 6)
    for version in range(3):
        for level in (1, 2, 3):
            offset, (lifts, shares) = SHAPE.level_offset(level), expected_lifts(version, level)
            for node, row in enumerate(shares):
                own = near.every()[version]
                listed, got = own.nodes[offset + node].numpy(), own.lifts[offset + node].numpy()
                kept = listed[listed >= 0]
                assert len(kept) == min(count, np.count_nonzero(row))
                assert not got[listed < 0].any()
                np.testing.assert_allclose(got[listed >= 0], lifts[node, kept], rtol=1e-5)
                np.testing.assert_allclose(np.sort(row[kept])[::-1], np.sort(row)[::-1][: len(kept)], rtol=1e-5)


@pytest.mark.parametrize("folds", [None, [0, 1], [1, 1]])
def test_places_weigh_what_their_entry_lists(folds):
    """In a row that is of a fold, by the lists that leave it out."""
    near = started(48, [0.1, 1.0, 10.0])
    leaves = torch.tensor([[-1, 7, 40], [-1, -1, -1]])
    folds_B = None if folds is None else torch.tensor(folds)
    for level in (1, 2, 3):
        below, (lifts, _) = SHAPE.leaves_below(level), expected_lifts(0 if folds is None else 1 + folds[0], level)
        expected = np.zeros((2, SHAPE.level_size(level)))
        expected[0] = 0.5 * np.log(1 + lifts[7 // below] + 10 * lifts[40 // below])
        np.testing.assert_allclose(near(leaves, level, None, folds_B).detach(), expected, rtol=1e-5, atol=1e-5)
        some = torch.tensor([[2, 0], [1, 1]])
        got = near(leaves, level, some, folds_B).detach()
        np.testing.assert_allclose(got, np.take_along_axis(expected, some.numpy(), 1), rtol=1e-5, atol=1e-5)


def test_what_weighs_nothing_stays_finite():
    near = started(5, [0.0, 1e-40, 1.0])
    assert torch.isfinite(near.places).all()
    near(torch.tensor([[3, 7, 40]]), 3, None).sum().backward()
    assert torch.isfinite(near.places.grad).all()
    np.testing.assert_allclose(near.export().places, [0, 0, 1], atol=1e-6)


def test_what_is_exported_is_of_all_users():
    near = started(5, [0.1, 1.0, 10.0])
    exported = near.export()
    assert np.array_equal(exported.nodes, near.lists.nodes)
    assert np.array_equal(exported.lifts, near.lists.lifts)
    np.testing.assert_allclose(exported.places, [0.1, 1, 10], rtol=1e-5)
    assert exported.gain == 0.5


def test_moved_twice_back_to_where_they_were():
    """With lists that hold all there is nothing is lost, and what surrounded a leaf goes with it."""
    near = started(48, [1.0] * 3)
    before = [(own.nodes.clone(), own.lifts.clone()) for own in near.every()]
    items, other = np.arange(48), np.random.default_rng(1).permutation(48)
    near.move(items, other)
    assert not any(torch.equal(own.nodes, nodes) for own, (nodes, _) in zip(near.every(), before, strict=True))
    near.move(other, items)
    for own, (nodes, lifts) in zip(near.every(), before, strict=True):
        # Shares that are equal may change places.
        same = own.nodes == nodes
        assert same.float().mean() > 0.95
        torch.testing.assert_close(own.lifts[same], lifts[same], rtol=1e-4, atol=1e-5)


def test_lists_that_can_be_made_anew_are_not_saved():
    for moves in (False, True):
        saved = NodeNeighbours(SHAPE, 5, 6, folds=2, moves=moves).state_dict()
        assert {"lists.nodes", "lists.lifts", "places", "gain"} <= set(saved)
        assert ("held_out.1.nodes" in saved) == moves
