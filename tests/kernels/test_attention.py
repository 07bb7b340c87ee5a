"""The native attention weights equal the plain equations in values and gradients, on every instruction set."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from beamwood.errors import InputError
from beamwood.kernels import attention, native
from beamwood.kernels.attention import AttentionLayers

NAMES = ("a", "w", "present", "weight_in", "bias_in", "slope_in", "weight_out", "bias_out", "slope_out")
needs_native = pytest.mark.skipif(native() is None, reason="the native core is not built")


def attention_weights(a, w, present, *layers):
    return attention.attention_weights(a, w, present, AttentionLayers(*layers))


def attention_weights_reference(a, w, present, *layers):
    return attention.attention_weights_reference(a, w, present, AttentionLayers(*layers))


def plain(a, w, present, weight_in, bias_in, slope_in, weight_out, bias_out, slope_out):
    """Every pair's [a; a * w; w] is built and passed through torch's layers."""
    a, w = torch.broadcast_tensors(a[:, None], w[:, :, None])
    hidden = functional.linear(torch.cat([a, a * w, w], -1), weight_in, bias_in)
    hidden = torch.where(hidden > 0, hidden, slope_in * hidden)
    out = functional.linear(hidden, weight_out, bias_out)
    return torch.where(out > 0, out, slope_out * out)[..., 0] * present[:, None]


def case(groups, length, nodes, width, hidden, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    present = torch.rand(groups, length, generator=generator) < 0.8
    return [
        normal(groups, length, width),
        normal(groups, nodes, width),
        present,
        normal(hidden, 3 * width) * (3 * width) ** -0.5,
        normal(hidden) * 0.1,
        torch.rand(hidden, generator=generator).to(dtype) * 0.5,
        normal(1, hidden) * hidden**-0.5,
        normal(1) * 0.1,
        torch.full((1,), 0.25, dtype=dtype),
    ]


def values_and_gradients(function, inputs):
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    out = function(*inputs)
    direction = torch.arange(out.numel(), dtype=torch.float64).view_as(out).cos().to(out.dtype)
    (out * direction).sum().backward()
    return out.detach(), {name: x.grad for name, x in zip(NAMES, inputs, strict=True) if x.grad is not None}


def relative(got, expected):
    return float((got.double() - expected).norm() / expected.norm().clamp(min=1e-12))


SIZES = [
    (3, 69, 71, 24, 36),
    (1, 40, 40, 24, 36),
    (2, 5, 1, 1, 1),
    (70, 3, 17, 5, 7),
    (9, 4, 200, 33, 3),
    (1, 1, 100, 130, 37),
    (8, 6, 16, 16, 16),
]


@needs_native
@pytest.mark.parametrize("level", native().levels() if native() is not None else [])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_native_equals_the_equations_in_float64(sizes, level, monkeypatch):
    monkeypatch.setattr("beamwood.kernels.attention.native_level", lambda: level)
    inputs = case(*sizes)
    out, gradients = values_and_gradients(attention_weights, inputs)
    expected, exact = values_and_gradients(plain, [x.double() if x.is_floating_point() else x for x in inputs])
    assert relative(out, expected) < 1e-5
    for name, gradient in exact.items():
        assert relative(gradients[name], gradient) < 1e-4, name


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_reference_equals_the_equations(sizes):
    inputs = case(*sizes, dtype=torch.float64)
    out, gradients = values_and_gradients(attention_weights_reference, inputs)
    expected, exact = values_and_gradients(plain, inputs)
    assert relative(out, expected) < 1e-12
    assert all(relative(gradients[name], gradient) < 1e-11 for name, gradient in exact.items())


@pytest.mark.parametrize("sizes", [(0, 3, 4, 5, 6), (2, 0, 4, 5, 6), (2, 3, 0, 5, 6)], ids=str)
def test_empty(sizes):
    inputs = case(*sizes)
    out, gradients = values_and_gradients(attention_weights, inputs)
    assert out.shape == (sizes[0], sizes[2], sizes[1])
    assert all(float(gradient.abs().sum()) == 0 for gradient in gradients.values())


@needs_native
@pytest.mark.parametrize("sizes", [(100, 7, 30, 8, 12), (1, 50, 50, 8, 12), (3, 9, 20, 8, 12)], ids=str)
def test_bits_do_not_depend_on_threads(sizes):
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(values_and_gradients(attention_weights, case(*sizes)))
    finally:
        torch.set_num_threads(before)
    for out, gradients in results[1:]:
        assert torch.equal(out, results[0][0])
        assert all(torch.equal(gradients[name], results[0][1][name]) for name in gradients)


def test_absent_entries_have_no_effect_even_if_not_finite():
    inputs = case(2, 6, 5, 4, 3)
    inputs[0][~inputs[2]] = torch.nan
    out, gradients = values_and_gradients(attention_weights, inputs)
    assert torch.isfinite(out).all()
    assert (out.transpose(1, 2)[~inputs[2]] == 0).all()
    if native() is not None:
        assert all(torch.isfinite(gradient).all() for gradient in gradients.values())


def test_non_finite_values_propagate():
    inputs = case(2, 6, 5, 4, 3)
    inputs[2][:] = True
    inputs[1][1, 2, 0] = torch.nan
    out = attention_weights(*inputs)
    assert torch.isnan(out[1, 2]).all()
    assert torch.isfinite(out[0]).all()


def test_strides_and_other_types_are_accepted():
    inputs = case(4, 6, 5, 8, 3)
    expected = attention_weights(*inputs)
    strided = list(inputs)
    strided[0] = inputs[0].transpose(0, 1).contiguous().transpose(0, 1)
    strided[1] = inputs[1].flip(-1).contiguous().flip(-1)
    strided[3] = inputs[3].T.contiguous().T
    assert torch.allclose(attention_weights(*strided), expected, atol=1e-6)
    shared = inputs[1][:1].expand(4, -1, -1)
    copied = attention_weights(inputs[0], shared.contiguous(), *inputs[2:])
    assert torch.allclose(attention_weights(inputs[0], shared, *inputs[2:]), copied, atol=1e-6)
    double = attention_weights(*[x.double() if x.is_floating_point() else x for x in inputs])
    assert double.dtype == torch.float64
    assert torch.allclose(double.float(), expected, atol=1e-5)
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(attention_weights(*inputs), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("index", range(9))
def test_a_wrong_shape_is_an_error(index):
    inputs = case(4, 6, 5, 8, 3)
    inputs[index] = torch.cat([inputs[index], inputs[index]], dim=-1)
    with pytest.raises(InputError, match="has shape"):
        attention_weights(*inputs)


@needs_native
def test_the_native_module_refuses_invalid_shapes():
    arrays = [x.numpy() for x in case(4, 6, 5, 8, 3)]
    arrays[6] = arrays[6][0]
    out = np.empty((4, 5, 6), np.float32)
    native().attention_forward(*arrays, out)
    with pytest.raises(ValueError, match="weights does not match"):
        native().attention_forward(*arrays, np.empty((4, 6, 5), np.float32))
    with pytest.raises(TypeError):
        native().attention_forward(*[x.astype(np.float64) for x in arrays], out)
    with pytest.raises(TypeError):
        native().attention_forward(arrays[0][:, ::2], *arrays[1:], out)
    with pytest.raises(ValueError, match="not available"):
        native().attention_forward(*arrays, out, 1, "v9")
