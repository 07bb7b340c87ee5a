"""GuidedRec's native functions: the torch twin's values and gradients, every instruction set and form."""

import numpy as np
import pytest
import torch

from beamwood.kernels import native
from beamwood.kernels.guided import SurrogateShape, list_ndcg, predicted_ndcg, squared_miss, summed_ndcg

LEVELS = native().levels() if native() is not None else [None]
PARTS = [(True, 2), (True, 0), (False, 1), (False, 2), (True, 1)]


def num_weights(shape):
    return sum(out * (within + 1) for out, within in shape.layers().values())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mlp", "degree"), PARTS)
@pytest.mark.parametrize("size", [(25, 10, 20), (1, 1, 1), (16, 3, 5), (37, 12, 7), (0, 4, 3)], ids=str)
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_predictions_and_gradients_are_those_of_torch_in_float64(size, mlp, degree, level, scale, monkeypatch):
    if level is not None:
        monkeypatch.setattr("beamwood.kernels.guided.native_level", lambda: level)
    rows, items, width = size
    shape = SurrogateShape(items, width, mlp, degree)
    generator = torch.Generator().manual_seed(0)
    p, y = torch.rand((rows, items), generator=generator), torch.rand((rows, items), generator=generator).round()
    weights = torch.randn(num_weights(shape), generator=generator) * scale
    direction = torch.randn(rows, generator=generator)
    results = []
    for kind in (torch.float32, torch.float64):  # the native core takes float32 alone
        given = [tensor.to(kind).requires_grad_() for tensor in (p.clone(), weights.clone())]
        out = predicted_ndcg(given[0], y.to(kind), given[1], shape)
        (out * direction.to(kind)).sum().backward()
        results.append([out.detach(), given[0].grad, given[1].grad])
    for mine, exact in zip(*results, strict=True):
        # Of tiny weights the values are tiny too, and Adam sees their size; of large ones tanh saturates.
        room = 3e-5 * float(exact.abs().max()) + 1e-6 * (scale == 1) if exact.numel() else 0.0
        assert torch.allclose(mine.double(), exact, rtol=1e-4, atol=room)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("mlp", "degree"), PARTS)
@pytest.mark.parametrize("moves", ["weights", "p", "both"])
def test_what_guidedrec_asks_of_the_predictions_has_the_gradients_of_torch(moves, mlp, degree, level, monkeypatch):
    if level is not None:
        monkeypatch.setattr("beamwood.kernels.guided.native_level", lambda: level)
    shape = SurrogateShape(6, 5, mlp, degree)
    generator = torch.Generator().manual_seed(0)
    p, y = torch.rand((37, 6), generator=generator), torch.rand((37, 6), generator=generator).round()
    weights, true = torch.randn(num_weights(shape), generator=generator), torch.rand(37, generator=generator)
    results = []
    for kind in (torch.float32, torch.float64):  # the native core takes float32 alone
        for asked in (squared_miss, summed_ndcg):
            mine, of = p.to(kind).clone(), weights.to(kind).clone()
            mine.requires_grad_(moves != "weights"), of.requires_grad_(moves != "p")
            if asked is squared_miss:
                loss, predicted = squared_miss(mine, y.to(kind), true.to(kind), of, shape)
                assert not predicted.requires_grad
            else:
                loss, predicted = summed_ndcg(mine, y.to(kind), of, shape), torch.zeros(37)
            (-3 * loss).backward()
            assert (mine.grad is None, of.grad is None) == (moves == "weights", moves == "p")
            results.append([loss.detach(), predicted] + [each.grad for each in (mine, of) if each.grad is not None])
    for native_ones, exact_ones in zip(results[:2], results[2:], strict=True):
        for got, exact in zip(native_ones, exact_ones, strict=True):
            room = 3e-5 * float(exact.abs().max()) + 1e-6
            assert torch.allclose(got.double(), exact.double(), rtol=1e-4, atol=room)


def test_only_what_is_asked_for_gets_a_gradient_and_a_second_one_is_refused():
    shape = SurrogateShape(4, 3, True, 2)
    p, weights = torch.rand((5, 4), requires_grad=True), torch.randn(num_weights(shape))
    predicted_ndcg(p, torch.ones((5, 4)), weights, shape).sum().backward()
    assert p.grad is not None
    assert weights.grad is None
    weights.requires_grad_()
    predicted_ndcg(p.detach(), torch.ones((5, 4)), weights, shape).sum().backward()
    assert weights.grad is not None


@pytest.mark.parametrize("k", [1, 3, 10])
def test_the_native_ndcg_is_the_twins_with_ties(k):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (200, 9), generator=generator).float()
    labels = torch.randint(-1, 3, (200, 9), generator=generator).float()
    labels[:7] = 0
    exact = list_ndcg(scores.double(), labels.double(), k=k)
    assert torch.allclose(list_ndcg(scores, labels, k=k).double(), exact, rtol=1e-6, atol=1e-7)
    assert not exact[:7].any()


@pytest.mark.skipif(native() is None, reason="the native core is not built")
def test_what_does_not_fit_is_refused_and_what_is_not_a_number_stays_so():
    p, y = np.ones((3, 2), np.float32), np.ones((3, 2), np.float32)
    shape = SurrogateShape(2, 3, True, 2)
    weights, out = np.zeros(num_weights(shape), np.float32), np.empty(3, np.float32)
    call = native().ndcg_surrogate
    call(p, y, weights, 3, True, 2, out)
    for wrong, match in [
        ((p, y[:2], weights, 3, True, 2, out), "labels does not fit"),
        ((p, y, weights[1:], 3, True, 2, out), "weights does not fit"),
        ((p, y, weights, 3, False, 0, out), "degree must be"),
        ((p, y, weights, 0, True, 2, out), "out of range"),
        ((p, y, weights, 3, True, 2, out[1:]), "predicted does not fit"),
        ((p, y, weights, 3, True, 2, out, None, None, p), "need a gradient or a target"),
        ((p, y, weights, 3, True, 2, out, out, out), "give a gradient or a target"),
        ((p, y, weights, 3, True, 2, out, out[1:]), "gradient does not fit"),
        ((p, y, weights, 3, True, 2, out, None, out[1:]), "target does not fit"),
        ((p, y, weights, 3, True, 2, out, out, None, p[1:].copy()), "d_p does not fit"),
    ]:
        with pytest.raises(ValueError, match=match):
            call(*wrong)
    p[1, 0] = np.nan
    call(p, y, np.ones_like(weights), 3, True, 2, out)
    assert np.isnan(out).tolist() == [False, True, False]
    assert torch.isnan(list_ndcg(torch.from_numpy(p), torch.from_numpy(y))).tolist() == [False, True, False]
