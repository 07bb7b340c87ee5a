"""In-batch samplers: bias and variance of the gradient against that of the full softmax.

One user has known scores over a small catalogue; the rest of the batch is drawn by popularity, like a stream of
interactions. A wrong sign of log q, or no log q, fails.
"""

import math

import numpy as np
import pytest
import torch

from beamwood.errors import InputError
from beamwood.sampling.in_batch import SAMPLERS, GTower, make_sampler
from in_batch_cases import NUM_ITEMS, TARGET, full_gradient, pairs_of, random_batch, world


def step_gradient(sampler, scores, counts, batch_size, generator):
    """The gradient by the scores of one user (row 0) of one random batch."""
    items = random_batch(counts, batch_size, generator)
    items[0] = TARGET
    candidates = sampler.candidates(items, generator)
    leaf = scores.double().clone().requires_grad_()
    masked = candidates[None] == items[:, None]
    sampler.losses(pairs_of(leaf, items, candidates, masked), generator)[0].backward()
    return leaf.grad


def measured(make, batch_size, draws=1500):
    """Bias (L1 norm of mean minus truth), its size from noise alone, and the standard deviation of one step."""
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
def test_bias_and_variance_of_corrected_samplers_vanish_as_the_batch_grows(name):
    small, _, spread_small = measured(named(name), 16)
    large, noise, spread_large = measured(named(name), 256, draws=600)
    assert small > 2 * large
    assert large < 0.04 + 2 * noise
    assert spread_large < 0.5 * spread_small


@pytest.mark.parametrize("break_it", ["sign", "popularity"])
def test_a_wrong_correction_is_detected(break_it):
    """The tests above can fail: with the wrong sign of log q, or the wrong q, the bias stays."""

    def broken(counts, batch_size):
        sampler = make_sampler("ssl-pop", counts, batch_size=batch_size)
        log_q = sampler.log_q_N
        sampler.log_q_N = -log_q - 2 * math.log(NUM_ITEMS) if break_it == "sign" else log_q.flip(0)
        return sampler

    bias, noise, _ = measured(broken, 256, draws=600)
    assert bias > 0.15 + 4 * noise


def test_the_program_s_correction_with_repeats_kept():
    """With both sides corrected and repeats of the positive kept, the bias also vanishes as the batch grows."""
    scores, counts = world()
    generator = torch.Generator().manual_seed(3)
    biases = []
    for batch_size in (16, 256):
        sampler = make_sampler("ssl-pop", counts, batch_size=batch_size, correction="program")
        total = torch.zeros(NUM_ITEMS, dtype=torch.float64)
        own = torch.eye(batch_size, dtype=torch.bool)
        for _ in range(600):
            items = random_batch(counts, batch_size, generator)
            items[0] = TARGET
            leaf = scores.double().clone().requires_grad_()
            sampler.losses(pairs_of(leaf, items, items, own), generator)[0].backward()
            total += leaf.grad
        biases.append((total / 600 - full_gradient(scores)).abs().sum().item())
    assert biases[1] < 0.1
    assert biases[0] > 2 * biases[1]


def test_g_tower_learns_frequencies_on_line():
    _, counts = world()
    shares = counts / counts.sum()
    generator = torch.Generator().manual_seed(7)
    sampler = GTower(NUM_ITEMS, rate=0.02)
    for _ in range(3000):
        sampler.candidates(random_batch(counts, 4, generator), generator)
    estimate = torch.exp(sampler.log_q(torch.arange(NUM_ITEMS), 4)).numpy()
    # An item is in a batch of 4 with probability 1 - (1 - p)^4.
    present = (1 - (1 - shares) ** 4) / 4
    assert np.abs(np.log(estimate / present)).mean() < 0.25
    restored = GTower(NUM_ITEMS, rate=0.02)
    restored.load_state(sampler.state())
    assert torch.equal(restored.log_q(torch.arange(5), 4), sampler.log_q(torch.arange(5), 4))


@pytest.mark.parametrize("correction", ["sampled", "program"])
def test_g_tower_s_loss_equals_loops(correction):
    """Algorithm 2 by item, then every candidate over its estimated frequency, the program's positive too."""
    scores, counts = world()
    generator, size, rate = torch.Generator().manual_seed(13), 8, 0.1
    sampler = GTower(NUM_ITEMS, rate=rate, correction=correction)
    gap, last = [NUM_ITEMS / size] * NUM_ITEMS, [0] * NUM_ITEMS
    for step in range(1, 60):
        items = random_batch(counts, size, generator)
        sampler.candidates(items, generator)
        for item in set(items.tolist()):
            gap[item], last[item] = (1 - rate) * gap[item] + rate * (step - last[item]), step
    masked = torch.eye(size, dtype=torch.bool)
    losses = sampler.losses(pairs_of(scores, items, items, masked), generator)
    weight = [max(1.0, gap[item]) * size for item in items]
    for row, item in enumerate(items):
        others = sum(weight[c] * math.exp(scores[items[c]]) for c in range(size) if c != row)
        own = math.exp(scores[item]) * (weight[row] if correction == "program" else size - 1)
        assert losses[row].item() == pytest.approx(math.log1p(others / own), rel=1e-4)


@pytest.mark.parametrize("name", SAMPLERS)
def test_contract(name):
    """Losses have shape [batch], equal seeds give equal losses, and masked entries have no gradient."""
    scores, counts = world()
    counts = counts.copy()
    counts[3] = 0  # An item without interactions has a floor, not log 0.
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
    with pytest.raises(InputError, match="share=2"):
        make_sampler("xir", np.ones(3), batch_size=2, cache_share=2)


@pytest.mark.parametrize("num_uniform", [1, 6, 18])
def test_mns_mixes_by_the_share_of_each_half(num_uniform: int) -> None:
    """q = r pop + (1 - r) / N with r the batch's share; equal halves would hide a swapped r."""
    counts = np.array([50.0, 20.0, 20.0, 10.0])
    sampler = make_sampler("mns", counts, batch_size=6, num_uniform=num_uniform)
    candidates = sampler.candidates(torch.tensor([0, 0, 1, 2, 3, 0]), torch.Generator().manual_seed(0))
    assert len(candidates) == 6 + num_uniform
    share = 5 / (len(candidates) - 1)  # Without the row's own positive, which is not drawn.
    q = share * counts / counts.sum() + (1 - share) / 4
    found = torch.exp(sampler.proposal(candidates, 6)).numpy()
    np.testing.assert_allclose(found, q[candidates.numpy()], rtol=1e-5)
