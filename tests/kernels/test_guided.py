"""GuidedRec's native functions against torch: values and gradients, for every instruction set and form."""

import math

import numpy as np
import pytest
import torch

from beamwood.kernels import native
from beamwood.kernels.guided import SurrogateShape, guided_move, list_ndcg, predicted_ndcg

LEVELS = native().levels() if native() is not None else [None]
PARTS = [(True, 2), (True, 0), (False, 1), (False, 2), (True, 1)]


def num_weights(shape):
    return sum(out * (within + 1) for out, within in shape.layers().values())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mlp", "degree"), PARTS)
@pytest.mark.parametrize("size", [(25, 10, 20), (1, 1, 1), (16, 3, 5), (37, 12, 7), (0, 4, 3)], ids=str)
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_predictions_and_gradients_equal_torch_in_float64(size, mlp, degree, level, scale, monkeypatch):
    if level is not None:
        monkeypatch.setattr("beamwood.kernels.guided.native_level", lambda: level)
    rows, items, width = size
    shape = SurrogateShape(items, width, mlp, degree)
    generator = torch.Generator().manual_seed(0)
    p, y = torch.rand((rows, items), generator=generator), torch.rand((rows, items), generator=generator).round()
    weights = torch.randn(num_weights(shape), generator=generator) * scale
    direction = torch.randn(rows, generator=generator)
    results = []
    for kind in (torch.float32, torch.float64):  # The native core accepts only float32.
        given = [tensor.to(kind).requires_grad_() for tensor in (p.clone(), weights.clone())]
        out = predicted_ndcg(given[0], y.to(kind), given[1], shape)
        (out * direction.to(kind)).sum().backward()
        results.append([out.detach(), given[0].grad, given[1].grad])
    for mine, exact in zip(*results, strict=True):
        # Tiny weights give tiny values, whose size matters to Adam; with large ones tanh saturates.
        room = 3e-5 * float(exact.abs().max()) + 1e-6 * (scale == 1) if exact.numel() else 0.0
        assert torch.allclose(mine.double(), exact, rtol=1e-4, atol=room)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mlp", "degree"), PARTS)
@pytest.mark.parametrize("moves", ["weights", "scores", "both"])
@pytest.mark.parametrize("k", [None, 1, 4, 10])
def test_a_move_has_the_loss_and_the_gradients_of_torch(k, moves, mlp, degree, level, monkeypatch):
    if level is not None:
        monkeypatch.setattr("beamwood.kernels.guided.native_level", lambda: level)
    shape = SurrogateShape(6, 5, mlp, degree)
    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn((37, 6), generator=generator)
    labels = torch.rand((37, 6), generator=generator).round()
    scores[3], labels[5] = 0.0, 0.0  # Ties, and a list without a positive.
    scores[7] = torch.tensor([1e4, -1e4, 90.0, -90.0, 0.0, 1.0])
    weights = torch.randn(num_weights(shape), generator=generator)
    of = {"of_scores": moves != "weights", "of_weights": moves != "scores"}
    got = guided_move(scores, labels, weights, shape, k=k, **of)

    exact_scores, exact_weights = scores.double().requires_grad_(), weights.double().requires_grad_()
    predicted = predicted_ndcg(torch.sigmoid(exact_scores), labels.double(), exact_weights, shape)
    true = None if k is None else list_ndcg(exact_scores.detach(), labels.double(), k=k)
    loss = -predicted.sum() if true is None else (predicted - true).square().sum() / 2
    loss.backward()
    assert got.loss == pytest.approx(loss.item(), rel=1e-4)
    assert got.predicted == pytest.approx(predicted.mean().item(), rel=1e-4, abs=1e-6)
    assert math.isnan(got.true) if true is None else got.true == pytest.approx(true.mean().item(), rel=1e-6)
    assert (got.d_scores_BK is None, got.d_weights is None) == (moves == "weights", moves == "scores")
    for mine, exact in [(got.d_scores_BK, exact_scores.grad), (got.d_weights, exact_weights.grad)]:
        if mine is not None:
            room = 3e-5 * float(exact.abs().max()) + 1e-6
            assert torch.allclose(mine.double(), exact, rtol=1e-4, atol=room)
    twin = guided_move(scores.double(), labels.double(), weights.double(), shape, k=k, **of)
    assert twin.loss == pytest.approx(loss.item(), rel=1e-12)
    assert (twin.d_scores_BK is None, twin.d_weights is None) == (moves == "weights", moves == "scores")
    assert twin.d_scores_BK is None or torch.allclose(twin.d_scores_BK, exact_scores.grad, rtol=1e-12)
    assert twin.d_weights is None or torch.allclose(twin.d_weights, exact_weights.grad, rtol=1e-12)
    assert not scores.requires_grad
    assert not weights.requires_grad


