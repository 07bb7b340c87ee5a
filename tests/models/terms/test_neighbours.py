"""Neighbour counts of leaves, and their sums on every level, against plain loops."""

import numpy as np
import pytest
import torch
from scipy import sparse

from beamwood.kernels.terms import TermQuery
from beamwood.models.term_module import TermModule
from beamwood.models.terms import Neighbours
from beamwood.models.terms.neighbours import all_lists
from beamwood.tree.tree import Shape, Tree

SHAPE = Shape(3, 4, 3)
RNG = np.random.default_rng(0)
COUNTS = [sparse.random_array((48, 48), density=0.2, rng=RNG, format="csr") for _ in range(3)]
FREQUENCIES = RNG.dirichlet(np.ones(48))


class Counts:
    """Counts in the form that a term needs."""

    tree = Tree(SHAPE, np.arange(SHAPE.capacity))

    def neighbour_matrices(self, num_folds):
        return iter(COUNTS[: 1 + num_folds])

    def leaf_shares(self):
        return FREQUENCIES


def started(count, places):
    near = TermModule(Neighbours(count, 2), SHAPE, len(places))
    near.start(Counts())
    near.change(lambda held: weigh(held, places))
    return near


def weigh(held, places):
    held["places"][:] = np.log(np.expm1(np.maximum(places, 1e-30))) / 20
    held["gain"][:] = 0.5


def lists_of(near):
    return all_lists({name: array.numpy() for name, array in near.held().items() if not array.requires_grad})


def scores(near, leaves, level, nodes=None, folds=None):
    return near(TermQuery(SHAPE, level, leaves, nodes, folds))


