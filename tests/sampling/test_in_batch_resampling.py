"""BIR and XIR by statistics: what they draw, how often, with what share of the gradient, and the theorems on it."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from beamwood.sampling.in_batch import Bir, Xir, log_popularity, make_sampler
from beamwood.sampling.resample import resample_counts
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


def resampling_bias_bound(scores_N, popularity_N, batch_C, num_draws):
    """[N]: how far the mean gradient by a user's scores may exceed that of the full softmax, for BIR's weighted form.

        e^s (Z_Bp sum_B e^s p - Z_B^2) / (m Z^3) + 2 max_B |p - p'| Z_Bp Z_B / (m (Z^2 + Z_Bp sum_B e^s p))

    Z and Z_B are the sums of e^s over catalogue and batch, Z_Bp is that of e^s / p over the batch, m the draws. What
    falls faster than 1 / m is left out. `batch_C`: the items that are drawn from, without the positive; the theorem
    takes their sum for that of the catalogue's other items. Source: XIR, theorem 3.2, where the gradient of a score by
    itself is 1.
    """
    top = scores_N.max()
    e_N = np.exp(scores_N.astype(float) - top)
    e_C, p_C = e_N[batch_C], popularity_N[batch_C]
    z, z_b, z_bp, weighted = e_N.sum(), e_C.sum(), (e_C / p_C).sum(), (e_C * p_C).sum()
    of_variance = e_N * (weighted * z_bp - z_b**2) / (num_draws * z**3)
    of_gap = 2 * (p_C.max() - p_C.min()) * z_bp * z_b / (num_draws * (z**2 + weighted * z_bp))
    return of_variance + of_gap


@pytest.mark.parametrize("draw", ["systematic", "independent"])
@pytest.mark.parametrize("name", ["bir", "xir"])
def test_draws_and_mean_gradient_of_a_fixed_batch(name, draw):
    """|B| draws, or half from the batch and half from the cache with shares 1 - lambda and lambda, all by
    softmax(s - log pop)."""
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


@pytest.mark.parametrize("form", ["resampled", "weighted", "corrected"])
def test_forms_of_bir(form):
    """Only the corrected form estimates the catalogue's softmax: the weighted one that of the batch, which is by
    popularity, and the resampled one draws by exp(s) and weighs by it once more."""
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
    """As the batch grows, what BIR draws is distributed as the user's softmax (without what is masked)."""
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
    drawn = resample_counts(-log_popularity(counts)[items][None], 100_000, generator, "independent")[0]
    found = torch.zeros(NUM_ITEMS).index_add_(0, items, drawn)
    assert torch.allclose(found / found.sum(), torch.full((NUM_ITEMS,), 1 / NUM_ITEMS), atol=0.004)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_theorem_3_2_the_bias_is_within_its_bound(exponent):
    """Where its premise holds, the batch being the catalogue, the weighted form's bias obeys the bound."""
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
        # All draws weigh alike, so that the sum is known: the bound is 0, and so is the bias.
        assert np.abs(bound).max() < 1e-12
        assert (bias.abs() <= 4 * noise).all()


def test_the_bound_of_theorem_3_2_in_loops():
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


@pytest.mark.parametrize("rule", ["step", "all"])
def test_xir_s_cache_is_drawn_by_occurrences_among_what_was_drawn_last(rule):
    """Occurrences count every draw; the next cache is drawn by them, or by this step's, of this step's items alone."""
    scores, counts = world()
    size, positive, generator = 64, 4.0, torch.Generator().manual_seed(8)
    sampler = Xir(log_popularity(counts), cache_size=20_000, share=0.2, cache_counts=rule)
    total = torch.zeros(NUM_ITEMS, dtype=torch.int64)
    # What the first step counted is no part of the later caches: of its items they know half, and never draw item 10.
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


def test_xir_goes_on_from_its_state_and_refuses_one_that_does_not_count():
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
