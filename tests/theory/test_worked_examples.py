"""The papers' worked examples, figure by figure, and their propositions on random instances."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.kernels.labels import level_masses, rectified_levels
from beamwood.kernels.links import log_softmax
from beamwood.kernels.paths import sample_paths
from beamwood.losses.levels import LevelDraw, softmax_level
from beamwood.losses.softmax import full_softmax, sampled_softmax
from beamwood.theory.heap import bayes_regret, beam_over, level_maxima, level_sums
from beamwood.theory.sampling import (
    kl_divergence,
    largest_child_share,
    path_bias_bound,
    path_kl_bound,
    path_log_q,
    resampling_bias_bound,
)
from beamwood.tree import Shape, Tree, random_tree

ETA = np.array([0.21, 0.0, 0.12, 0.18, 0.19, 0.0, 0.16, 0.14])
EIGHT = Tree(Shape(2, 2, 3), np.arange(8))


def test_the_eight_items_that_summed_labels_lose():
    """DTR, appendix C.1: k = 3 ends in {1, 4, 7}, the optimum is {1, 4, 5} (items counted from 1)."""
    sums = level_sums(EIGHT, ETA)
    assert np.allclose(sums[2], [0.21, 0.30, 0.19, 0.30])
    assert np.allclose(sums[1], [0.51, 0.49])
    assert set(EIGHT.item_of_leaf[beam_over(EIGHT.shape, sums, 3)] + 1) == {1, 4, 7}
    maxima = level_maxima(EIGHT, ETA)
    assert set(EIGHT.item_of_leaf[beam_over(EIGHT.shape, maxima, 3)] + 1) == {1, 4, 5}
    assert np.isclose(bayes_regret(ETA, np.array([0, 3, 6]), 3), 0.19 - 0.16)
    assert bayes_regret(ETA, np.array([4, 0, 3]), 3) == 0


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), num_items=st.integers(2, 70), branching=st.sampled_from([2, 3, 5, 16]))
def test_proposition_3_max_labels_are_exact_for_every_k(seed, num_items, branching):
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng, branching=branching)
    eta = rng.dirichlet(np.full(num_items, 0.3))
    maxima = level_maxima(tree, eta)
    for k in range(1, num_items + 1):
        items = tree.item_of_leaf[beam_over(tree.shape, maxima, k)]
        assert abs(bayes_regret(eta, items, k)) < 1e-12


@pytest.mark.parametrize("labels", ["summed", "rectified", "normalised"])
@pytest.mark.parametrize(("num_items", "branching"), [(8, 2), (13, 3), (2, 16)])
def test_a_level_s_loss_is_minimal_at_the_expectation_of_its_labels(num_items, branching, labels):
    """DTR, equation 18 and theorem 1: the logarithms of sums, or with rectified labels of the largest, are a minimum.

    The loss is convex, so a zero gradient suffices; a constant per level makes no difference.
    """
    rng = np.random.default_rng(num_items)
    tree = random_tree(num_items, rng, branching=branching, shape="complete")
    eta = rng.dirichlet(np.ones(num_items))
    shape, targets = tree.shape, np.arange(num_items)[None]
    levels = (level_sums if labels == "summed" else level_maxima)(tree, eta)
    first = rectified_levels(eta[None].astype(np.float32), tree, targets)[0]
    mass = level_masses(np.log(eta)[None].astype(np.float32), tree)[0]
    for level in range(1, shape.depth + 1):
        live = torch.from_numpy(tree.live_counts[level] > 0)
        best = np.log(np.where(live, levels[level], 1.0)) + rng.normal()
        z = np.ones(num_items) if labels == "summed" else (level >= first).astype(float)
        z = z / mass[level - 1] if labels == "normalised" else z
        scores = torch.from_numpy(best).repeat(num_items, 1).requires_grad_()
        nodes = torch.from_numpy(shape.ancestors(tree.leaf_of_item.astype(np.int64), level))[:, None]
        loss = softmax_level(LevelDraw(level, None), scores, nodes, torch.from_numpy(z)[:, None], live)
        (torch.from_numpy(eta) * loss[:, 0]).sum().backward()
        assert abs(scores.grad.sum(dim=0)).max() < 1e-7
        if labels == "normalised":
            assert np.isclose((eta * z).sum(), 1)


def test_summed_labels_lose_on_many_random_instances():
    """The converse: proposition 3 does not hold for sums, so the test above can fail."""
    rng = np.random.default_rng(0)
    lost = 0
    for _ in range(200):
        tree = random_tree(32, rng)
        eta = rng.dirichlet(np.full(32, 0.5))
        lost += bayes_regret(eta, tree.item_of_leaf[beam_over(tree.shape, level_sums(tree, eta), 4)], 4) > 1e-9
    assert lost > 50


def test_the_label_illustration():
    """DTR, appendix F, figure 7: for item f the leaf 20 and the nodes 9 and 4 are positive, node 1 is not.

    In the text f has probability .11, the largest below node 4, and c has .13, the largest below node 1.
    """
    tree = Tree(Shape(2, 2, 4), np.arange(16))
    eta = np.full(16, 0.04)
    eta[[2, 5]] = 0.13, 0.11
    positive_from = rectified_levels(eta[None].astype(np.float32), tree, np.array([[5]]))[0, 0]
    # The paper counts nodes from the root, 0, level by level.
    ancestors = {level: 2**level - 1 + int(tree.shape.ancestors(np.array([5]), level)[0]) for level in range(1, 5)}
    assert ancestors == {1: 1, 2: 4, 3: 9, 4: 20}
    assert {node for level, node in ancestors.items() if level >= positive_from} == {20, 9, 4}


def test_rectified_labels_follow_the_best_item():
    """DTR, equation 14: a target is positive from its leaf up to the first ancestor with a better item."""
    for target in range(8):
        level = rectified_levels(ETA[None].astype(np.float32), EIGHT, np.array([[target]]))[0, 0]
        for j in range(4):
            below = np.flatnonzero(np.arange(8) >> (3 - j) == target >> (3 - j))
            best = below[np.lexsort((below, -ETA[below]))[0]]
            assert (j >= level) == (best == target)
    levels = rectified_levels(ETA[None].astype(np.float32), EIGHT, np.arange(8)[None])[0]
    assert levels.tolist() == [0, 3, 3, 2, 1, 3, 2, 3]


def test_the_sampling_figure():
    """DTR, figure 1: 0 -> 1 (.3) -> 3 (.6) -> 8 (.8), so q(3) = .18 and q(8) = .144."""
    step = [np.array([0.3, 0.7]), np.array([0.6, 0.4, 0.5, 0.5]), np.array([0.2, 0.8, 0.5, 0.5, 0.1, 0.9, 0.3, 0.7])]
    log_q = path_log_q(Shape(2, 2, 3), [np.log(p)[None] for p in step])
    # Nodes 3 and 8 of the paper are the first of level 2 and the second of level 3.
    assert np.isclose(np.exp(log_q[1][0, 0]), 0.18)
    assert np.isclose(np.exp(log_q[2][0, 1]), 0.144)


def random_scores(rng, tree, rows=3):
    scores = []
    for level in range(1, tree.shape.depth + 1):
        values = rng.normal(0, 2, (rows, tree.shape.level_size(level)))
        scores.append(np.where(tree.live_counts[level] > 0, values, -np.inf))
    return scores


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), num_items=st.integers(2, 60), branching=st.sampled_from([2, 3, 16]))
def test_proposition_4_q_sums_to_one_on_every_level(seed, num_items, branching):
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng, branching=branching)
    for log_q in path_log_q(tree.shape, random_scores(rng, tree)):
        assert np.allclose(np.exp(log_q).sum(axis=1), 1)


@pytest.mark.parametrize("branching", [2, 3, 5])
def test_theorem_3_a_consistent_model_samples_its_own_softmax(branching):
    """If exp(o) of a parent is proportional to the sum over its children, q is the softmax; otherwise it is not."""
    rng = np.random.default_rng(branching)
    tree = random_tree(50, rng, branching=branching)
    leaves = np.where(tree.item_of_leaf >= 0, rng.normal(0, 2, tree.shape.capacity), -np.inf)
    scores = [leaves[None]]
    with np.errstate(divide="ignore"):
        for level in range(tree.shape.depth - 1, 0, -1):
            families = np.exp(scores[-1]).reshape(tree.shape.level_size(level), branching)
            scores.append(np.log(families.sum(axis=1))[None] + rng.normal())  # Any factor per level.
    scores = scores[::-1]
    for values, log_q in zip(scores, path_log_q(tree.shape, scores), strict=True):
        assert np.allclose(np.exp(log_q), np.exp(log_softmax(values)))
        assert np.allclose(kl_divergence(log_softmax(values), log_q), 0, atol=1e-12)
    other = random_scores(rng, tree)
    assert kl_divergence(path_log_q(tree.shape, other)[-1], log_softmax(other[-1])).min() > 0.01


def max_heap_scores(tree, rng, spread):
    """Scores with exp(o) of each parent proportional to the largest of its children, with a factor per level."""
    scores = [np.where(tree.item_of_leaf >= 0, rng.normal(0, spread, tree.shape.capacity), -np.inf)[None]]
    for level in range(tree.shape.depth - 1, 0, -1):
        families = scores[-1].reshape(tree.shape.level_size(level), -1)
        scores.append(families.max(axis=1)[None] + rng.normal())
    return scores[::-1]


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**6), num_items=st.integers(2, 60), branching=st.sampled_from([2, 3, 4]))
def test_proposition_5_and_corollary_1_bound_the_walks_of_a_max_heap(seed, num_items, branching):
    """Both bounds hold on every level; on the first q is the softmax."""
    rng = np.random.default_rng(seed)
    tree = random_tree(num_items, rng, branching=branching)
    scores = max_heap_scores(tree, rng, spread=10 ** rng.uniform(-1, 2))
    shares = largest_child_share(scores)
    log_qs = path_log_q(tree.shape, scores)
    for level, (values, log_q) in enumerate(zip(scores, log_qs, strict=True), start=1):
        epsilon = 1 - min([np.nanmin(share) for share in shares[: level - 1]], default=1.0)
        log_p = log_softmax(values)
        live = np.isfinite(values[0])
        bias = np.abs(np.exp(log_q) - np.exp(log_p)).max()
        assert bias <= path_bias_bound(epsilon, level) + 1e-12
        # The corollary's scores are bounded, so nodes without items are excluded.
        bound = path_kl_bound(epsilon, level, int(live.sum()), float(np.abs(values[0, live]).max()))
        assert kl_divergence(log_q[:, live], log_p[:, live])[0] <= bound + 1e-9
        if level == 1:
            assert bound == 0
            assert np.allclose(log_q[:, live], log_p[:, live])


def test_the_bounds_of_proposition_5_need_their_condition():
    """If parents do not follow their largest child, the bias exceeds the bound by their shares."""
    tree = random_tree(16, np.random.default_rng(0), branching=2)
    scores = max_heap_scores(tree, np.random.default_rng(1), spread=30)
    scores[0] = -scores[0]
    shares = largest_child_share(scores)
    epsilon = 1 - min(np.nanmin(share) for share in shares[:1])
    bias = np.abs(np.exp(path_log_q(tree.shape, scores)[1]) - np.exp(log_softmax(scores[1]))).max()
    assert bias > 0.5 > path_bias_bound(epsilon, 2)


def test_shares_of_the_largest_child():
    scores = [np.log([[3.0, 1.0]]), np.log([[3.0, 1.0, 2.0, 2.0]])]
    assert np.allclose(largest_child_share(scores)[0], [[0.75, 0.5]])
    assert np.isclose(path_bias_bound(0.25, 3), 2 * 0.25 / 0.75)
    assert np.isclose(path_kl_bound(0.25, 2, 4, 0.5), np.log(1 + 4 * np.e / 3))
    assert path_kl_bound(0.25, 2, 4, 1000.0) == pytest.approx(2000 + np.log(4 / 3))
    for wrong in ((-0.1, 2), (1.0, 2), (0.5, 0)):
        with pytest.raises(InputError, match="must be in"):
            path_bias_bound(*wrong)
    with pytest.raises(InputError, match="num_nodes=0 must be at least 1"):
        path_kl_bound(0.5, 2, 0, 1.0)


def test_walks_follow_the_closed_form():
    """The sampler's log q equals the closed form on every level."""
    rng = np.random.default_rng(4)
    tree = random_tree(40, rng, branching=3)
    scores = random_scores(rng, tree, rows=2)
    log_q = path_log_q(tree.shape, scores)

    def score(level, nodes):
        values = np.where(np.isfinite(scores[level - 1]), scores[level - 1], 0)
        return values if nodes is None else np.take_along_axis(values, nodes, axis=1)

    paths = sample_paths(
        score, tree.shape, tree.live_counts, rng.random((tree.shape.depth, 2, 30)), tree.leaf_of_item[:4].reshape(2, 2)
    )
    for level in range(tree.shape.depth):
        expected = np.take_along_axis(log_q[level], paths.nodes[level], axis=1)
        assert np.allclose(paths.log_q[level], expected, atol=1e-5)


