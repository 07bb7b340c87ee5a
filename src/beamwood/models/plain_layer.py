"""A layer of a torch model as plain float32 arrays, for search."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from beamwood.kernels.din import Layer

__all__ = ["plain_array", "plain_layer"]


def plain_array(tensor: Tensor) -> NDArray[np.float32]:
    """The tensor as a contiguous float32 array."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy(), dtype=np.float32)


def plain_layer(layer: nn.Module, act: nn.Module | None = None, norm: nn.Module | None = None) -> Layer:
    """`act(norm(layer(x)))` as one affine layer and its slopes, under a normalisation's running statistics.

    `layer`: linear; `act`: PReLU, ReLU or none; `norm`: batch normalisation, else ignored.
    """
    assert isinstance(layer, nn.Linear)
    weight, bias = layer.weight.double(), layer.bias.double()
    if isinstance(norm, nn.BatchNorm1d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        scale = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
        weight = weight * scale[:, None]
        bias = (bias - norm.running_mean.double()) * scale + norm.bias.double()
    slope = torch.ones_like(bias) if act is None else torch.zeros_like(bias)
    if isinstance(act, nn.PReLU):
        slope = act.weight
    return Layer(plain_array(weight), plain_array(bias), plain_array(slope))
