"""YouTubeDNN: layers over the mean of the items so far; every position predicts what comes after it.

    u = W_n relu(.. relu(W_1 mean(x) + b_1) ..) + b_n

Shape legend: B rows, L history length, D width.
Source: Covington et al., "Deep Neural Networks for YouTube Recommendations", without the user's and the video's
features. The last layer is linear: behind a ReLU all users would look into one orthant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from beamwood.models import parameters as declared
from beamwood.models.encoder import Encoder
from beamwood.models.ops import Array, Parameters, at_least, dropped, linear, namespace, relu
from beamwood.models.parameters import LayerWidth, Parameter, linear_parameters

__all__ = ["ENCODER", "Sizes"]


class Sizes(declared.Sizes):
    """Those of YouTubeDNN."""

    layers: tuple[LayerWidth, ...] = Field(
        (128, 64), description="widths of the layers over the mean, without the last, which has the embedding width"
    )


def parameters(width: int, length: int, sizes: Sizes) -> Iterator[Parameter]:
    """Linear maps by Xavier."""
    del length
    inputs = width
    for number, outputs in enumerate(sizes.layers):
        yield from linear_parameters(f"layers.{number}", inputs, outputs)
        inputs = outputs
    yield from linear_parameters("output", inputs, width)


def forward(p: Parameters, x_BLD: Array, real_BL: Array, sizes: Sizes, dropout: float, last: bool) -> Array:
    """The mean is over real positions only, and of unscaled vectors."""
    xp = namespace(x_BLD)
    real_BL1 = xp.astype(real_BL, x_BLD.dtype)[:, :, None]
    if last:
        sums, counts = (xp.sum(each, axis=1, keepdims=True) for each in (x_BLD, real_BL1))
    else:
        sums, counts = (xp.cumulative_sum(each, axis=1) for each in (x_BLD, real_BL1))
    x = sums / at_least(counts * math.sqrt(x_BLD.shape[2]), 1)
    for number in range(len(sizes.layers)):
        x = dropped(relu(linear(x, p, f"layers.{number}")), dropout)
    return linear(x, p, "output")


ENCODER = Encoder("youtube_dnn", causal=True, sizes=Sizes, parameters=parameters, forward=forward)
