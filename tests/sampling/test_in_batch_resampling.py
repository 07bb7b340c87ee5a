"""BIR and XIR: the distribution of draws, their shares of the gradient, and the papers' theorems."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

from beamwood.losses.softmax import weighted_softmax
from beamwood.sampling.in_batch import Bir, Xir, log_popularity, make_sampler
from beamwood.sampling.resample import DrawnPart, drawn_softmax, resample_counts
from beamwood.theory.sampling import resampling_bias_bound
from in_batch_cases import (
    NUM_ITEMS,
    TARGET,
    drawn_counts,
    expected_draws,
    full_gradient,
    pairs_of,
    random_batch,
    row_gradients,
    world,
)


@pytest.mark.parametrize("draw", ["systematic", "independent"])
@pytest.mark.parametrize("name", ["bir", "xir"])
def test_draws_and_mean_gradient_of_a_fixed_batch(name, draw):
    """|B| draws by softmax(s - log pop).

    XIR has half from the batch and half from the cache, with shares 1 - lambda and lambda.
    """
    scores, counts = world()
    size, positive, generator = 128, 4.0, torch.Generator().manual_seed(11)
    sampler = make_sampler(name, counts, batch_size=size, cache_share=0.2, draw=draw)
    batch, cache = random_batch(counts, size, generator), torch.arange(size) % NUM_ITEMS
    parts, draws, share = ([batch], [size], [1.0]) if name == "bir" else ([batch, cache], [size // 2] * 2, [0.8, 0.2])
    steps = [row_gradients(sampler, scores, parts, size, generator, positive) for _ in range(60)]
    gradient, own = (torch.cat(values) for values in zip(*steps, strict=True))
    found = drawn_counts(gradient, share, scores, positive)
    assert torch.allclose(found, found.round(), atol=0.01)
    found = found.round()
    assert torch.equal(found.sum(dim=2), torch.tensor(draws).double().expand(len(found), -1))
    expected = torch.stack([expected_draws(scores, counts, *pair) for pair in zip(parts, draws, strict=True)])
    assert (found[:, expected == 0] == 0).all()
    for of_part, expected_N, num_draws in zip(found.unbind(dim=1), expected, draws, strict=True):
        live, spread = expected_N > 0, expected_N * (1 - expected_N / num_draws)
        if draw == "independent":
            assert stats.chisquare(of_part.sum(dim=0)[live], len(of_part) * expected_N[live]).pvalue > 1e-4
            assert abs(of_part.var(dim=0).sum() / spread.sum() - 1) < 0.05
        else:
            assert torch.allclose(of_part.mean(dim=0), expected_N, atol=0.1)
            assert of_part.var(dim=0).sum() < 0.5 * spread.sum()
    # The mean gradient to first order in 1 / draws: every draw at its mean.
    sums = expected * torch.exp(scores.double())
    total = math.exp(positive) + sums.sum(dim=1, keepdim=True)
    share_P1 = torch.tensor(share, dtype=torch.float64)[:, None]
    assert ((gradient.mean(dim=0) - share_P1 * sums / total).abs().sum(dim=1) < 0.02 * share_P1[:, 0]).all()
    assert abs(own.mean() - (share_P1 * math.exp(positive) / total).sum() + 1) < 0.01


def mean_over_outcomes(scores, counts, items, draws, form):
    """float64[N + 1], the expected gradient by the items' scores and, last, by the positive's own score.

    Every ordered outcome of drawing with replacement by softmax(s - log pop) from `items`, none of them the target.
    """
    e, pop = np.exp(scores.double().numpy()), counts / counts.sum()
    over_pop = e[items] / pop[items]
    w = over_pop / over_pop.sum()
    factor = {"resampled": 1.0, "weighted": 1 / (draws * w), "corrected": over_pop.mean() / (draws * e[items])}[form]
    mean = np.zeros(NUM_ITEMS + 1)
    for drawn in itertools.product(range(len(items)), repeat=draws):
        terms = np.bincount(drawn, minlength=len(items)) * factor * e[items]
        outcome = np.zeros_like(mean)
        np.add.at(outcome, items, terms)
        outcome[-1] = e[TARGET]
        outcome /= outcome.sum()
        outcome[-1] -= 1
        mean += np.prod(w[list(drawn)]) * outcome
    return mean


@pytest.mark.parametrize("form", ["resampled", "weighted", "corrected", "xir"])
def test_the_mean_gradient_equals_the_exact_expectation(form):
    """BIR with four draws from three items, one of them repeated; XIR with two of these and two of its cache."""
    scores, counts = world()
    batch, cache = np.array([TARGET, 1, 2, 2]), np.array([3, 3, 7, 9])
    items = np.concatenate([batch, cache]) if form == "xir" else batch
    users, own = (tensor.requires_grad_() for tensor in (scores.repeat(6000, 1), scores[TARGET].repeat(6000)))
    vectors, less = torch.eye(NUM_ITEMS)[items], log_popularity(counts)[items]
    masked, generator = torch.from_numpy(items == TARGET).repeat(6000, 1), torch.Generator().manual_seed(7)
    if form == "xir":
        parts = [DrawnPart(0, 4, 2, 0.7), DrawnPart(4, 8, 2, 0.3)]
        of_parts = [mean_over_outcomes(scores, counts, of_part, 2, "resampled") for of_part in (batch[1:], cache)]
        expected = 0.7 * of_parts[0] + 0.3 * of_parts[1]
    else:
        parts = [DrawnPart(0, 4, 4, 1.0)]
        expected = mean_over_outcomes(scores, counts, batch[1:], 4, form)
    if form in ("resampled", "xir"):
        losses, _ = drawn_softmax(users, vectors, own, less, masked, parts, generator, "independent")
    else:
        score_BC, bir = users @ vectors.T, Bir(log_popularity(counts), form, "independent")
        losses = weighted_softmax(own, score_BC, bir.log_weights(score_BC.detach(), less, masked, 4, generator))
    losses.sum().backward()
    gradient = torch.cat([users.grad, own.grad[:, None]], dim=1).double().numpy()
    noise = gradient.std(axis=0) / len(gradient) ** 0.5 + 1e-7  # of float32
    assert (np.abs(gradient.mean(axis=0) - expected) < 4 * noise).all()
    assert noise.max() < 0.005


@pytest.mark.parametrize("form", ["resampled", "weighted", "corrected"])
def test_forms_of_bir(form):
    """Only the corrected form estimates the catalogue's softmax.

    The weighted form estimates that of the batch, which is by popularity. The resampled form draws by exp(s) and has
    this weight once more.
    """
    scores, counts = world()
    size, generator = 512, torch.Generator().manual_seed(12)
    pop, e = torch.from_numpy(counts / counts.sum()), torch.exp(scores.double())
    others = torch.arange(NUM_ITEMS) != TARGET
    weight = {"resampled": size * e / e[others].sum(), "weighted": size * pop, "corrected": torch.ones(NUM_ITEMS)}[form]
    expected = torch.where(others, weight * e, e)
    expected = expected / expected.sum()
    sampler = Bir(log_popularity(counts), form)
    means = torch.empty((100, NUM_ITEMS), dtype=torch.float64)
    for mean in means:
        gradient, own = row_gradients(sampler, scores, [random_batch(counts, size, generator)], size, generator)
        mean[:] = gradient.mean(dim=0)[0]
        mean[TARGET] = 1 + own.mean()
    bias = (means.mean(dim=0) - expected).abs().sum()
    noise = (means.std(dim=0) / len(means) ** 0.5).sum()
    assert bias < 0.05 + noise
    assert noise < 0.04


@pytest.mark.parametrize("draw", ["systematic", "independent"])
def test_theorem_3_1_resampled_items_follow_the_softmax(draw):
    """As the batch grows, BIR's draws follow the user's softmax without masked items."""
    scores, counts = world()
    generator = torch.Generator().manual_seed(2)
    expected = torch.softmax(scores.double(), 0)
    expected[TARGET] = 0
    expected = expected / expected.sum()
    distances = []
    for batch_size, steps in ((16, 300), (512, 40)):
        sampler, positive = make_sampler("bir", counts, batch_size=batch_size, draw=draw), math.log(batch_size)
        found = torch.zeros(NUM_ITEMS, dtype=torch.float64)
        for _ in range(steps):
            items = random_batch(counts, batch_size, generator)
            gradient, _ = row_gradients(sampler, scores, [items], batch_size, generator, positive)
            found += drawn_counts(gradient, [1.0], scores, positive).sum(dim=(0, 1))
        distances.append((found / found.sum() - expected).abs().sum())
    assert distances[1] < 0.1
    assert distances[1] < distances[0] / 5


def test_lemma_3_1_inverse_frequencies_make_a_stream_uniform():
    _, counts = world()
    generator = torch.Generator().manual_seed(4)
    items = random_batch(counts, 200_000, generator)
    less, masked = log_popularity(counts)[items], torch.zeros((1, len(items)), dtype=torch.bool)
    drawn = resample_counts(torch.zeros(masked.shape), less, masked, 100_000, generator, "independent")[0]
    found = torch.zeros(NUM_ITEMS).index_add_(0, items, drawn)
    assert torch.allclose(found / found.sum(), torch.full((NUM_ITEMS,), 1 / NUM_ITEMS), atol=0.004)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_theorem_3_2_the_bias_is_within_its_bound(exponent):
    """If its premise holds, with the catalogue as the batch, the weighted form's bias is within the bound."""
    scores = world()[0].double()
    counts = (1000 / (np.arange(NUM_ITEMS) + 1.0) ** exponent).astype(int)
    items, generator = torch.arange(NUM_ITEMS), torch.Generator().manual_seed(5)
    sampler = Bir(log_popularity(counts), form="weighted", draw="independent")
    gradients = []
    for _ in range(1000):
        gradient, own = row_gradients(sampler, scores, [items], NUM_ITEMS, generator)
        gradient[:, 0, TARGET] = own
        gradients.append(gradient[:, 0])
    every = torch.cat(gradients)
    bias = every.mean(dim=0) - full_gradient(scores)
    noise = every.std(dim=0) / len(every) ** 0.5 + 1e-7  # of float32
    bound = resampling_bias_bound(scores.numpy(), counts / counts.sum(), np.delete(items.numpy(), TARGET), NUM_ITEMS)
    assert (bias <= torch.from_numpy(bound) + 4 * noise).all()
    if exponent == 0:
        # All draws have equal weight, so the sum is known: the bound is 0, and so is the bias.
        assert np.abs(bound).max() < 1e-12
        assert (bias.abs() <= 4 * noise).all()


