"""PReLU for training, without torch's gradient of the slope for every element before the sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from beamwood.kernels.dispatch import native, native_level

__all__ = ["prelu"]


def prelu(x_NC: Tensor, slope_C: Tensor) -> Tensor:
    """`x if x > 0 else slope * x`, a slope a column; float32 on the CPU takes the native backward."""
    simple = x_NC.ndim == 2 and x_NC.dtype == slope_C.dtype == torch.float32 and x_NC.device.type == "cpu"
    simple = simple and slope_C.shape == x_NC.shape[1:]
    # Under autocast torch decides the type; its own form then fits both ways.
    simple = simple and torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    if simple and native() is not None:
        result: Tensor = _NativePrelu.apply(x_NC, slope_C)  # type: ignore[no-untyped-call]
        return result
    return functional.prelu(x_NC, slope_C)


class _NativePrelu(torch.autograd.Function):
    """`prelu` whose backward is one pass; its bits do not depend on the number of threads."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, slope: Tensor) -> Tensor:
        x, slope = x.detach().contiguous(), slope.detach().contiguous()
        ctx.save_for_backward(x, slope)
        return torch.prelu(x, slope)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, slope = ctx.saved_tensors
        d_x, d_slope = torch.empty_like(x), torch.empty_like(slope)
        native().prelu_backward(
            x.numpy(),
            slope.numpy(),
            gradient.contiguous().numpy(),
            d_x.numpy(),
            d_slope.numpy(),
            torch.get_num_threads(),
            native_level(),
        )
        return d_x, d_slope
