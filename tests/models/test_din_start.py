"""Initialisation of the DIN scorer with the similarity of history and node."""

import numpy as np
import pytest
import torch
from scipy import sparse

from beamwood.models.din import DinScorer, LevelNodes
from beamwood.models.din_start import shift_levels, start_as_similarity
from beamwood.models.terms import Neighbours, Similarity
from beamwood.models.terms.similarity import WEIGHT_BESIDE
from beamwood.tree.tree import Shape, Tree

SHAPE = Shape(3, 4, 2)


class Counts:
    """Counts in the form that a term needs."""

    tree = Tree(SHAPE, np.arange(SHAPE.capacity))

    def __init__(self, vectors=None, counts=(), shares=None):
        self.vectors, self.counts, self.shares = vectors, counts, shares

    def leaf_vectors(self, width):
        assert width == self.vectors.shape[1]
        return self.vectors

    def neighbour_matrices(self, num_folds):
        assert len(self.counts) == 1 + num_folds
        return iter(self.counts)

    def leaf_shares(self):
        return self.shares


def drawn(activation="relu", **changes):
    return DinScorer(
        SHAPE,
        width=8,
        attention_hidden=6,
        windows=(3, 2, 1),
        mlp=(10, 5),
        activation=activation,
        generator=torch.Generator().manual_seed(3),
        **changes,
    )


@pytest.mark.parametrize("activation", ["relu", "prelu"])
def test_scores_are_faded_similarities_and_frequencies(activation):
    """Without the random part, the score equals the formula up to a constant."""
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(SHAPE.num_nodes, 6)).astype(np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    frequency = rng.normal(size=SHAPE.num_nodes).astype(np.float32) * 0.3
    scorer = drawn(activation)
    with torch.no_grad():
        for weight in (scorer.attention_out.weight, scorer.output.weight, *(x.weight for x in scorer.hidden[1:])):
            weight.zero_()
    start_as_similarity(scorer, torch.from_numpy(directions), torch.from_numpy(frequency))

    history = np.array([[-1, 0, 4, 11, 4, 7], [-1, -1, -1, -1, -1, 9]])
    for level in (1, 2):
        offset, size = SHAPE.level_offset(level), SHAPE.level_size(level)
        got = scorer.evaluate(torch.from_numpy(history), LevelNodes(level, None)).numpy()
        nodes = directions[offset : offset + size]
        expected = np.tile(2 + frequency[offset : offset + size], (2, 1)).astype(np.float64)
        for row, leaves in enumerate(history):
            for leaf, age in zip(leaves, (4, 4, 4, 1.5, 1.5, 0), strict=True):
                if leaf >= 0:
                    attention = 0.3 + 1.25 * nodes @ nodes[leaf // SHAPE.leaves_below(level)]
                    attention = np.where(attention > 0, attention, 0.25 * attention)
                    expected[row] += 2 * 0.6**age * attention
        assert expected.min() > 0, "the carrying unit must be live for the formula to hold"
        np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("weight", [4.0, WEIGHT_BESIDE])
def test_a_similarity_replaces_attention_at_the_start(weight):
    """Scores are places times products of vectors, a parent's the direction of its leaves' sum, and frequencies."""
    rng = np.random.default_rng(0)
    scorer = drawn(terms=[Similarity(5, weight)])
    with torch.no_grad():
        for layer in (scorer.output, *scorer.hidden[1:]):
            layer.weight.zero_()
    leaf_vectors = rng.normal(size=(SHAPE.capacity, 5)).astype(np.float32)
    frequency = rng.normal(size=SHAPE.num_nodes).astype(np.float32) * 0.3
    directions = torch.from_numpy(rng.normal(size=(SHAPE.num_nodes, 6)).astype(np.float32))
    start_as_similarity(scorer, directions, torch.from_numpy(frequency))
    scorer.terms["similarity"].start(Counts(leaf_vectors))

    history = np.array([[-1, 0, 4, 11, 4, 7], [-1, -1, -1, -1, -1, -1]])
    for level in (1, 2):
        offset, size = SHAPE.level_offset(level), SHAPE.level_size(level)
        vectors = leaf_vectors.reshape(size, -1, 5).sum(axis=1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        expected = np.tile(2 + frequency[offset : offset + size], (2, 1)).astype(np.float64)
        for age, leaf in enumerate(history[0, :0:-1]):
            expected[0] += weight * 0.6**age * vectors @ vectors[leaf // SHAPE.leaves_below(level)]
        for nodes in (None, torch.arange(size).expand(2, -1)):
            got = scorer.evaluate(torch.from_numpy(history), LevelNodes(level, nodes)).numpy()
            np.testing.assert_allclose(got, expected, atol=1e-4)


def test_neighbours_add_the_logarithm_of_their_lifts_at_the_start():
    rng = np.random.default_rng(0)
    scorer, plain = drawn(terms=[Neighbours(SHAPE.capacity)]), drawn()
    counts = sparse.random_array(2 * (SHAPE.capacity,), density=0.3, rng=rng, format="csr")
    frequencies = rng.dirichlet(np.ones(SHAPE.capacity))
    scorer.terms["neighbours"].start(Counts(counts=[counts], shares=frequencies))
    lifts = counts.toarray() / np.maximum(counts.sum(axis=1), 1e-9)[:, None] / frequencies
    history, level = torch.tensor([[-1, 0, 4, 11, 4, 7]]), SHAPE.depth
    expected = np.log(1 + sum(0.3 * 0.9**age * lifts[leaf] for age, leaf in enumerate([7, 4, 11, 4, 0])))
    more = [one.evaluate(history, LevelNodes(level, None)).numpy()[0] for one in (scorer, plain)]
    np.testing.assert_allclose(more[0] - more[1], expected, atol=1e-4)


def test_shifted_levels_differ_by_their_shifts():
    scorer = drawn()
    directions = torch.zeros(SHAPE.num_nodes, 6)
    start_as_similarity(scorer, directions, torch.zeros(SHAPE.num_nodes))
    history = torch.tensor([[-1, 0, 4, 11, 4, 7]])
    levels = [LevelNodes(level, None) for level in (1, 2)]
    before = [scorer.evaluate(history, level) for level in levels]
    shift_levels(scorer, [-3.0, -1.0])
    for shift, level, scores in zip((-3.0, -1.0), levels, before, strict=True):
        # The random layers, with a weight of a tenth, depend on the coordinate too.
        assert (scorer.evaluate(history, level) - scores - shift).abs().max() < 0.3


def test_a_node_without_counts_keeps_its_random_embedding():
    scorer, before = drawn(), drawn().nodes.weight.detach()
    directions = torch.zeros(SHAPE.num_nodes, 6)
    directions[4, 0] = 1
    start_as_similarity(scorer, directions, torch.zeros(SHAPE.num_nodes))
    after = scorer.nodes.weight.detach()
    assert torch.equal(after[:, 0], torch.ones(SHAPE.num_nodes))
    assert not after[:, 1].any()
    assert torch.equal(after[4, 2:], directions[4])
    others = torch.arange(SHAPE.num_nodes) != 4
    assert torch.equal(after[others, 2:], before[others, 2:])