def expected_lifts(version, level):
    """[48, size]: the share that each node has of what surrounded a leaf, over its own of all interactions."""
    below, counts = SHAPE.leaves_below(level), COUNTS[version].toarray()
    chances, shares = np.zeros((48, SHAPE.level_size(level))), np.zeros(SHAPE.level_size(level))
    for b in range(48):
        shares[b // below] += FREQUENCIES[b]
        for a in range(48):
            chances[a, b // below] += counts[a, b] / counts[a].sum()
    return chances / shares


@pytest.mark.parametrize("count", [1, 5, 48])
def test_lists_hold_the_largest_shares_of_each_leaf(count):
    near = started(count, [1.0] * 6)
    first = SHAPE.level_offset(3)
    for version, own in enumerate(lists_of(near)):
        assert (own.leaves[:first] == -1).all()
        assert not own.chances[:first].any()
        for leaf, row in enumerate(COUNTS[version].toarray()):
            listed, got = own.leaves[first + leaf], own.chances[first + leaf]
            kept = listed[listed >= 0]
            assert len(kept) == min(count, np.count_nonzero(row))
            assert not got[listed < 0].any()
            np.testing.assert_allclose(got[listed >= 0], row[kept] / row.sum(), rtol=1e-5)
            np.testing.assert_allclose(np.sort(row[kept])[::-1], np.sort(row)[::-1][: len(kept)], rtol=1e-5)


def test_the_lifts_of_a_level_count_its_leaves_together():
    """The share of a node is that of its leaves, and so is its chance: so a beam can find them."""
    near = started(48, [1.0])
    leaves = torch.tensor([[7]])
    sums = [torch.expm1(scores(near, leaves, level).detach() / 0.5) * near.shares[of_level(level)] for level in (2, 3)]
    torch.testing.assert_close(sums[0], sums[1].reshape(1, 12, 4).sum(dim=2), rtol=1e-4, atol=1e-6)


def of_level(level):
    return slice(SHAPE.level_offset(level), SHAPE.level_offset(level) + SHAPE.level_size(level))


@pytest.mark.parametrize("folds", [None, [0, 1], [1, 1]])
def test_position_weights_multiply_the_lists_of_their_entries(folds):
    """A row of a fold uses the lists without this fold."""
    near = started(48, [0.1, 1.0, 10.0])
    leaves = torch.tensor([[-1, 7, 40], [-1, -1, -1]])
    folds_B = None if folds is None else torch.tensor(folds)
    for level in (1, 2, 3):
        lifts = expected_lifts(0 if folds is None else 1 + folds[0], level)
        expected = np.zeros((2, SHAPE.level_size(level)))
        expected[0] = 0.5 * np.log(1 + lifts[7] + 10 * lifts[40])
        np.testing.assert_allclose(scores(near, leaves, level, None, folds_B).detach(), expected, rtol=1e-5, atol=1e-5)
        some = torch.tensor([[2, 0], [1, 1]])
        got = scores(near, leaves, level, some, folds_B).detach()
        np.testing.assert_allclose(got, np.take_along_axis(expected, some.numpy(), 1), rtol=1e-5, atol=1e-5)


def test_zero_weights_stay_finite():
    near = started(5, [0.0, 1e-40, 1.0])
    assert torch.isfinite(near.places).all()
    scores(near, torch.tensor([[3, 7, 40]]), 3).sum().backward()
    assert torch.isfinite(near.places.grad).all()
    np.testing.assert_allclose(near.export().arrays["places"], [0, 0, 1], atol=1e-6)


def test_exported_lists_are_over_all_users():
    near = started(5, [0.1, 1.0, 10.0])
    exported = near.export().arrays
    assert list(exported) == ["leaves", "chances", "shares", "places", "gain"]
    for name in ("leaves", "chances", "shares"):
        assert np.array_equal(exported[name], getattr(near, name))
    np.testing.assert_allclose(exported["places"], [0.1, 1, 10], rtol=1e-5)
    assert exported["gain"] == [0.5]


def test_lists_move_with_their_leaves_and_name_the_new_ones():
    near, first = started(5, [1.0] * 3), SHAPE.level_offset(3)
    before, shares = [(own.leaves.copy(), own.chances.copy()) for own in lists_of(near)], near.shares.clone()
    place = np.random.default_rng(1).permutation(48)
    near.move(place)
    for own, (leaves, chances) in zip(lists_of(near), before, strict=True):
        assert not np.array_equal(own.leaves, leaves)
        expected = np.where(leaves[first:] >= 0, place[leaves[first:]], -1)
        assert np.array_equal(own.leaves[first + place], expected)
        assert np.array_equal(own.chances[first + place], chances[first:])
    assert torch.equal(near.shares[first + place], shares[first:])
    near.move(np.argsort(place))
    for own, (leaves, chances) in zip(lists_of(near), before, strict=True):
        assert np.array_equal(own.leaves, leaves)
        assert np.array_equal(own.chances, chances)
    torch.testing.assert_close(near.shares, shares)


def test_lists_that_can_be_recomputed_are_not_saved():
    for moves in (False, True):
        saved = TermModule(Neighbours(5, 2), SHAPE, 6, moves=moves).state_dict()
        assert {"leaves", "chances", "shares", "places", "gain"} <= set(saved)
        assert ("held_out_leaves" in saved) == moves


@pytest.mark.parametrize("nodes", [None, [[0, 5, 9], [3, 1, 2]]])
def test_only_the_latest_positions_count_on_request(nodes):
    """The same as a term all of whose older places weigh nothing, in training and in what answers take."""
    places = np.arange(1.0, 7.0)
    cut = TermModule(Neighbours(5, 2, latest=2), SHAPE, 6)
    cut.start(Counts())
    cut.change(lambda held: weigh(held, places))
    whole = started(5, np.concatenate([np.zeros(4), places[4:]]))
    leaves = torch.tensor([[4, 40, 7, 7, 12, 3], [-1, -1, -1, 9, 47, 0]])
    wanted = None if nodes is None else torch.tensor(nodes)
    for short in (leaves, leaves[:, 1:], leaves[:, -2:], leaves[:, -1:]):
        torch.testing.assert_close(scores(cut, short, 3, wanted), scores(whole, short, 3, wanted))
    assert torch.equal(scores(cut, leaves, 3, wanted), scores(cut, leaves[:, -2:], 3, wanted))
    held = cut.term.weights(cut.held())
    assert not held["places"][:4].any()
    assert held["places"][4:].detach().numpy() == pytest.approx(places[4:], rel=1e-4)
    # Answers hold the weights, and need not know how many places count.
    answered = Neighbours(5).score(held, TermQuery(SHAPE, 3, leaves, wanted))
    torch.testing.assert_close(answered, scores(cut, leaves, 3, wanted))
    scores(cut, leaves, 3, wanted).sum().backward()
    (gradient,) = [own.grad for own in cut.parameters() if len(own) == 6]
    assert not gradient[:4].any()
    assert gradient[4:].any()
