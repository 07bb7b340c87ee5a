"""Label rules against their definitions in loops."""

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.models.din import DinScorer, LevelNodes
from beamwood.retrieval.searchers.blend import Blend, Part
from beamwood.retrieval.searchers.vectors import VectorSearcher
from beamwood.training.level_labels import estimated_labels, pseudo_targets
from beamwood.tree import Shape, random_tree
from beamwood.types import ItemLists, QueryNeeds


class Fixed:
    """An estimator with given scores."""

    def __init__(self, scores):
        self.scores = scores

    @property
    def num_items(self):
        return self.scores.shape[1]

    def score(self, query, items_BM):
        return np.take_along_axis(self.scores[: len(query)], np.asarray(items_BM), axis=1).astype(np.float32)


@pytest.mark.parametrize("branching", [2, 3, 5])
def test_rectified_and_one_step_equal_their_definitions(branching):
    rng = np.random.default_rng(branching)
    tree = random_tree(40, rng, branching=branching)
    scores = rng.integers(0, 12, (6, 40)).astype(np.float32)  # with ties
    targets = rng.integers(0, 40, (6, 4))
    shape = tree.shape
    histories = ItemLists.empty(6)
    rectified = estimated_labels(Fixed(scores), tree, histories, targets)
    one_step = estimated_labels(Fixed(scores), tree, histories, targets, "one-step")
    for row in range(6):
        order = np.lexsort((np.arange(40), -scores[row]))
        rank = np.empty(40, int)
        rank[order] = np.arange(40)
        for column, target in enumerate(targets[row]):
            leaf = tree.leaf_of_item[target]
            for level in range(1, shape.depth + 1):
                below = shape.ancestors(np.arange(shape.capacity), level) == shape.ancestors(leaf, level)
                members = tree.item_of_leaf[below & (tree.item_of_leaf >= 0)]
                assert rectified[level - 1, row, column] == (rank[members].min() == rank[target])
    # The paper's label is the product of the program's from that level down.
    product = torch.flip(torch.cumprod(torch.flip(one_step, [0]).int(), 0), [0]).bool()
    assert torch.equal(product, rectified)


@pytest.mark.parametrize("branching", [2, 3])
def test_normalised_labels_sum_to_one_in_expectation(branching):
    """DTR, definition 3: over targets drawn by the estimator's probabilities, a level's labels sum to 1."""
    rng = np.random.default_rng(0)
    tree = random_tree(30, rng, branching=branching)
    scores = rng.normal(0, 2, (5, 30)).astype(np.float32)
    eta = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    every = np.broadcast_to(np.arange(30), (5, 30))
    labels = estimated_labels(Fixed(scores), tree, ItemLists.empty(5), every, normalised=True).numpy()
    assert np.allclose((labels * eta[None]).sum(axis=2), 1, atol=1e-5)
    plain = estimated_labels(Fixed(scores), tree, ItemLists.empty(5), every).numpy()
    assert np.array_equal(labels > 0, plain)


def test_no_histories_have_no_labels():
    tree = random_tree(40, np.random.default_rng(0))
    for rule in ("rectified", "one-step"):
        labels = estimated_labels(Fixed(np.zeros((1, 40))), tree, ItemLists.empty(0), np.zeros((0, 3), int), rule)
        assert labels.shape == (tree.shape.depth, 0, 3)


def test_an_estimator_of_other_items_is_refused():
    tree = random_tree(40, np.random.default_rng(0))
    with pytest.raises(InputError, match="knows 7 items, the tree 40"):
        estimated_labels(Fixed(np.zeros((1, 7))), tree, ItemLists.empty(1), np.zeros((1, 1), int))


@pytest.mark.parametrize("shift", [0.0, -9.0], ids=["any scores", "scores below 0"])
@pytest.mark.parametrize(("num_items", "shape"), [(33, Shape(2, 2, 6)), (64, Shape(2, 2, 6)), (40, Shape(4, 4, 3))])
def test_pseudo_targets_follow_the_best_child(num_items, shape, shift):
    rng = np.random.default_rng(3)
    tree = random_tree(num_items, rng, shape=shape)
    scorer = DinScorer(
        shape, width=5, attention_hidden=4, windows=(3,), mlp=(6,), generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        scorer.output.bias += shift  # Nodes without items must not win, whatever the others have.
    leaves = torch.from_numpy(tree.leaves_of(rng.integers(0, num_items, (7, 3))).astype(np.int64))
    targets = torch.from_numpy(tree.leaves_of(rng.integers(0, num_items, (7, 3))).astype(np.int64))
    labels = pseudo_targets(scorer, tree, leaves, targets)
    for row in range(7):
        # z of every node: that of its best live child, from the leaves up.
        z = np.zeros(shape.capacity, bool)
        z[targets[row]] = True
        for level in range(shape.depth, 0, -1):
            own = targets[row].numpy() // shape.leaves_below(level)
            assert np.array_equal(labels[level - 1, row].numpy(), z[own])
            scores = scorer.evaluate(leaves[row : row + 1], LevelNodes(level, None))[0].numpy().copy()
            scores[tree.live_counts[level] == 0] = -np.inf
            if level > 1:
                families = scores.reshape(-1, shape.branching)
                z = z[np.arange(len(families)) * shape.branching + families.argmax(axis=1)]


class OfNewest:
    """The vector of the newest item of a history, which is counted when it is looked up."""

    kind, needs = "newest", QueryNeeds()

    def __init__(self, queries):
        self.queries, self.shape, self.encoded = queries, queries.shape, 0

    def encode(self, query):
        self.encoded += len(query)
        return self.queries[query.histories.items[query.histories.indptr[1:] - 1]]


@pytest.mark.parametrize("rule", ["rectified", "one-step"])
def test_an_estimator_with_vectors_encodes_each_history_once(rule, monkeypatch):
    rng = np.random.default_rng(4)
    tree = random_tree(30, rng)
    queries, vectors = rng.normal(size=(30, 4)).astype(np.float32), rng.normal(size=(30, 4)).astype(np.float32)
    histories = ItemLists.from_lists(rng.integers(0, 30, rng.integers(1, 5)) for _ in range(8))
    newest = histories.items[histories.indptr[1:] - 1]
    newest_of, plain = OfNewest(queries), (queries @ vectors.T)[newest]
    estimator = Blend([Part(VectorSearcher(newest_of, vectors))], seen_weight=-3.0)
    for row, seen in enumerate(histories):
        plain[row, np.unique(seen)] -= 3
    targets = rng.integers(0, 30, (8, 5))
    expected = estimated_labels(Fixed(plain), tree, ItemLists.empty(8), targets, rule)
    monkeypatch.setattr("beamwood.training.level_labels._CELLS", 100)  # Three histories at a time.
    assert torch.equal(estimated_labels(estimator, tree, histories, targets, rule), expected)
    assert newest_of.encoded == 8
