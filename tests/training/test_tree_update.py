"""A tree update equals equation 30 in plain loops, and places planted items by the model's scores."""

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.training import tree_update
from beamwood.training.budget import Budget
from beamwood.training.tree_update import TreeLearner, capped_instances
from beamwood.tree import Tree, random_tree
from beamwood.tree.assign import assign, num_candidates

SIZES = {"width": 6, "attention_hidden": 9, "windows": (4, 3, 2, 1), "mlp": (12, 7)}


def case(num_items=45, num_instances=150):
    tree = random_tree(num_items, np.random.default_rng(0))
    model = DinScorer(tree.shape, norm="batch", generator=torch.Generator().manual_seed(0), **SIZES)
    with torch.no_grad():
        model.nodes.weight.mul_(10)
    rng = np.random.default_rng(1)
    items = rng.integers(-1, num_items, (num_instances, 10)).astype(np.int32)
    targets = rng.integers(0, num_items - 5, num_instances)
    return tree, model, items, targets


def plain_score(tree, model, items, targets, likelihood):
    """Score(y, n) in loops over items and instances."""
    model.eval()
    even = Tree.of_order(np.arange(tree.num_items), tree.shape)

    def score(asked, parents, level, next_level):
        count = num_candidates(tree.shape, level, next_level)
        total = np.zeros((len(asked), count))
        for row, (item, parent) in enumerate(zip(asked, parents, strict=True)):
            for instance in np.flatnonzero(targets == item):
                leaves = torch.from_numpy(tree.leaves_of(items[instance : instance + 1]).astype(np.int64))
                scores = {
                    at: model(leaves, [LevelNodes(at, None)])[0][0].detach().double().numpy()
                    for at in range(level + 1, next_level + 1)
                }
                nodes = parent * count + np.arange(count)
                alive = even.live_counts[next_level][nodes] > 0
                if likelihood == "softmax":
                    values = np.where(alive, scores[next_level][nodes], -np.inf)
                    total[row] += values - np.log(np.exp(values).sum())
                else:
                    for at, values in scores.items():
                        below = tree.shape.leaves_below(at) // tree.shape.leaves_below(next_level)
                        total[row] -= np.where(alive, np.log1p(np.exp(-values[nodes // below])), np.inf)
        return total

    return score


@pytest.mark.parametrize("likelihood", ["softmax", "binary"])
@pytest.mark.parametrize("stride", [2, 7])
def test_update_equals_the_equation_in_loops(likelihood, stride, monkeypatch):
    tree, model, items, targets = case()
    monkeypatch.setattr(tree_update, "CALL_NODES", 100)
    model.train()
    counts = np.bincount(targets, minlength=tree.num_items)
    learner = TreeLearner(model, tree, targets, lambda rows: items[rows], stride=stride, likelihood=likelihood)
    got = learner.learn(counts, Budget())
    assert model.training
    score = plain_score(tree, model, items, targets, likelihood)
    expected = assign(tree, score, num_instances=counts, stride=stride)
    assert np.array_equal(got.item_of_leaf, expected.item_of_leaf)
    assert not np.array_equal(got.item_of_leaf, tree.item_of_leaf)


@pytest.mark.parametrize("likelihood", ["softmax", "binary"])
def test_empty_nodes_of_the_old_tree_are_candidates(likelihood):
    """All items are in the left half of a tree; an even distribution has room below every node."""
    tree, model, items, targets = case()
    shape, num_items = tree.shape, tree.shape.capacity // 2
    crowded = np.full(shape.capacity, -1, np.int32)
    crowded[:num_items] = np.random.default_rng(2).permutation(num_items)
    old = Tree(shape, crowded)
    assert (old.live_counts[1] == 0).any()
    items, targets = np.where(items < num_items, items, -1), targets % num_items
    counts = np.bincount(targets, minlength=num_items)
    learner = TreeLearner(model, old, targets, lambda rows: items[rows], stride=1, likelihood=likelihood)
    got = learner.learn(counts, Budget())
    score = plain_score(old, model, items, targets, likelihood)
    assert np.array_equal(got.item_of_leaf, assign(old, score, num_instances=counts, stride=1).item_of_leaf)


def test_a_cap_keeps_the_order_of_assignment():
    tree, model, items, targets = case()
    all_counts = np.bincount(targets, minlength=tree.num_items)
    rows = capped_instances(targets, 1, np.random.default_rng(0))
    capped_counts = np.bincount(targets[rows], minlength=tree.num_items)

    def histories(at):
        return items[rows[at]]

    learner = TreeLearner(model, tree, targets[rows], histories)
    got = learner.learn(all_counts, Budget())
    score = plain_score(tree, model, items[rows], targets[rows], "softmax")
    assert np.array_equal(got.item_of_leaf, assign(tree, score, num_instances=all_counts).item_of_leaf)
    assert not np.array_equal(got.item_of_leaf, learner.learn(capped_counts, Budget()).item_of_leaf)


def test_capped_instances_keep_every_item():
    targets = np.random.default_rng(0).integers(0, 20, 400)
    kept = capped_instances(targets, 7, np.random.default_rng(1))
    assert np.array_equal(np.bincount(targets[kept], minlength=20), np.minimum(np.bincount(targets, minlength=20), 7))
    assert np.array_equal(kept, np.unique(kept))
    with pytest.raises(InputError, match="max_instances=0"):
        capped_instances(targets, 0, np.random.default_rng(1))


def test_targets_outside_the_tree_are_an_error():
    tree, model, items, targets = case()
    with pytest.raises(InputError, match="targets_I"):
        TreeLearner(model, tree, targets + 40, lambda rows: items[rows])