@pytest.mark.parametrize(("proposal", "unbiased"), [("softmax", True), ("uniform", False)])
def test_sampled_softmax_is_unbiased_only_under_its_own_softmax(proposal, unbiased):
    """With q proportional to exp(o), M draws give the full softmax's gradient in expectation; uniform q is biased.

    The well-known fact behind DTR, section 4.3 (Bengio and Senecal): under q the corrected logits of the draws are all
    equal, so that their mean is exact; the positive is dropped from the draws and q renormalised.
    """
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, generator=generator, dtype=torch.float64) * 2
    target, draws, count = 3, 40_000, 4

    def gradient(loss_of):
        leaf = logits.clone().requires_grad_()
        loss_of(leaf).backward()
        return leaf.grad

    full = gradient(lambda o: full_softmax(o[None], torch.tensor([[target]])).sum())
    log_q = torch.log_softmax(logits, 0) if proposal == "softmax" else torch.full((12,), -np.log(12.0))
    # Draws from q without the positive, renormalised.
    q = log_q.exp()
    q[target] = 0
    picked = torch.multinomial(q, draws * count, replacement=True, generator=generator).view(draws, count)

    def sampled(o):
        positive = o[target].expand(draws, 1)
        renormalised = (log_q - torch.log1p(-log_q[target].exp())).detach()
        return sampled_softmax(positive, o[picked], renormalised[picked]).mean()

    estimate = gradient(sampled)
    # The standard error of the estimate, from blocks of draws.
    blocks = []
    for part in picked.view(40, -1, count):
        leaf = logits.clone().requires_grad_()
        renormalised = log_q - torch.log1p(-log_q[target].exp())
        sampled_softmax(leaf[target].expand(len(part), 1), leaf[part], renormalised[part]).mean().backward()
        blocks.append(leaf.grad)
    error = torch.stack(blocks).std(dim=0) / 40**0.5
    worst = ((estimate - full).abs() / error.clamp(min=1e-9)).max().item()
    assert worst < 5 if unbiased else worst > 10


