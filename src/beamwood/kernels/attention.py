"""DIN's attention weights for training, differentiable: a native kernel on the CPU, its torch twin elsewhere.

Shape legend: G groups (a user on a level, or one group for a table), L history entries, M nodes, D width, A hidden,
B users, n nodes of a level.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from beamwood.errors import InputError
from beamwood.kernels.dispatch import native, native_level

__all__ = ["AttentionLayers", "attention_weights", "attention_weights_reference", "table_attention_weights"]


class AttentionLayers(NamedTuple):
    """The two layers of the attention: `weight_in` [A, 3 D], `bias_in`, `slope_in` [A]; `weight_out` [1, A],
    `bias_out`, `slope_out` [1]."""

    weight_in: Tensor
    bias_in: Tensor
    slope_in: Tensor
    weight_out: Tensor
    bias_out: Tensor
    slope_out: Tensor


def attention_weights(a_GLD: Tensor, w_GMD: Tensor, present_GL: Tensor, layers: AttentionLayers) -> Tensor:
    """Weights [G, M, L] of each node for each history entry, 0 where `present_GL` is false.

    `act(weight_out . act(weight_in [a; a * w; w] + bias_in) + bias_out)`. In float32 on the CPU the native kernel
    stores nothing of size G M L A and recomputes the hidden layer in backward. Its results do not depend on the number
    of threads. Otherwise the torch form is used. Raises `InputError` on inconsistent shapes. Source: DTR, equation 2.
    """
    check_shapes(a_GLD, w_GMD, present_GL, layers)
    inputs, floats = (a_GLD, w_GMD, present_GL, *layers), (a_GLD, w_GMD, *layers)
    is_plain = present_GL.dtype == torch.bool and all(x.dtype == torch.float32 for x in floats)
    if native() is not None and is_plain and all(x.device.type == "cpu" for x in inputs):
        weights: Tensor = _NativeAttention.apply(*inputs)  # type: ignore[no-untyped-call]
        return weights
    return attention_weights_reference(a_GLD, w_GMD, present_GL, layers)


def table_attention_weights(
    level_nD: Tensor, history_BL: Tensor, nodes_BM: Tensor | None, present_BL: Tensor, layers: AttentionLayers
) -> Tensor:
    """`attention_weights` [B, M, L] of nodes of one level, looked up in the table of all its pairs.

    A weight depends on the two nodes alone, so on a level with few nodes the table costs less than the pairs.
    `level_nD`: the vectors of the level; `history_BL`, `nodes_BM`: nodes of the level, None for all of them in order.
    """
    everything = torch.ones(1, len(level_nD), dtype=torch.bool, device=level_nD.device)
    table_nn = attention_weights(level_nD[None], level_nD[None], everything, layers)[0]
    if nodes_BM is None:
        weights_BML = functional.embedding(history_BL, table_nn.T).transpose(1, 2)
    else:
        rows_BMn = functional.embedding(nodes_BM, table_nn)
        weights_BML = torch.gather(rows_BMn, 2, history_BL[:, None, :].expand(-1, nodes_BM.shape[1], -1))
    return weights_BML * present_BL[:, None, :]


def check_shapes(a_GLD: Tensor, w_GMD: Tensor, present_GL: Tensor, layers: AttentionLayers) -> None:
    """Raise `InputError` naming the first tensor with an inconsistent shape."""
    a_shape, in_shape = tuple(a_GLD.shape), tuple(layers.weight_in.shape)
    if a_GLD.ndim != 3 or len(in_shape) != 2:
        raise InputError(f"a has shape {a_shape}, weight_in {in_shape}; expected 3 and 2 axes")
    (groups, length, width), hidden = a_shape, in_shape[0]
    shapes = [(hidden, 3 * width), (hidden,), (hidden,), (1, hidden), (1,), (1,)]
    expected = {
        "w": (w_GMD, (groups, w_GMD.shape[1] if w_GMD.ndim == 3 else -1, width)),
        "present": (present_GL, (groups, length)),
        **dict(zip(layers._fields, zip(layers, shapes, strict=True), strict=True)),
    }
    for name, (tensor, shape) in expected.items():
        if tuple(tensor.shape) != shape:
            raise InputError(f"{name} has shape {tuple(tensor.shape)}; expected {shape} beside a {a_shape}")


def attention_weights_reference(a_GLD: Tensor, w_GMD: Tensor, present_GL: Tensor, layers: AttentionLayers) -> Tensor:
    """The torch twin of `attention_weights`: one GEMM a group over the folded matrices, any device and type."""
    weight_in, bias_in, slope_in, weight_out, bias_out, slope_out = layers
    w_a, w_p, w_w = weight_in.chunk(3, dim=1)
    folded_GLAD = w_p * a_GLD[:, :, None, :] + w_w
    num_groups, length, hidden, width = folded_GLAD.shape
    constant_GLA = a_GLD @ w_a.T + bias_in
    hidden_GXM = torch.bmm(folded_GLAD.reshape(num_groups, length * hidden, width), w_GMD.transpose(1, 2))
    hidden_GLAM = hidden_GXM.view(num_groups, length, hidden, w_GMD.shape[1]) + constant_GLA[..., None]
    active = torch.where(hidden_GLAM > 0, hidden_GLAM, hidden_GLAM * slope_in[:, None])
    out_GLM = torch.einsum("a,glam->glm", weight_out[0], active) + bias_out
    out_GLM = torch.where(out_GLM > 0, out_GLM, out_GLM * slope_out)
    return torch.where(present_GL[:, :, None], out_GLM, torch.zeros_like(out_GLM)).transpose(1, 2)


class _NativeAttention(torch.autograd.Function):
    """`attention_weights` by the native kernel; inputs are saved for backward, the hidden layer is not."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> Tensor:
        inputs = tuple(x.detach().contiguous() for x in inputs)
        ctx.save_for_backward(*inputs)
        a, w = inputs[:2]
        weights = torch.empty(len(a), w.shape[1], a.shape[1], dtype=torch.float32)
        native().attention_forward(*_arrays(inputs), weights.numpy(), torch.get_num_threads(), native_level())
        return weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        gradients = [torch.empty_like(x) for index, x in enumerate(inputs) if index != 2]
        flat = [x.view(-1) if index == 5 else x for index, x in enumerate(gradients)]
        native().attention_backward(
            *_arrays(inputs),
            gradient.contiguous().numpy(),
            *(x.numpy() for x in flat),
            torch.get_num_threads(),
            native_level(),
        )
        return (*gradients[:2], None, *gradients[2:])


def _arrays(inputs: tuple[Tensor, ...]) -> list[Any]:
    """The inputs as the native module takes them: `weight_out` flat."""
    return [(x.view(-1) if index == 6 else x).numpy() for index, x in enumerate(inputs)]
