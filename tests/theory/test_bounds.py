"""The bounds by hand, at their limits, and against the quantities they bound."""

import math
from dataclasses import replace

import numpy as np
import pytest

from beamwood.errors import InputError
from beamwood.retrieval.searchers.tree import TreeSearcher
from beamwood.theory import bounds
from beamwood.tree.tree import Shape, Tree
from beamwood.types import ItemLists, Query
from din_cases import random_case

NORMS = bounds.Norms(nodes=2.0, history=3.0, layers=1.5, attention=0.5, num_layers=2, length=4, lipschitz=2.0)


def without_biases(weights):
    def bare(layer):
        return replace(layer, bias=np.zeros_like(layer.bias))

    layers = tuple(bare(layer) for layer in weights.layers)
    attention = {name: bare(getattr(weights, name)) for name in ("attention_in", "attention_out")}
    return replace(weights, layers=layers, **attention)


def test_the_formulas_by_hand():
    assert math.isclose(bounds.branching_term(8, 2), 16 / math.sqrt(3))
    assert bounds.linear_capacity(2, 5) == 10
    assert bounds.mlp_capacity(2, 5, 1.5, 3, lipschitz=2) == 2 * 4 * 1.5**3 * 7
    window = 4 * 0.25 * (9 + 9 * 2 + 2 * 3)
    assert bounds.attention_capacity(NORMS) == 2 * 1.5**2 * (window * 4 + 2)
    assert math.isclose(bounds.retriever_complexity(10, 100, 8, 2), 4 * 10 / 10 * 16 / math.sqrt(3))
    # Theorem 4.6 has 8 instead of the 4 in 4.5 and 4.7, because B_mlp contains a 2.
    assert bounds.ranker_complexity(10, 100) == 1
    losses = np.array([0.0, 1.0])
    rest = 3 * math.sqrt(2 * math.log(20) / 2)
    assert math.isclose(bounds.retriever_bound(losses, 0.1, lipschitz=2, largest=3, delta=0.1), 0.5 + 0.8 + rest)
    ranked = bounds.ranker_bound(
        losses, 0.1, shift=0.3, num_items=7, num_candidates=4, lipschitz=2, largest=3, delta=0.1
    )
    assert math.isclose(ranked, 0.3 + 0.5 + 4 * 2 * 7 * 5 * 0.1 + rest)
    tau = math.sqrt(3 * 50)
    assert math.isclose(bounds.tau(50, 2), tau)
    inner = 2 + 4 * (4 * 0.25 * 9 + 4 * 0.25 * 2 * (9 + 3) * tau)
    assert math.isclose(bounds.dtr_complexity(NORMS, 400, 50, 2), 2 * 2 * 1.5**2 * inner / 20)
    terms = bounds.dtr_bound(
        NORMS,
        loss=1.25,
        discrepancy=0.5,
        kl=np.array([0.1, 0.3]),
        largest_score=4.0,
        num_examples=400,
        num_items=50,
        branching=2,
        delta=0.2,
    )
    assert (terms.empirical, terms.estimation) == (1.25, 0.5 * (8 + math.log(50)))
    assert math.isclose(terms.sampling, 0.4)
    assert math.isclose(terms.complexity, 8 * 150 * 2 * 1.5**2 * inner / 20)
    assert math.isclose(terms.confidence, (8 * math.log(tau) + 8 * 2 * 4) * math.sqrt(2 * math.log(20) / 400))
    assert math.isclose(terms.total, sum(getattr(terms, name) for name in terms.__slots__))


def test_norms_are_the_largest_of_their_matrices():
    """Rows, as the proofs need: their step `|W x| <= B |x|` takes the largest entry of x, not the sum of all."""
    _, weights, _ = random_case(3, num_items=30, num_rows=1)
    found = bounds.norms_of(weights)

    def largest_row(layers):
        return max(sum(abs(float(x)) for x in row) for layer in layers for row in layer.weight)

    lengths = [math.sqrt(sum(float(x) ** 2 for x in node)) for node in weights.nodes]
    assert found.nodes == found.history == pytest.approx(max(lengths), rel=1e-6)
    assert found.layers == pytest.approx(largest_row(weights.layers), rel=1e-6)
    assert found.attention == pytest.approx(largest_row([weights.attention_in, weights.attention_out]), rel=1e-6)
    assert (found.num_layers, found.length, found.lipschitz) == (3, 10, 1)
    # A column sum, the induced 1-norm of section 3.1, is no bound of the largest entry of a product.
    row = np.array([[1.0, 1.0]])
    assert np.abs(row @ np.ones(2)).max() > np.abs(row).sum(axis=0).max()


def test_more_branches_and_more_examples_lower_the_bounds():
    every = (2, 4, 8, 16, 256)
    for values in (
        [bounds.branching_term(1000, b) for b in every],
        [bounds.tau(1000, b) for b in every],
        [bounds.retriever_complexity(1.0, m, 1000, 4) for m in (10, 100, 1000)],
    ):
        assert values == sorted(values, reverse=True)
        assert values[0] > values[-1]


@pytest.mark.parametrize(("branching", "depth"), [(2, 1), (2, 9), (3, 5), (16, 3)])
def test_taus_square_is_at_least_the_number_of_nodes(branching, depth):
    shape = Shape(branching, branching, depth)
    assert shape.num_nodes + 1 <= bounds.tau(shape.capacity, branching) ** 2  # With the root.


