"""Preference losses against loops in float64, the signs of their gradients, and their special cases."""

import math

import pytest
import torch

from beamwood.losses.preference import dpo, lpo, orpo, s_dpo, simpo, tail_weights


@pytest.fixture
def case():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 9, generator=generator, dtype=torch.float64) * 2
    reference = torch.log_softmax(torch.randn(6, 9, generator=generator, dtype=torch.float64), dim=1)
    return torch.log_softmax(logits, dim=1), reference


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def test_values_equal_loops(case):
    log_p, reference = case
    w, n, rw, rn = log_p[:, 0], log_p[:, 1:5], reference[:, 0], reference[:, 1:5]
    got = {
        "lpo": lpo(w, n, tau=0.7),
        "dpo": dpo(w, n, rw, rn, beta=0.3),
        "s_dpo": s_dpo(w, n, rw, rn, beta=0.3),
        "simpo": simpo(w, n, beta=2.0, gamma=0.5),
        "orpo": orpo(w, n),
    }
    for row in range(6):
        a, b = w[row].item(), n[row].tolist()
        ra, rb = rw[row].item(), rn[row].tolist()
        odds = [x - math.log(1 - math.exp(x)) for x in [a, *b]]
        expected = {
            "lpo": -math.log(math.exp(a / 0.7) / (math.exp(a / 0.7) + sum(math.exp(x / 0.7) for x in b))),
            "dpo": sum(-math.log(sigmoid(0.3 * ((a - x) - (ra - rx)))) for x, rx in zip(b, rb, strict=True)) / 4,
            "s_dpo": -math.log(
                sigmoid(-math.log(sum(math.exp(0.3 * ((x - rx) - (a - ra))) for x, rx in zip(b, rb, strict=True))))
            ),
            "simpo": sum(-math.log(sigmoid(2.0 * (a - x) - 0.5)) for x in b) / 4,
            "orpo": sum(-math.log(sigmoid(odds[0] - x)) for x in odds[1:]) / 4,
        }
        for name, value in expected.items():
            assert math.isclose(got[name][row].item(), value, rel_tol=1e-9), name


def test_the_odds_of_a_nearly_certain_positive_are_its_own():
    w, n = torch.log(torch.tensor([0.999])).double(), torch.log(torch.tensor([[0.5]])).double()
    assert math.isclose(orpo(w, n).item(), -math.log(sigmoid(math.log(999))), rel_tol=1e-3)


@pytest.mark.parametrize("name", ["lpo", "dpo", "s_dpo", "simpo", "orpo"])
def test_a_step_down_raises_the_positive_and_lowers_the_negatives(case, name):
    """The public program's LPO has the wrong sign: its minimum lowers the positive. This one must not."""
    log_p, reference = case
    w, n = log_p[:, 0].clone().requires_grad_(), log_p[:, 1:5].clone().requires_grad_()
    loss = {
        "lpo": lambda: lpo(w, n, tau=0.1),
        "dpo": lambda: dpo(w, n, reference[:, 0], reference[:, 1:5], beta=0.1),
        "s_dpo": lambda: s_dpo(w, n, reference[:, 0], reference[:, 1:5], beta=1.0),
        "simpo": lambda: simpo(w, n, beta=2.0, gamma=0.5),
        "orpo": lambda: orpo(w, n),
    }[name]()
    loss.sum().backward()
    assert (w.grad <= 0).all()
    assert (n.grad >= 0).all()
    assert w.grad.abs().sum() > 0


@pytest.mark.parametrize("count", [1, 2, 8])
@pytest.mark.parametrize("tau", [0.1, 1.0, 2.0])
def test_the_gradient_of_lpo_is_equation_18(case, tau, count):
    """By pi of the positive: (its share of the list - 1) / tau; by pi of a negative: its share / tau."""
    pi = case[0][:, : count + 1].clone().requires_grad_()
    lpo(pi[:, 0], pi[:, 1:], tau=tau).sum().backward()
    weights = torch.exp(pi.detach() / tau)
    share = weights / weights.sum(dim=1, keepdim=True)
    share[:, 0] -= 1
    assert torch.allclose(pi.grad, share / tau, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 8])
def test_s_dpo_is_lpo_of_log_ratios(case, count):
    """With tau = 1 / beta. With one negative S-DPO is DPO, and LPO is SimPO without its margin; with more neither is.

    A list is likelier than its pairs one by one (LPO4Rec, equation 11): prod (1 + x) > 1 + sum x for x > 0.
    """
    log_p, reference = (each[:, : count + 1] for each in case)
    parts = log_p[:, 0], log_p[:, 1:], reference[:, 0], reference[:, 1:]
    ratio = log_p - reference
    whole, pairs = s_dpo(*parts, beta=0.3), dpo(*parts, beta=0.3)
    assert torch.allclose(whole, lpo(ratio[:, 0], ratio[:, 1:], tau=1 / 0.3), rtol=1e-12)
    alone, alone_pairs = lpo(*parts[:2], tau=0.5), simpo(*parts[:2], beta=2.0, gamma=0.0)
    for one, other in ((whole, pairs), (alone, alone_pairs)):
        assert torch.allclose(one, other, rtol=1e-12) == (count == 1)
        assert (one <= count * other + 1e-12).all()
    same = s_dpo(*parts[:2], *parts[:2], beta=0.3)
    assert torch.allclose(same, torch.full_like(same, math.log(1 + count)))


def test_lpo_of_logits_and_of_log_probabilities_are_one_loss(case):
    log_p, _ = case
    shifted = log_p + torch.arange(6, dtype=torch.float64)[:, None]
    assert torch.allclose(lpo(log_p[:, 0], log_p[:, 1:], tau=0.5), lpo(shifted[:, 0], shifted[:, 1:], tau=0.5))


def test_lpo_of_probabilities_has_small_gradients_for_a_large_catalogue():
    """If pi is a probability, the gradient by a logit has an additional factor pi."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(1, 5000, generator=generator, dtype=torch.float64)
    norms = []
    for form in ("prob", "logit"):
        leaf = logits.clone().requires_grad_()
        pi = torch.softmax(leaf, 1) if form == "prob" else leaf
        lpo(pi[:, 0], pi[:, 1:11], tau=0.1 if form == "prob" else 1.0).sum().backward()
        norms.append(leaf.grad.norm().item())
    assert norms[0] < norms[1] / 50


def test_extremes_stay_finite():
    w, n = torch.tensor([0.0, -1e4]).requires_grad_(), torch.tensor([[-1e4], [0.0]]).requires_grad_()
    total = lpo(w, n, tau=0.1) + s_dpo(w, n, n[:, 0], n, beta=1.0) + simpo(w, n, beta=2.0, gamma=0.5) + orpo(w, n)
    total.sum().backward()
    assert torch.isfinite(total).all()
    assert torch.isfinite(w.grad).all()


def test_tail_weights_are_e_to_one_and_sum_to_one():
    weights = tail_weights(torch.tensor([True, False, False, True]))
    assert math.isclose(weights.sum().item(), 1, rel_tol=1e-6)
    assert math.isclose((weights[0] / weights[1]).item(), math.e, rel_tol=1e-5)
    even = tail_weights(torch.zeros(5, dtype=torch.bool))
    assert torch.allclose(even, torch.full((5,), 0.2))
