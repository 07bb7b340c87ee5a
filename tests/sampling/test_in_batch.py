"""In-batch samplers by statistics: the full softmax's gradient is the reference, bias and spread are measured.

One user with known scores over a small catalogue; the rest of the batch is drawn by popularity, as a stream of
interactions is. A wrong sign of log q, or none, fails here.
"""

import math

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.losses.softmax import weighted_softmax
from beamwood.sampling.in_batch import SAMPLERS, Bir, GTower, Pairs, Xir, log_popularity, make_sampler
from beamwood.sampling.resample import resample_counts

NUM_ITEMS, TARGET = 24, 5


def world():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(NUM_ITEMS, generator=generator) * 1.2
    counts = np.array([400 // (rank + 1) + 3 for rank in range(NUM_ITEMS)])
    return scores, counts


def full_gradient(scores):
    gradient = torch.softmax(scores.double(), 0)
    gradient[TARGET] -= 1
    return gradient


def pairs_of(leaf, items, candidates, masked):
    """One user's scores `leaf` in every row, by inner products with one-hot items."""
    one_hot = torch.eye(len(leaf), dtype=leaf.dtype)[candidates]
    return Pairs(leaf[None].expand(len(items), -1), one_hot, leaf[items], candidates, masked)


def step_gradient(sampler, scores, counts, batch_size, generator):
    """The gradient by the scores of one user (row 0) of one random batch."""
    shares = torch.from_numpy(counts / counts.sum())
    items = torch.multinomial(shares, batch_size, replacement=True, generator=generator)
    items[0] = TARGET
    candidates = sampler.candidates(items, generator)
    leaf = scores.double().clone().requires_grad_()
    masked = candidates[None] == items[:, None]
    sampler.losses(pairs_of(leaf, items, candidates, masked), generator)[0].backward()
    return leaf.grad


def measured(make, batch_size, draws=1500):
    """Bias (L1 norm of mean minus truth), the size that noise alone gives it, and the spread of one step."""
    scores, counts = world()
    generator = torch.Generator().manual_seed(batch_size)
    sampler = make(counts, batch_size)
    gradients = torch.stack([step_gradient(sampler, scores, counts, batch_size, generator) for _ in range(draws)])
    bias = (gradients.mean(dim=0) - full_gradient(scores)).abs().sum().item()
    spread = gradients.std(dim=0)
    return bias, (spread / draws**0.5).sum().item(), spread.norm().item()


def named(name, **options):
    return lambda counts, batch_size: make_sampler(name, counts, batch_size=batch_size, **options)


def test_uncorrected_in_batch_negatives_stay_biased():
    small, noise, _ = measured(named("ssl"), 32)
    large, _, _ = measured(named("ssl"), 256, draws=500)
    assert small > 10 * noise
    assert large > 0.5 * small
    assert large > 0.2


@pytest.mark.parametrize("name", ["ssl-pop", "mns"])
def test_corrected_ones_lose_their_bias_and_spread_as_the_batch_grows(name):
    small, _, spread_small = measured(named(name), 16)
    large, noise, spread_large = measured(named(name), 256, draws=600)
    assert small > 2 * large
    assert large < 0.04 + 2 * noise
    assert spread_large < 0.5 * spread_small


@pytest.mark.parametrize("break_it", ["sign", "popularity"])
def test_a_wrong_correction_is_seen(break_it):
    """The tests above can fail: with the sign of log q turned, or the wrong q, the bias stays."""

    def broken(counts, batch_size):
        sampler = make_sampler("ssl-pop", counts, batch_size=batch_size)
        log_q = sampler.log_q_N
        sampler.log_q_N = -log_q - 2 * math.log(NUM_ITEMS) if break_it == "sign" else log_q.flip(0)
        return sampler

    bias, noise, _ = measured(broken, 256, draws=600)
    assert bias > 0.15 + 4 * noise


def test_the_program_s_correction_with_repeats_kept():
    """Both sides corrected, repeats of the positive kept: this too loses its bias as the batch grows."""
    scores, counts = world()
    generator = torch.Generator().manual_seed(3)
    shares, biases = torch.from_numpy(counts / counts.sum()), []
    for batch_size in (16, 256):
        sampler = make_sampler("ssl-pop", counts, batch_size=batch_size, correction="program")
        total = torch.zeros(NUM_ITEMS, dtype=torch.float64)
        own = torch.eye(batch_size, dtype=torch.bool)
        for _ in range(600):
            items = torch.multinomial(shares, batch_size, replacement=True, generator=generator)
            items[0] = TARGET
            leaf = scores.double().clone().requires_grad_()
            sampler.losses(pairs_of(leaf, items, items, own), generator)[0].backward()
            total += leaf.grad
        biases.append((total / 600 - full_gradient(scores)).abs().sum().item())
    assert biases[1] < 0.1
    assert biases[0] > 2 * biases[1]


@pytest.mark.parametrize("form", ["resampled", "weighted", "corrected"])
def test_forms_of_bir(form):
    """Only the corrected form estimates the catalogue's softmax; the weighted one that of the batch."""
    bias, noise, _ = measured(named("bir", form=form), 256, draws=500)
    if form == "corrected":
        assert bias < 0.06 + 2 * noise
    else:
        assert bias > 0.1


@pytest.mark.parametrize("draw", ["systematic", "independent"])
def test_theorem_3_1_resampled_items_follow_the_softmax(draw):
    """As the batch grows, what BIR draws is distributed as the user's softmax (without what is masked)."""
    scores, counts = world()
    generator = torch.Generator().manual_seed(2)
    shares = torch.from_numpy(counts / counts.sum())
    expected = torch.softmax(scores.double(), 0)
    expected[TARGET] = 0
    expected = (expected / expected.sum()).numpy()
    distances = []
    for batch_size in (16, 4096):
        found = np.zeros(NUM_ITEMS)
        for _ in range(300 if batch_size == 16 else 30):
            items = torch.multinomial(shares, batch_size, replacement=True, generator=generator)
            less, masked = log_popularity(counts)[items], (items == TARGET)[None]
            row = scores[items][None]
            drawn = resample_counts(row, batch_size, generator, draw, less_C=less, masked_BC=masked)
            np.add.at(found, items.numpy(), drawn[0].numpy())
        distances.append(np.abs(found / found.sum() - expected).sum())
    assert distances[1] < 0.03
    assert distances[1] < distances[0] / 2


def test_lemma_3_1_inverse_frequencies_make_a_stream_uniform():
    _, counts = world()
    generator = torch.Generator().manual_seed(4)
    items = torch.multinomial(torch.from_numpy(counts / counts.sum()), 200_000, replacement=True, generator=generator)
    drawn = resample_counts(-log_popularity(counts)[items][None], 100_000, generator, "independent")[0]
    found = torch.zeros(NUM_ITEMS).index_add_(0, items, drawn)
    assert torch.allclose(found / found.sum(), torch.full((NUM_ITEMS,), 1 / NUM_ITEMS), atol=0.004)


def test_theorem_3_2_the_bias_is_within_its_bound():
    """Where its premise holds, the batch being the catalogue, the weighted form's bias obeys the bound."""
    scores, _ = world()
    for exponent in (0.0, 0.5, 1.0):
        counts = (1000 / (np.arange(NUM_ITEMS) + 1.0) ** exponent).astype(int)
        pop = torch.from_numpy(counts / counts.sum())
        items = torch.arange(NUM_ITEMS)
        sampler = Bir(log_popularity(counts), form="weighted", draw="independent")
        generator = torch.Generator().manual_seed(5)
        mask = (items == TARGET)[None].expand(4000, -1)
        every = scores[None].expand(4000, -1)
        log_weight = sampler.log_weights(every, log_popularity(counts), mask, NUM_ITEMS, generator)
        leaf = scores.double().clone().requires_grad_()
        rows = leaf[None].expand(4000, -1)
        weighted_softmax(leaf[TARGET].expand(4000), rows, log_weight).mean().backward()
        bias = leaf.grad - full_gradient(scores)
        e = torch.exp(scores.double())
        others = items != TARGET
        z, z_b, z_bp = e.sum(), e[others].sum(), (e / pop)[others].sum()
        # The gradient of s by the scores has coordinates of at most G = 1.
        first = e * ((e * pop)[others].sum() * z_bp - z_b**2) / (NUM_ITEMS * z**3)
        gap = pop[others].max() - pop[others].min()
        second = 2 / NUM_ITEMS * gap * z_bp * z_b / (z**2 + (e * pop)[others].sum() * z_bp)
        noise = 4 * torch.sqrt(torch.softmax(scores.double(), 0)) / 4000**0.5
        assert (bias <= first + second + noise).all()


def test_g_tower_learns_frequencies_on_line():
    _, counts = world()
    shares = counts / counts.sum()
    generator = torch.Generator().manual_seed(7)
    sampler = GTower(NUM_ITEMS, rate=0.02)
    for _ in range(3000):
        sampler.candidates(
            torch.multinomial(torch.from_numpy(shares), 4, replacement=True, generator=generator), generator
        )
    estimate = torch.exp(sampler.log_q(torch.arange(NUM_ITEMS), 4)).numpy()
    # Of a batch of 4, an item is present with probability 1 - (1 - p)^4.
    present = (1 - (1 - shares) ** 4) / 4
    assert np.abs(np.log(estimate / present)).mean() < 0.25
    restored = GTower(NUM_ITEMS, rate=0.02)
    restored.load_state(sampler.state())
    assert torch.equal(restored.log_q(torch.arange(5), 4), sampler.log_q(torch.arange(5), 4))


def test_xir_s_cache_holds_what_was_drawn_and_is_restored():
    scores, counts = world()
    sampler = make_sampler("xir", counts, batch_size=32)
    generator = torch.Generator().manual_seed(8)
    items = torch.randint(NUM_ITEMS, (32,), generator=generator)
    candidates = sampler.candidates(items, generator)
    assert torch.equal(candidates[:32], items)
    first = sampler.cache.clone()
    masked = candidates[None] == items[:, None]
    sampler.losses(pairs_of(scores, items, candidates, masked), generator)
    assert not torch.equal(sampler.cache, first)
    assert set(sampler.cache.tolist()) <= set(candidates.tolist())
    other = Xir(log_popularity(counts), 32)
    other.load_state(sampler.state())
    assert torch.equal(other.cache, sampler.cache)


@pytest.mark.parametrize("name", SAMPLERS)
def test_contract(name):
    """Batch first, the same seed gives the same losses, and what is masked has no gradient."""
    scores, counts = world()
    counts = counts.copy()
    counts[3] = 0  # an item that nobody took has a floor, not log 0
    results = []
    for _ in range(2):
        generator = torch.Generator().manual_seed(9)
        sampler = make_sampler(name, counts, batch_size=8)
        items = torch.tensor([3, 5, 5, 1, 0, 2, 7, 9])
        candidates = sampler.candidates(items, generator)
        assert torch.equal(candidates[:8], items)
        pairs = pairs_of(scores, items, candidates, candidates[None] == items[:, None])
        pairs.items_CD.requires_grad_()
        losses = sampler.losses(pairs, generator)
        losses[0].backward()
        assert (losses >= 0).all()
        assert (pairs.items_CD.grad[pairs.masked_BC[0]] == 0).all()
        assert (pairs.items_CD.grad[~pairs.masked_BC[0]] != 0).any()
        results.append(losses)
    assert torch.equal(*results)


def test_wrong_input():
    with pytest.raises(InputError, match="did you mean 'xir'"):
        make_sampler("xr", np.ones(3), batch_size=2)
    with pytest.raises(InputError, match="floor=0"):
        log_popularity(np.ones(3), floor=0)
    with pytest.raises(InputError, match="share=2"):
        make_sampler("xir", np.ones(3), batch_size=2, cache_share=2)


@pytest.mark.parametrize("num_uniform", [1, 6, 18])
def test_mns_mixes_by_the_share_of_each_half(num_uniform: int) -> None:
    """q = r pop + (1 - r) / N with r the batch's share; equal halves would hide an r that is turned round."""
    counts = np.array([50.0, 20.0, 20.0, 10.0])
    sampler = make_sampler("mns", counts, batch_size=6, num_uniform=num_uniform)
    candidates = sampler.candidates(torch.tensor([0, 0, 1, 2, 3, 0]), torch.Generator().manual_seed(0))
    assert len(candidates) == 6 + num_uniform
    log_weight, _ = sampler.log_weights(candidates, 6)
    share = 6 / len(candidates)
    q = share * counts / counts.sum() + (1 - share) / 4
    expected = 1 / (q[candidates.numpy()] * (len(candidates) - 1))
    np.testing.assert_allclose(torch.exp(log_weight).numpy(), expected, rtol=1e-5)