def test_the_bound_of_theorem_3_2_equals_loops():
    rng = np.random.default_rng(0)
    scores, pop, batch, draws = rng.normal(size=9), rng.dirichlet(np.ones(9)), np.array([1, 3, 3, 8]), 4
    z = sum(math.exp(score) for score in scores)
    z_b = sum(math.exp(scores[j]) for j in batch)
    z_bp = sum(math.exp(scores[j]) / pop[j] for j in batch)
    weighted = sum(math.exp(scores[j]) * pop[j] for j in batch)
    gap = max(abs(pop[j] - pop[l]) for j in batch for l in batch)
    second = 2 / draws * gap * z_bp * z_b / (z**2 + weighted * z_bp)
    expected = [math.exp(s) * (weighted * z_bp - z_b**2) / (draws * z**3) + second for s in scores]
    np.testing.assert_allclose(resampling_bias_bound(scores, pop, batch, draws), expected)
    # A constant in all scores changes no softmax, even where exp overflows.
    np.testing.assert_allclose(resampling_bias_bound(scores + 900, pop, batch, draws), expected)


@pytest.mark.parametrize("rule", ["step", "all"])
def test_xir_s_cache_is_drawn_by_occurrences_among_the_last_draws(rule):
    """Occurrences count every draw; the next cache is drawn from this step's items by all, or by this step's counts."""
    scores, counts = world()
    size, positive, generator = 64, 4.0, torch.Generator().manual_seed(8)
    sampler = Xir(log_popularity(counts), cache_size=20_000, share=0.2, cache_counts=rule)
    total = torch.zeros(NUM_ITEMS, dtype=torch.int64)
    # Counts of the first step do not affect later caches: they have half of its items, and never item 10.
    later = scores.index_fill(0, torch.tensor([10]), -40.0)
    for first, stop, scores_N in ((0, 12, scores), (8, 24, later), (8, 24, later)):
        parts = [torch.randint(first, stop, (size,), generator=generator) for _ in range(2)]
        gradient, _ = row_gradients(sampler, scores_N, parts, size, generator, positive)
        now = drawn_counts(gradient, [0.8, 0.2], scores_N, positive).sum(dim=(0, 1)).round().long()
        total += now
        assert torch.equal(sampler.state()["occurrences"], total)
        assert len(sampler.cache) == 20_000
        found, live = torch.bincount(sampler.cache, minlength=NUM_ITEMS), now > 0
        assert (found[~live] == 0).all()
        fair, of_this_step = (20_000 * counts[live] / counts[live].sum().double() for counts in (total, now))
        expected, other = (fair, of_this_step) if rule == "all" else (of_this_step, fair)
        assert stats.chisquare(found[live], expected).pvalue > 1e-4
    assert stats.chisquare(found[live], other).pvalue < 1e-6


def test_xir_resumes_from_its_state_and_refuses_an_invalid_one():
    scores, counts = world()
    items = torch.arange(NUM_ITEMS)
    sampler = make_sampler("xir", counts, batch_size=NUM_ITEMS)

    def step(one):
        generator = torch.Generator().manual_seed(9)
        candidates = one.candidates(items, generator)
        one.losses(pairs_of(scores, items, candidates, candidates[None] == items[:, None]), generator)
        return one.cache

    step(sampler)
    restored = make_sampler("xir", counts, batch_size=NUM_ITEMS)
    restored.load_state(sampler.state())
    caches = [step(one) for one in (sampler, restored)]
    assert torch.equal(*caches)
    assert torch.equal(restored.occurrences, sampler.occurrences)