def test_arrays_that_do_not_belong_together_are_refused():
    with pytest.raises(InputError, match="give two arrays"):
        kl_divergence(np.log([[0.5, 0.5]]), np.log([[0.5]]))
    for batch, draws in (([], 3), ([0, 1], 0)):
        with pytest.raises(InputError, match="give 1 or more of both"):
            resampling_bias_bound(np.ones(5), np.full(5, 0.2), np.array(batch, int), draws)
    for popularity, batch, words in (
        (np.full(3, 0.2), [0, 1], "5 scores, 3 popularities"),
        (np.full(5, 0.2), [0, 5], "a batch of items 0 to 5"),
        (np.full(5, 0.2), [-1, 2], "a batch of items -1 to 2"),
        (np.array([0, 0.5, 0.5, 0, 0]), [0, 1], "has popularity 0"),
    ):
        with pytest.raises(InputError, match=words):
            resampling_bias_bound(np.ones(5), popularity, np.array(batch), 3)
    for levels in ([(2, 3), (2, 7)], [(2, 3), (3, 6)], [(3,), (6,)]):
        with pytest.raises(InputError, match="are not levels of one tree"):
            largest_child_share([np.zeros(shape) for shape in levels])
    for levels in ([(2,), (4,)], [(3, 2), (1, 4)], [(1, 2), (3, 4)]):
        with pytest.raises(InputError, match="do not fit the tree's shape"):
            path_log_q(Shape(2, 2, 2), [np.zeros(shape) for shape in levels])
