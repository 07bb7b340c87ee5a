"""Resampling draws and their softmax: the distribution, and the native core against its reference with one seed."""

import pytest
import torch
from scipy import stats

from beamwood.errors import InputError
from beamwood.kernels import native
from beamwood.sampling import resample
from beamwood.sampling.resample import DrawnPart, drawn_softmax, resample_counts


def drawn(scores, num_draws, generator, draw="systematic"):
    """Counts of draws by the softmax of the scores, none of them masked."""
    less, masked = scores.new_zeros(scores.shape[1]), torch.zeros(scores.shape, dtype=torch.bool)
    return resample_counts(scores, less, masked, num_draws, generator, draw)


@pytest.mark.parametrize("draw", ["systematic", "independent"])
def test_draws_have_their_distribution(draw):
    generator = torch.Generator().manual_seed(6)
    log_weight = torch.randn(1, 12, generator=generator)
    log_weight[0, 4] = -torch.inf
    counts = drawn(log_weight.expand(3000, -1), 10, generator, draw)
    assert torch.equal(counts.sum(dim=1), torch.full((3000,), 10.0))
    assert (counts[:, 4] == 0).all()
    expected = torch.softmax(log_weight[0].double(), 0) * 10
    if draw == "independent":
        # Each row is a separate multinomial.
        live = expected > 0
        assert stats.chisquare(counts.sum(dim=0)[live], (expected * 3000)[live]).pvalue > 1e-4
        assert abs(counts[:, 0].var().item() / (expected[0] * (1 - expected[0] / 10)).item() - 1) < 0.15
    else:
        assert ((counts - expected).abs() < 1 + 1e-4).all()
        assert torch.allclose(counts.double().mean(dim=0), expected, atol=0.05)
    nothing = drawn(torch.full((2, 3), -torch.inf), 4, generator, draw)
    assert (nothing == 0).all()


@pytest.mark.skipif(native() is None, reason="the native core was not built")
@pytest.mark.parametrize("candidates", [1, 7, 64, 2049])
def test_native_draws_equal_the_reference(monkeypatch, candidates):
    generator = torch.Generator().manual_seed(candidates)
    scores = torch.randn(40, candidates, generator=generator) * 8
    masked = torch.rand(40, candidates, generator=generator) < 0.3
    masked[3] = True
    masked[4, :-1], masked[4, -1] = True, False
    less = torch.randn(candidates, generator=generator)
    results = []
    for path in ("native", "reference"):
        monkeypatch.setenv("BEAMWOOD_KERNELS", path)
        generator = torch.Generator().manual_seed(1)
        results.append(resample_counts(scores, less, masked, 500, generator))
    ours, twin = results
    # A draw at a boundary may be rounded to the neighbouring item.
    assert ((ours - twin).abs() <= 1).all()
    assert (ours != twin).float().mean() < 0.01
    assert torch.equal(ours.sum(dim=1), twin.sum(dim=1))
    assert (ours[masked] == 0).all()


@pytest.mark.skipif(native() is None, reason="the native core was not built")
@pytest.mark.parametrize(("batch", "cached"), [(1, 1), (7, 3), (40, 40), (33, 515)])
@pytest.mark.parametrize("spread", [0.2, 8.0])
def test_the_native_loss_and_gradients_equal_the_reference(monkeypatch, batch, cached, spread):
    generator = torch.Generator().manual_seed(batch)
    users = (torch.randn(batch, 5, generator=generator) * spread).requires_grad_()
    items = torch.randn(batch + cached, 5, generator=generator).requires_grad_()
    masked = torch.rand(batch, batch + cached, generator=generator) < 0.2
    masked[0] = True  # Without draws the loss and its gradient are 0.
    less = torch.randn(batch + cached, generator=generator)
    parts = [DrawnPart(0, batch, 20, 0.3), DrawnPart(batch, batch + cached, 50, 0.9)]  # shares need not sum to 1
    outcomes = []
    for path in ("native", "reference"):
        monkeypatch.setenv("BEAMWOOD_KERNELS", path)
        users.grad = items.grad = None
        generator = torch.Generator().manual_seed(1)
        positive = (users * items[:batch]).sum(dim=1)
        losses, drawn = drawn_softmax(users, items, positive, less, masked, parts, generator)
        (losses * torch.linspace(0.5, 2, batch)).sum().backward()
        outcomes.append((losses.detach(), drawn, users.grad.clone(), items.grad.clone()))
    ours, twin = outcomes
    assert torch.equal(ours[1].sum(), twin[1].sum())
    assert (ours[1] - twin[1]).abs().sum() <= 2  # A draw at a boundary.
    assert ours[0][0] == 0
    if torch.equal(ours[1], twin[1]):
        for one, other in zip(ours, twin, strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-4 * other.abs().max().item() + 1e-7)
    else:
        assert torch.allclose(ours[0], twin[0], atol=0.2)


@pytest.mark.skipif(native() is None, reason="the native core was not built")
def test_the_native_loss_is_nan_for_a_nan_score():
    users = torch.ones(2, 1)
    items = torch.tensor([[1.0], [torch.nan], [1.0]])
    masked, less = torch.zeros((2, 3), dtype=torch.bool), torch.zeros(3)
    parts = [DrawnPart(0, 3, 4, 1.0)]
    losses, _ = drawn_softmax(users, items, torch.ones(2), less, masked, parts, torch.Generator())
    assert torch.isnan(losses).all()


@pytest.mark.parametrize("path", ["native", "reference"])
def test_no_draw_is_lost_to_rounding(monkeypatch, path):
    """If the first draw stands at 0, the last one may be rounded to just below its step."""
    if path == "native" and native() is None:
        pytest.skip("the native core was not built")
    monkeypatch.setenv("BEAMWOOD_KERNELS", path)
    monkeypatch.setattr(resample, "_starts", lambda rows, parts, *_: torch.zeros(rows, parts))
    scores = torch.randn(3000, 37, generator=torch.Generator().manual_seed(2)) * 4
    for num_draws in (7, 1000):
        counts = drawn(scores, num_draws, torch.Generator())
        assert torch.equal(counts.sum(dim=1), torch.full((3000,), float(num_draws)))


def test_an_unknown_draw_is_named():
    scores = torch.zeros(2, 3)
    with pytest.raises(InputError, match="did you mean 'systematic'"):
        drawn(scores, 4, torch.Generator(), "systematical")


@pytest.mark.parametrize("draw", ["systematic", "independent"])
def test_another_default_type_changes_no_draw(draw):
    scores = torch.randn(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    expected = drawn(scores, 30, torch.Generator().manual_seed(1), draw=draw)
    torch.set_default_dtype(torch.float64)
    try:
        counts = drawn(scores, 30, torch.Generator().manual_seed(1), draw=draw)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(counts, expected)
