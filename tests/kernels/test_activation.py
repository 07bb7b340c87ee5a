"""The native PReLU has torch's values and gradients."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from beamwood.kernels import native
from beamwood.kernels.activation import prelu


def values_and_gradients(function, x, slope, direction):
    x, slope = x.clone().requires_grad_(), slope.clone().requires_grad_()
    out = function(x, slope)
    (out * direction.to(out.dtype)).sum().backward()
    return out.detach(), x.grad, slope.grad


@pytest.mark.parametrize("level", native().levels() if native() is not None else [None])
@pytest.mark.parametrize("size", [(200, 36), (3, 5), (1, 1), (0, 4), (4, 0), (65, 16), (1000, 128)], ids=str)
def test_prelu_equals_torch_in_float64(size, level, monkeypatch):
    if level is not None:
        monkeypatch.setattr("beamwood.kernels.activation.native_level", lambda: level)
    generator = torch.Generator().manual_seed(0)
    x, slope = torch.randn(size, generator=generator), torch.rand(size[1], generator=generator)
    direction = torch.randn(size, generator=generator)
    got = values_and_gradients(prelu, x, slope, direction)
    expected = values_and_gradients(functional.prelu, x.double(), slope.double(), direction.double())
    for mine, exact in zip(got, expected, strict=True):
        assert torch.allclose(mine.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(native() is None, reason="the native core is not built")
def test_bits_do_not_depend_on_threads_and_invalid_shapes_are_refused():
    x, slope, direction = torch.randn(333, 24), torch.rand(24), torch.randn(333, 24)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            results.append(values_and_gradients(prelu, x, slope, direction))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    arrays = [x.numpy(), slope.numpy(), direction.numpy(), np.empty((333, 24), np.float32), np.empty(24, np.float32)]
    native().prelu_backward(*arrays)
    with pytest.raises(ValueError, match="d_slope does not match"):
        native().prelu_backward(*arrays[:4], np.empty(23, np.float32))
    with pytest.raises(TypeError):
        native().prelu_backward(x.double().numpy(), *arrays[1:])


def test_autocast_trains():
    x, slope = torch.randn(40, 24, requires_grad=True), torch.rand(24, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = prelu(x, slope)
    out.sum().backward()
    assert torch.allclose(x.grad, torch.where(x > 0, 1.0, slope), atol=1e-2)


def test_one_slope_for_all_columns_has_torch_s_gradients():
    x, slope, direction = torch.randn(9, 4), torch.rand(1), torch.randn(9, 4)
    got = values_and_gradients(prelu, x, slope, direction)
    for mine, expected in zip(got, values_and_gradients(functional.prelu, x, slope, direction), strict=True):
        assert torch.equal(mine, expected)
