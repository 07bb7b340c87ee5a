"""Losses over a beam's candidates against loops, and the inequalities that make them bounds."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from beamwood.errors import InputError
from beamwood.theory.margin_losses import beam_margin, beam_softmax, multiclass_margin, top_k_hinge


def case(rows=40, rivals=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, rivals + 1, generator=generator, dtype=torch.float64)
    return scores[:, 0], scores[:, 1:]


def test_values_equal_loops():
    target, rivals = case()
    present = torch.rand(rivals.shape, generator=torch.Generator().manual_seed(4)) < 0.7
    present[0] = False
    k = 3
    got = {
        "g": beam_margin(target, rivals, k, present),
        "margin": multiclass_margin(target, rivals, present),
        "hinge": top_k_hinge(target, rivals, k, present),
        "softmax": beam_softmax(target, rivals, present),
    }
    for row in range(len(target)):
        f = target[row].item()
        others = [x for x, real in zip(rivals[row].tolist(), present[row].tolist(), strict=True) if real]
        top = sorted([f, *others], reverse=True)[:k]
        expected = {
            "g": f - top[k - 1] if len(top) == k else math.inf,
            "margin": max(0.0, 1 - (f - max(others))) if others else 0.0,
            "hinge": max(0.0, sum(1 + x - f for x in top) / len(top)),
            "softmax": -math.log(math.exp(f) / (math.exp(f) + sum(math.exp(x) for x in others))),
        }
        for name, value in expected.items():
            assert math.isclose(got[name][row].item(), value, rel_tol=1e-9, abs_tol=1e-12), (name, row)


def test_a_target_is_lost_if_its_margin_is_negative():
    target, rivals = case(200, seed=3)
    rank = (rivals > target[:, None]).sum(dim=1)
    for k in (1, 2, 5):
        assert torch.equal(beam_margin(target, rivals, k) >= 0, rank < k)
    assert torch.isinf(beam_margin(target, rivals, 8)).all()


@given(seed=st.integers(0, 100_000), k=st.integers(2, 7), levels=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_each_loss_bounds_its_own_function_of_the_margin(seed, k, levels):
    """A(g) <= max over levels (margin, hinge), <= log2(e) times the sum over levels (softmax)."""
    target, rivals = case(levels, 6, seed)
    target, rivals = 3 * target, 3 * rivals
    g = beam_margin(target, rivals, k).min()
    hinge = torch.relu(1 - g)
    assert hinge <= multiclass_margin(target, rivals).max() + 1e-12
    assert hinge <= top_k_hinge(target, rivals, k).max() + 1e-12
    logarithmic = math.log2(1 + math.exp(-g.item())) if math.isfinite(g.item()) else 0.0
    assert logarithmic <= math.log2(math.e) * beam_softmax(target, rivals).sum().item() + 1e-12


def test_with_a_beam_of_one_only_the_hinge_bound_holds():
    """The best candidate has g = 0, so A(0) = 1, although its margin over the next one may be large."""
    target, rivals = torch.tensor([5.0]), torch.tensor([[0.0, -1.0]])
    assert beam_margin(target, rivals, 1).item() == 0
    assert multiclass_margin(target, rivals).item() == 0
    assert beam_softmax(target, rivals).item() * math.log2(math.e) < 1
    assert top_k_hinge(target, rivals, 1).item() == 1


@pytest.mark.parametrize("name", ["margin", "hinge", "softmax"])
def test_gradients_in_float64_also_without_rivals(name):
    target, rivals = case(6, 5, seed=8)
    present = torch.ones(rivals.shape, dtype=torch.bool)
    present[1, 2:] = False
    present[2] = False
    loss = {
        "margin": lambda t, r: multiclass_margin(t, r, present),
        "hinge": lambda t, r: top_k_hinge(t, r, 3, present),
        "softmax": lambda t, r: beam_softmax(t, r, present),
    }[name]
    target, rivals = target.requires_grad_(), rivals.clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, (target, rivals))


def test_a_row_without_rivals_has_no_loss():
    assert multiclass_margin(torch.tensor([0.5]), torch.empty(1, 0)).tolist() == [0]


@pytest.mark.parametrize("loss", [beam_margin, top_k_hinge])
@pytest.mark.parametrize("k", [0, -1])
def test_a_margin_is_to_the_first_candidate_or_a_later_one(loss, k):
    with pytest.raises(InputError, match=f"k={k} is below 1"):
        loss(torch.ones(2), torch.ones(2, 3), k)