def test_only_requested_inputs_get_a_gradient_and_a_second_backward_is_refused():
    shape = SurrogateShape(4, 3, True, 2)
    p, weights = torch.rand((5, 4), requires_grad=True), torch.randn(num_weights(shape))
    predicted_ndcg(p, torch.ones((5, 4)), weights, shape).sum().backward()
    assert p.grad is not None
    assert weights.grad is None
    weights.requires_grad_()
    predicted_ndcg(p.detach(), torch.ones((5, 4)), weights, shape).sum().backward()
    assert weights.grad is not None


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_native_ndcg_equals_the_reference_with_ties(k):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (200, 9), generator=generator).float()
    labels = torch.randint(-1, 3, (200, 9), generator=generator).float()
    labels[:7] = 0
    exact = list_ndcg(scores.double(), labels.double(), k=k)
    assert torch.allclose(list_ndcg(scores, labels, k=k).double(), exact, rtol=1e-6, atol=1e-7)
    assert not exact[:7].any()


@pytest.mark.skipif(native() is None, reason="the native core is not built")
def test_invalid_shapes_are_refused_and_nan_propagates():
    p, y = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    shape = SurrogateShape(2, 3, True, 2)
    weights, out = np.zeros(num_weights(shape), np.float32), np.empty(3, np.float32)
    call, move = native().ndcg_surrogate, native().guided_move
    call(p, y, weights, 3, True, 2, out)
    for asked, wrong, match in [
        (call, (p, y[:2], weights, 3, True, 2, out), "labels does not match"),
        (call, (p, y, weights[1:], 3, True, 2, out), "weights does not match"),
        (call, (p, y, weights, 3, False, 0, out), "degree must be"),
        (call, (p, y, weights, 0, True, 2, out), "out of range"),
        (call, (p, y, weights, 3, True, 2, out[1:]), "predicted does not match"),
        (call, (p, y, weights, 3, True, 2, out, None, p), "need a gradient"),
        (call, (p, y, weights, 3, True, 2, out, out[1:]), "gradient does not match"),
        (call, (p, y, weights, 3, True, 2, out, out, p[1:].copy()), "gradient of the lists does not match"),
        (call, (p, y, weights, 3, True, 2, out, out, None, out), "d_weights does not match"),
        (move, (p, y[:2], weights, 3, True, 2, 10), "labels does not match"),
        (move, (p, y, weights[1:], 3, True, 2, 10), "weights does not match"),
        (move, (p, y, weights, 3, True, 2, -1), "k must be 0 or more"),
        (move, (p, y, weights, 3, True, 2, 0, p[1:].copy()), "gradient of the lists does not match"),
        (move, (p, y, weights, 3, True, 2, 0, None, out), "d_weights does not match"),
    ]:
        with pytest.raises(ValueError, match=match):
            asked(*wrong)
    p[1, 0] = np.nan
    call(p, y, np.ones_like(weights), 3, True, 2, out)
    assert np.isnan(out).tolist() == [False, True, False]
    assert np.isnan(move(p, y, np.ones_like(weights), 3, True, 2, 10)).all()
    assert torch.isnan(list_ndcg(torch.from_numpy(p), torch.from_numpy(y))).tolist() == [False, True, False]