@pytest.mark.parametrize("branching", [2, 3, 16])
def test_the_same_holds_with_spare_leaves(branching):
    for num_items in range(1, 400):
        live = Tree.of_order(np.arange(num_items), "complete", branching=branching).live_counts
        assert sum(map(np.count_nonzero, live)) <= bounds.tau(num_items, branching) ** 2


def pairs_on_levels(num_items, branching, shape):
    """The ordered pairs of different live nodes on one level, which equation 16 counts."""
    tree = Tree.of_order(np.arange(num_items), shape, branching=branching)
    sizes = [int(np.count_nonzero(live)) for live in tree.live_counts]
    return sum(size * (size - 1) for size in sizes)


@pytest.mark.parametrize("branching", [2, 3, 8])
def test_the_branching_term_counts_pairs_of_nodes_on_full_levels(branching):
    """Its square is at least their number.

    With one more item than full levels have it is smaller, because equation 16 omits a level; in a compact tree the
    difference is small.
    """
    for num_items in range(2, 600):
        square = bounds.branching_term(num_items, branching) ** 2
        most = num_items**2 * (2 * branching**2 - 1) / (branching**2 - 1)
        pairs = pairs_on_levels(num_items, branching, "complete")
        assert pairs <= most
        assert pairs_on_levels(num_items, branching, "compact") <= 1.05 * square
        if branching ** round(math.log(num_items, branching)) == num_items:
            assert pairs <= square
            if num_items > branching:
                one_more = bounds.branching_term(num_items + 1, branching) ** 2
                assert pairs_on_levels(num_items + 1, branching, "complete") > one_more


def test_lemma_1_ignores_that_node_vectors_are_free():
    """Without attention, f(u, n) = B_1 w_n: if each example has its own node, the complexity is B_1 B_0.

    The printed bound falls with the number of examples; with tau at B_0 too it does not.
    """
    norms, nodes = replace(NORMS, attention=0.0, num_layers=1), 64
    complexity = norms.layers * norms.nodes
    printed = bounds.dtr_complexity(norms, nodes, nodes, 2)
    assert printed < complexity <= printed * bounds.tau(nodes, 2)


def test_the_complexity_of_linear_scores_is_within_its_bound():
    """For |w| <= B_0 the supremum is known: `B_0 / m |sum_i sigma_i x_i|`."""
    rng = np.random.default_rng(0)
    m, inputs = 200, 3.0
    x = rng.normal(size=(m, 5))
    x *= inputs / np.linalg.norm(x, axis=1, keepdims=True)
    signs = rng.choice([-1.0, 1.0], (4000, m))
    measured = 2.0 / m * np.linalg.norm(signs @ x, axis=1).mean()
    bound = bounds.ranker_complexity(bounds.linear_capacity(2.0, inputs), m)
    assert 0.9 * bound < measured <= bound


def test_no_score_is_above_the_capacity_of_its_network():
    """For one example, the complexity of a class with f and -f is the largest score."""
    largest = 0.0
    for seed in range(5):
        tree, weights, _ = random_case(seed, num_items=60, num_rows=1)
        weights = without_biases(weights)
        rng = np.random.default_rng(seed)
        histories = ItemLists.from_lists([rng.integers(0, 60, size) for size in (1, 5, 30)])
        scores = TreeSearcher(weights, tree).score(Query.of(histories), np.broadcast_to(np.arange(60), (3, 60)))
        capacity = bounds.attention_capacity(bounds.norms_of(weights))
        largest = max(largest, np.abs(scores).max() / capacity)
    assert 0 < largest <= 1


def test_the_shift_of_filtering_equals_that_of_its_densities():
    rng = np.random.default_rng(1)
    p, kept = rng.dirichlet(np.ones(40)), rng.random(40) < 0.6
    share = p[kept].sum()
    other = np.where(kept, p, 0) / share
    assert math.isclose(bounds.filtering_shift(share), (p * np.abs(1 - other / p)).sum())
    assert bounds.filtering_shift(1.0) == 0


def test_cases_without_a_bound_are_errors():
    _, weights, _ = random_case(0, num_items=30, num_rows=1, similarity=4)
    with pytest.raises(InputError, match=r"the network alone, without added score terms"):
        bounds.norms_of(weights)
    for wrong in (lambda: bounds.tau(5, 1), lambda: bounds.branching_term(0, 2), lambda: bounds.filtering_shift(0.0)):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="delta=1"):
        bounds.retriever_bound(np.ones(3), 0.1, lipschitz=1, largest=1, delta=1)
    for without in (lambda: bounds.retriever_complexity(1, 0, 10, 2), lambda: bounds.ranker_complexity(1, 0)):
        with pytest.raises(InputError, match="num_examples=0"):
            without()
    numbers = {"lipschitz": 1, "largest": 1, "delta": 0.1}
    # Without a warning of numpy first.
    with np.errstate(all="raise"), pytest.raises(InputError, match="num_examples=0"):
        bounds.retriever_bound(np.array([]), 0.1, **numbers)
    assert bounds.retriever_bound([0, 1], 0.1, **numbers) == bounds.retriever_bound(np.array([0, 1]), 0.1, **numbers)
