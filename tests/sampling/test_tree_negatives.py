"""Tree-based negatives state the probabilities of the model they were drawn under."""

import numpy as np
import torch

from beamwood.models.din import DinScorer, LevelNodes
from beamwood.sampling.tree import tree_negatives
from beamwood.tree import random_tree

SIZES = {"width": 6, "attention_hidden": 9, "windows": (4, 3, 2, 1), "mlp": (12, 7)}


def case(num_items=200, rows=4):
    generator = torch.Generator().manual_seed(0)
    tree = random_tree(num_items, np.random.default_rng(0))
    model = DinScorer(tree.shape, norm="batch", dropout=0.5, generator=generator, **SIZES)
    rng = np.random.default_rng(1)
    leaves = torch.from_numpy(tree.leaves_of(rng.integers(0, num_items, (rows, 10)))).long()
    targets = torch.from_numpy(tree.leaves_of(rng.integers(0, num_items, (rows, 2)))).long()
    return tree, model, leaves, targets


def level_log_q(tree, model, leaves):
    """log q of every node, [B, n] a level, from whole-level scores."""
    shape, log_q, result = tree.shape, torch.zeros(len(leaves), 1), []
    for level in range(1, shape.depth + 1):
        scores = model(leaves, [LevelNodes(level, None)])[0]
        scores = scores.masked_fill(torch.from_numpy(tree.live_counts[level] == 0), -torch.inf)
        families = scores.view(len(leaves), shape.level_size(level - 1), -1)
        log_p = torch.nan_to_num(torch.log_softmax(families, -1), nan=-torch.inf)
        log_q = (log_q[:, :, None] + log_p).flatten(1)
        result.append(log_q)
    return result


def test_log_q_is_that_of_the_model_in_evaluation_mode():
    tree, model, leaves, targets = case()
    model.train()
    drawn = tree_negatives(model, leaves, targets, tree.live_counts, 5, torch.Generator().manual_seed(3))
    assert model.training
    model.eval()
    with torch.no_grad():
        exact = level_log_q(tree, model, leaves)
    for level, log_q in enumerate(exact, start=1):
        own = targets // tree.shape.leaves_below(level)
        assert torch.allclose(torch.gather(log_q, 1, drawn.nodes[level - 1]), drawn.log_q[level - 1], atol=1e-4)
        assert torch.allclose(torch.gather(log_q, 1, own), drawn.log_q_targets[level - 1], atol=1e-4)
    assert (tree.item_of_leaf[drawn.nodes[-1].numpy()] >= 0).all()


def test_the_generator_decides_the_draws():
    tree, model, leaves, targets = case()
    draws = [
        tree_negatives(model, leaves, targets, tree.live_counts, 30, torch.Generator().manual_seed(seed)).nodes
        for seed in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
