"""Samplers of all levels: allowed draws, their distribution, and beam candidates equal to those of a search."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats

from beamwood.kernels import reference
from beamwood.losses.levels import binary_level
from beamwood.models.din import DinScorer
from beamwood.sampling.levels import (
    BeamCandidates,
    DistinctNegatives,
    LeafHistories,
    Siblings,
    TreeNegativesByLevel,
    UniformByLevel,
    are_live,
    distinct,
    first_of_each,
)
from beamwood.tree import random_tree


@pytest.fixture(params=[(37, 2), (90, 3), (70, 16)])
def case(request):
    num_items, branching = request.param
    tree = random_tree(num_items, np.random.default_rng(1), branching=branching)
    generator = torch.Generator().manual_seed(0)
    scorer = DinScorer(tree.shape, width=6, attention_hidden=5, windows=(3, 2), mlp=(7,), generator=generator)
    rng = np.random.default_rng(2)
    items = rng.integers(0, num_items, (5, 5))
    leaves = torch.from_numpy(tree.leaves_of(items).astype(np.int64))
    leaves[0, :3] = -1
    targets = torch.from_numpy(tree.leaves_of(rng.integers(0, num_items, (5, 3))).astype(np.int64))
    return tree, scorer, leaves, targets


SAMPLERS = {
    "uniform": lambda depth: UniformByLevel([6] * depth),
    "tree": lambda depth: TreeNegativesByLevel(6),
    "distinct": lambda depth: DistinctNegatives([6] * depth),
    "siblings": lambda depth: Siblings(),
    "beam": lambda depth: BeamCandidates(4),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_contract(case, name):
    """One draw per level with only live nodes of the level, reproducible, and with log q if softmax needs it."""
    tree, scorer, leaves, targets = case
    sampler = SAMPLERS[name](tree.shape.depth)
    draws, again = (
        sampler(scorer, tree, LeafHistories(leaves), targets, torch.Generator().manual_seed(4)) for _ in range(2)
    )
    assert [draw.level for draw in draws] == list(range(1, tree.shape.depth + 1))
    for draw, same in zip(draws, again, strict=True):
        if draw.nodes is None:
            assert same.nodes is None
            continue
        assert torch.equal(draw.nodes, same.nodes)
        assert draw.nodes.min() >= 0
        assert draw.nodes.max() < tree.shape.level_size(draw.level)
        live = torch.from_numpy(tree.live_counts[draw.level] > 0)[draw.nodes]
        assert (live if draw.real is None else live | ~draw.real).all()
        if name in ("uniform", "tree"):
            assert draw.log_q.shape == draw.nodes.shape
            assert draw.log_q_targets.shape == targets.shape
            assert (draw.log_q <= 0).all()
        if name == "uniform":
            size = int((tree.live_counts[draw.level] > 0).sum())
            assert torch.allclose(draw.log_q, torch.full_like(draw.log_q, -math.log(size)))


@pytest.mark.parametrize("name", ["uniform", "tree", "distinct"])
def test_a_level_is_drawn_only_where_it_has_more_nodes_than_that(case, name):
    """At most M + 1 nodes are taken whole (DTR, section 4.3.2); of distinct ones as many as are no target."""
    tree, scorer, leaves, targets = case
    size = tree.shape.level_size(1)
    samplers = {
        "uniform": lambda most: UniformByLevel([most] * tree.shape.depth),
        "tree": TreeNegativesByLevel,
        "distinct": lambda most: DistinctNegatives([most] * tree.shape.depth),
    }
    spared = targets.shape[1] if name == "distinct" else 1
    for most, whole in ((size - spared, True), (size - spared - 1, False)):
        if most > 0:
            draw = samplers[name](most)(scorer, tree, LeafHistories(leaves), targets, torch.Generator())[0]
            assert (draw.nodes is None) == whole


@pytest.mark.parametrize("name", ["uniform", "distinct"])
def test_levels_are_searched_for_live_nodes_once(case, name):
    """A search in each step would take time in proportion to the catalogue."""
    tree, scorer, leaves, targets = case
    given = scorer, tree, LeafHistories(leaves), targets
    first = SAMPLERS[name](tree.shape.depth)(*given, torch.Generator().manual_seed(4))
    tree.__dict__["live_counts"] = ()
    for draw, again in zip(
        first, SAMPLERS[name](tree.shape.depth)(*given, torch.Generator().manual_seed(4)), strict=True
    ):
        assert again.nodes is None if draw.nodes is None else torch.equal(draw.nodes, again.nodes)


def test_only_the_drawn_nodes_of_a_level_are_looked_at():
    """A level of this size fits no memory; the counts are one number, repeated."""
    huge = np.lib.stride_tricks.as_strided(np.ones(1, np.int32), (2**45,), (0,))
    nodes = torch.tensor([[0, 2**45 - 1]])
    assert are_live(SimpleNamespace(live_counts=(huge,)), 0, nodes).tolist() == [[True, True]]


@pytest.mark.parametrize(("count", "size"), [(3, 70), (5, 12), (20, 300)])
def test_distinct_draws_are_uniform_without_replacement(count, size):
    generator = torch.Generator().manual_seed(1)
    # Two numbers are excluded, one of them twice.
    without = torch.tensor([[size, size + 1, size]]).expand(4000, 3)
    picks = distinct(without, count, size + 2, generator)
    assert all(len(set(row)) == count for row in picks.tolist())
    assert picks.max() < size
    observed = torch.bincount(picks.flatten(), minlength=size).numpy()
    assert stats.chisquare(observed).pvalue > 1e-4
    # The first column is uniform too: the order carries no information.
    assert stats.chisquare(torch.bincount(picks[:, 0], minlength=size).numpy()).pvalue > 1e-4


def test_distinct_negatives_are_all_negatives(case):
    tree, scorer, leaves, targets = case
    draws = DistinctNegatives([6] * tree.shape.depth)(scorer, tree, LeafHistories(leaves), targets, torch.Generator())
    drawn = [draw for draw in draws if draw.nodes is not None]
    assert drawn
    for draw in drawn:
        own = targets // tree.shape.leaves_below(draw.level)
        assert draw.nodes.shape == (len(targets), 6)
        assert not (draw.nodes[:, :, None] == own[:, None, :]).any()


def test_first_of_each():
    rows = torch.tensor([[3, 1, 3, 3, 1], [0, 1, 2, 3, 4]])
    assert first_of_each(rows).tolist() == [[True, True, False, False, False], [True] * 5]


def test_siblings_are_the_path_s(case):
    tree, scorer, leaves, targets = case
    draws = Siblings()(scorer, tree, LeafHistories(leaves), targets, torch.Generator())
    for draw in draws[1:]:
        own = targets // tree.shape.leaves_below(draw.level)
        for row in range(len(targets)):
            expected = []
            for node in own[row].tolist():
                parent = node // tree.shape.branching
                family = range(parent * tree.shape.branching, (parent + 1) * tree.shape.branching)
                expected += [n for n in family if tree.live_counts[draw.level][n] > 0 and n != node]
            assert sorted(draw.nodes[row][draw.real[row]].tolist()) == sorted(expected)


def test_beam_candidates_equal_those_of_a_search(case):
    tree, scorer, leaves, targets = case
    width = 4
    draws = BeamCandidates(width)(scorer, tree, LeafHistories(leaves), targets, torch.Generator())
    last = draws[-1]
    scores = torch.where(last.real, scorer.evaluate(leaves, entry(last)), -torch.inf)
    best = torch.gather(last.nodes, 1, scores.topk(width, dim=1).indices)
    found = reference.beam_search(
        scorer.export(), tree.shape, leaves.numpy(), beam_width=width, k=width, live=tree.live_counts
    )
    assert [set(row) for row in best.tolist()] == [set(row) for row in found.leaves.tolist()]


def test_ties_in_a_beam_prefer_lower_nodes(case):
    """As in a search; with constant scores, the first live nodes of each level are kept."""
    tree, scorer, leaves, targets = case
    with torch.no_grad():
        scorer.nodes.weight.zero_()
    draws = BeamCandidates(4)(scorer, tree, LeafHistories(leaves), targets, torch.Generator())
    beam = np.zeros(1, np.int64)
    for draw in draws:
        fanout = tree.shape.root_fanout if draw.level == 1 else tree.shape.branching
        children = (beam[:, None] * fanout + np.arange(fanout)).ravel()
        assert draw.nodes.tolist() == [children.tolist()] * len(leaves)
        live = children[tree.live_counts[draw.level][children] > 0]
        beam = live[:4] if len(children) > 4 else children


def entry(draw):
    from beamwood.models.din import LevelNodes

    return LevelNodes(draw.level, draw.nodes)


@pytest.mark.parametrize("num_targets", [1, 8])
def test_plt_learns_the_probabilities_of_steps(num_targets):
    """Minimising its loss over targets of known frequencies gives these, for any number of targets per example."""
    tree = random_tree(4, np.random.default_rng(0), branching=2)
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([0.6, 0.3, 0.02, 0.08])
    targets = torch.multinomial(truth, 20000 * num_targets, replacement=True, generator=generator).view(20000, -1)
    draws = Siblings()(None, tree, LeafHistories(torch.zeros(20000, 1, dtype=torch.int64)), targets, generator)
    logits = [torch.zeros(2, requires_grad=True), torch.zeros(4, requires_grad=True)]
    optimizer = torch.optim.LBFGS(logits, max_iter=50)

    def closure():
        optimizer.zero_grad()
        total = torch.zeros(())
        for draw, values in zip(draws, logits, strict=True):
            own = targets // tree.shape.leaves_below(draw.level)
            live = torch.ones(len(values), dtype=torch.bool) if draw.nodes is None else None
            scores = values.expand(20000, -1) if draw.nodes is None else values[torch.cat([own, draw.nodes], dim=1)]
            total = total + binary_level(draw, scores, own, torch.ones_like(own, dtype=torch.bool), live).mean()
        total.backward()
        return total

    optimizer.step(closure)
    steps = [torch.sigmoid(values).detach().numpy() for values in logits]
    np.testing.assert_allclose(steps[0], [0.9, 0.1], atol=0.01)
    np.testing.assert_allclose(steps[1], [0.6 / 0.9, 0.3 / 0.9, 0.2, 0.8], atol=0.03)
