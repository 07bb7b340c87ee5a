"""FMLP-Rec: learnable filters in the frequency domain instead of attention; one vector for the whole window.

Shape legend: B rows, L history length, D width, F = L // 2 + 1 frequencies.

Source: Zhou et al., "Filter-enhanced MLP is All You Need for Sequential Recommendation". The filter is a circular
convolution over the positions, so it is not causal: only the last position's vector can be trained.
"""

from __future__ import annotations

from collections.abc import Iterator

from beamwood.models import parameters as declared
from beamwood.models.encoder import Encoder, NumBlocks
from beamwood.models.ops import Array, Parameters, dropped, filtered, gelu, layer_norm, linear
from beamwood.models.parameters import Parameter, layer_norm_parameters, linear_parameters

__all__ = ["ENCODER", "Sizes"]


class Sizes(declared.Sizes):
    """Those of FMLP-Rec."""

    num_blocks: NumBlocks = 2


def parameters(width: int, length: int, sizes: Sizes) -> Iterator[Parameter]:
    """Positions and filters N(0, 0.02), then the maps."""
    yield Parameter("positions", (length, width), "normal", 0.02)
    yield from layer_norm_parameters("norm", width)
    for block in range(sizes.num_blocks):
        yield Parameter(f"blocks.{block}.filter", (length // 2 + 1, width, 2), "normal", 0.02)
    for block in range(sizes.num_blocks):
        name = f"blocks.{block}"
        yield from layer_norm_parameters(f"{name}.filter_norm", width)
        yield from layer_norm_parameters(f"{name}.feed_norm", width)
        yield from linear_parameters(f"{name}.inner", width, 4 * width)
        yield from linear_parameters(f"{name}.outer", 4 * width, width)


def forward(p: Parameters, x_BLD: Array, real_BL: Array, sizes: Sizes, dropout: float, last: bool) -> Array:
    """Each part with its residual and its norm after it."""
    x = dropped(layer_norm(x_BLD + p["positions"], p, "norm"), dropout) * real_BL[:, :, None]
    for block in range(sizes.num_blocks):
        name = f"blocks.{block}"
        mixed = filtered(x, p[f"{name}.filter"])
        if last and block == sizes.num_blocks - 1:
            x, mixed = x[:, -1:, :], mixed[:, -1:, :]
        x = layer_norm(x + dropped(mixed, dropout), p, f"{name}.filter_norm")
        hidden = gelu(linear(x, p, f"{name}.inner"))
        x = layer_norm(x + dropped(linear(hidden, p, f"{name}.outer"), dropout), p, f"{name}.feed_norm")
    return x[:, -1:, :]


ENCODER = Encoder("fmlp", causal=False, sizes=Sizes, parameters=parameters, forward=forward, whole_window=True)
