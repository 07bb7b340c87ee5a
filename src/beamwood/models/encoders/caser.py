"""Caser: convolutions over the latest items as over an image; one vector for the whole window.

Shape legend: B rows, L history length, D width.

Source: Tang and Wang, "Personalized Top-N Sequential Recommendation via Convolutional Sequence Embedding", without the
user embedding: the users of a disjoint split are not in training. Without it the last map has no ReLU, or every
history's vector would lie in one orthant.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from beamwood.models import parameters as declared
from beamwood.models.encoder import Encoder
from beamwood.models.ops import Array, Parameters, dropped, linear, namespace, relu, window_filters
from beamwood.models.parameters import Parameter, linear_parameters

__all__ = ["ENCODER", "Sizes"]


class Sizes(declared.Sizes):
    """Those of Caser: filters L x 1, and of each height 1..L with relu and the maximum over places."""

    num_vertical: int = Field(4, ge=1, description="vertical filters, over all positions")
    num_horizontal: int = Field(16, ge=1, description="horizontal filters per height")


def parameters(width: int, length: int, sizes: Sizes) -> Iterator[Parameter]:
    """All by Xavier; a weight row of "horizontal" is a filter height x D, item after item."""
    yield from linear_parameters("vertical", length, sizes.num_vertical)
    for height in range(1, length + 1):
        yield from linear_parameters(f"horizontal.{height - 1}", height * width, sizes.num_horizontal)
    yield from linear_parameters("output", sizes.num_vertical * width + sizes.num_horizontal * length, width)


def forward(p: Parameters, x_BLD: Array, real_BL: Array, sizes: Sizes, dropout: float, last: bool) -> Array:
    """Padding counts as zeros."""
    xp, (rows, length, _) = namespace(x_BLD), x_BLD.shape
    parts = [xp.reshape(linear(xp.matrix_transpose(x_BLD), p, "vertical"), (rows, -1))]
    for height in range(1, length + 1):
        name = f"horizontal.{height - 1}"
        places = relu(window_filters(x_BLD, height, p[f"{name}.weight"], p[f"{name}.bias"]))
        parts.append(xp.max(places, axis=1))
    return linear(dropped(xp.concat(parts, axis=1), dropout), p, "output")[:, None, :]


ENCODER = Encoder("caser", causal=False, sizes=Sizes, parameters=parameters, forward=forward, whole_window=True)
