"""Operations for which torch and numpy each have a fast form.

A model's forward pass is written once over the array API (`namespace`) and these; only this file depends on the library
of an array. Torch is imported when a tensor is passed. `parameters` are arrays by name: "name.weight", "name.bias".

Shape legend: B rows, L history length, Q query positions, D width, E heads, H hidden units, C filters, F frequencies.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_torch_array

__all__ = [
    "Array",
    "Parameters",
    "affine",
    "at_least",
    "attention",
    "dropped",
    "filtered",
    "gelu",
    "gru",
    "layer_norm",
    "linear",
    "namespace",
    "prelu",
    "relu",
    "silu",
    "softmax",
    "unit",
    "window_filters",
]

Array = Any
"""A numpy array or a torch tensor."""

Parameters = Mapping[str, Array]

_EPSILON = 1e-5
# The score of an invisible position, below every other but finite: a softmax over these alone is not NaN.
_INVISIBLE = np.float32(-1e9)


def namespace(x: Array) -> Any:
    """The array API functions of the library that `x` is of."""
    # numpy itself conforms; its wrapper would import a tenth of a second of unused modules.
    return array_namespace(x, use_compat=is_torch_array(x))


def affine(x: Array, weight: Array, bias: Array) -> Array:
    """`x W' + b` over the last axis, `weight` [outputs, inputs]."""
    if is_torch_array(x):
        from torch.nn import functional

        return functional.linear(x, weight, bias)
    if x.ndim == 2:
        rows: Array = x @ weight.T
        rows += bias
        return rows
    # One product of all rows: numpy would multiply a stack of matrices one by one.
    return affine(x.reshape(-1, x.shape[-1]), weight, bias).reshape(*x.shape[:-1], len(weight))


def linear(x: Array, parameters: Parameters, name: str) -> Array:
    """`affine` by the parameters of that name."""
    return affine(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])


def layer_norm(x: Array, parameters: Parameters, name: str) -> Array:
    """Layer normalisation over the last axis by the parameters of that name."""
    weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
    if is_torch_array(x):
        from torch.nn import functional

        return functional.layer_norm(x, weight.shape, weight, bias, _EPSILON)
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    centred /= np.sqrt(variance + np.float32(_EPSILON))
    centred *= weight
    centred += bias
    return centred


def at_least(x: Array, bound: int) -> Array:
    """The elementwise maximum with a bound."""
    return x.clamp(min=bound) if is_torch_array(x) else np.maximum(x, bound)


def relu(x: Array) -> Array:
    """`max(x, 0)`."""
    if is_torch_array(x):
        from torch.nn import functional

        return functional.relu(x)
    return np.maximum(x, 0)


def gelu(x: Array) -> Array:
    """The tanh approximation of the Gaussian error linear unit."""
    if is_torch_array(x):
        from torch.nn import functional

        return functional.gelu(x, approximate="tanh")
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def silu(x: Array) -> Array:
    """`x sigmoid(x)`."""
    if is_torch_array(x):
        from torch.nn import functional

        return functional.silu(x)
    return x * _sigmoid(x)


def softmax(x: Array) -> Array:
    """`exp(x) / sum(exp(x))` over the last axis."""
    if is_torch_array(x):
        return x.softmax(-1)
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def unit(x: Array) -> Array:
    """Each vector of the last axis normalised to length 1; zeros stay."""
    if is_torch_array(x):
        from torch.nn import functional

        return functional.normalize(x, dim=-1)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), np.float32(1e-12))


def prelu(x: Array, slope: Array) -> Array:
    """`x if x > 0 else slope * x`, with a slope [C] for each entry of the last axis."""
    if is_torch_array(x):
        from beamwood.kernels.activation import prelu as fast

        return fast(x.reshape(-1, x.shape[-1]), slope).view(x.shape)
    return np.where(x >= 0, x, x * slope)


def dropped(x: Array, dropout: float) -> Array:
    """Each value 0 with probability `dropout`, else divided by `1 - dropout`; `x` itself where `dropout` is 0."""
    if dropout == 0:
        return x
    from torch.nn import functional

    return functional.dropout(x, dropout)


def attention(
    q_BQD: Array, k_BLD: Array, v_BLD: Array, visible_BQL: Array, *, num_heads: int, dropout: float = 0.0
) -> Array:
    """[B, Q, D]: `softmax(q k' / sqrt(D / E)) v` of each head's columns, over the visible positions.

    `dropout` acts on the softmax's weights. The result of a position without visible ones is undefined.
    """
    if is_torch_array(q_BQD):
        from torch.nn import functional

        q, k, v = (x.view(*x.shape[:2], num_heads, -1).transpose(1, 2) for x in (q_BQD, k_BLD, v_BLD))
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible_BQL[:, None], dropout_p=dropout)
        return mixed.transpose(1, 2).flatten(2)
    q, k, v = (x.reshape(*x.shape[:2], num_heads, -1).transpose(0, 2, 1, 3) for x in (q_BQD, k_BLD, v_BLD))
    scores = q @ k.transpose(0, 1, 3, 2)
    scores /= np.float32(np.sqrt(q.shape[-1]))
    scores = np.where(visible_BQL[:, None], scores, _INVISIBLE)
    return (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(q_BQD.shape)


def gru(
    x_BLD: Array, real_BL: Array, parameters: Parameters, name: str, *, dropout: float = 0.0, last: bool = False
) -> Array:
    """States [B, L, H] of gated recurrent units that start from 0 at a row's first real position, [B, 1, H] if `last`.

    States of earlier positions are undefined. `dropout` acts on x. Parameters: torch's, "weight_ih_l0" [3 H, D] and so
    on.
    """
    weights = [parameters[f"{name}.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    if is_torch_array(x_BLD):
        return _torch_gru(x_BLD, real_BL, weights, dropout, last)
    by_x, by_state, bias_x, bias_state = weights
    hidden = by_state.shape[1]
    inputs = affine(x_BLD, by_x, bias_x)
    state = np.zeros((len(x_BLD), hidden), np.float32)
    states = np.empty((*x_BLD.shape[:2], hidden), np.float32) if not last else None
    for place in range(x_BLD.shape[1]):
        x, h = inputs[:, place], affine(state, by_state, bias_state)
        gates = _sigmoid(x[:, : 2 * hidden] + h[:, : 2 * hidden])
        reset, keep = gates[:, :hidden], gates[:, hidden:]
        new = np.tanh(x[:, 2 * hidden :] + reset * h[:, 2 * hidden :])
        state = np.where(real_BL[:, place, None], (1 - keep) * new + keep * state, state)
        if states is not None:
            states[:, place] = state
    return state[:, None] if states is None else states


def _torch_gru(x_BLD: Array, real_BL: Array, weights: list[Array], dropout: float, last: bool) -> Array:
    """`gru` by torch's kernel, which cannot start late: rows are shifted so that padding is last, and shifted back."""
    import torch

    length = x_BLD.shape[1]
    padding = (~real_BL).sum(dim=1, keepdim=True)
    place = torch.arange(length, device=x_BLD.device)
    start = x_BLD.new_zeros(1, len(x_BLD), weights[1].shape[1])
    turned = dropped(_picked(x_BLD, (place + padding) % length), dropout)
    with warnings.catch_warnings():
        # On a GPU torch warns that the weights are not contiguous in memory.
        warnings.filterwarnings("ignore", "RNN module weights")
        # The training flag only enables gradients here; dropout is 0.
        states_BLH, _ = torch.gru(turned, start, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
    return _picked(states_BLH, (place[length - 1 if last else 0 :] - padding) % length)


def _picked(x_BLD: Array, places_BQ: Array) -> Array:
    """[B, Q, D], the given places of each row."""
    return x_BLD.gather(1, places_BQ[:, :, None].expand(-1, -1, x_BLD.shape[2]))


def _sigmoid(x: Array) -> Array:
    """`1 / (1 + exp(-x))` without overflow."""
    return np.float32(0.5) * (1 + np.tanh(np.float32(0.5) * x))


def window_filters(x_BLD: Array, height: int, weight: Array, bias: Array) -> Array:
    """[B, L - height + 1, C], filters over windows of `height` positions.

    `weight` [C, height * D], place after place; `bias` [C].
    """
    if is_torch_array(x_BLD):
        from torch.nn import functional

        filters = weight.view(len(weight), height, -1).transpose(1, 2)
        return functional.conv1d(x_BLD.transpose(1, 2), filters, bias).transpose(1, 2)
    x_BLD = np.ascontiguousarray(x_BLD)
    rows, length, width = x_BLD.shape
    # Consecutive positions are adjacent in memory: a window is an overlapping row of a strided view.
    shown = np.ndarray((rows, length - height + 1, height * width), x_BLD.dtype, x_BLD, strides=x_BLD.strides)
    return affine(shown.copy(), weight, bias)


def filtered(x_BLD: Array, filter_FD2: Array) -> Array:
    """[B, L, D], x multiplied in the frequencies of its positions: a circular convolution; `filter_FD2` is complex."""
    if is_torch_array(x_BLD):
        import torch

        spectrum = torch.fft.rfft(x_BLD, dim=1, norm="ortho") * torch.view_as_complex(filter_FD2)
        return torch.fft.irfft(spectrum, n=x_BLD.shape[1], dim=1, norm="ortho")
    spectrum = np.fft.rfft(x_BLD, axis=1, norm="ortho") * (filter_FD2[..., 0] + 1j * filter_FD2[..., 1])
    return np.fft.irfft(spectrum, n=x_BLD.shape[1], axis=1, norm="ortho").astype(np.float32, copy=False)
