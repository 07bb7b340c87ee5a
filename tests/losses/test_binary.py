"""Binary cross-entropy against loops, at extremes, and its gradient."""

import math

import torch

from beamwood.losses.binary import binary_cross_entropy


def test_equals_loops_in_values_and_gradients():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((4, 7), generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.rand((4, 7), generator=generator) < 0.4
    counted = torch.rand((4, 7), generator=generator) < 0.7
    loss = binary_cross_entropy(logits, labels, counted)
    loss.sum().backward()
    for row in range(4):
        expected = 0.0
        for column in range(7):
            p = 1 / (1 + math.exp(-logits[row, column].item()))
            if counted[row, column]:
                expected -= math.log(p) if labels[row, column] else math.log(1 - p)
                assert abs(logits.grad[row, column].item() - (p - float(labels[row, column]))) < 1e-12
            else:
                assert logits.grad[row, column] == 0
        assert abs(loss[row].item() - expected) < 1e-12


def test_extremes_stay_finite():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    loss = binary_cross_entropy(logits, torch.tensor([[False, True, True]]))
    loss.sum().backward()
    assert torch.isclose(loss, torch.tensor([2e4 + math.log(2)])).all()
    assert torch.isfinite(logits.grad).all()
