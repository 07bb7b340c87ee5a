"""SASRec: causal self-attention over the latest items; every position predicts what comes after it.

Shape legend: B rows, L history length, D width.
Source: Kang and McAuley, "Self-Attentive Sequential Recommendation"; with a feed-forward network of width 4 D inside,
where the paper's has D.
"""

from __future__ import annotations

from collections.abc import Iterator

from beamwood.errors import InputError
from beamwood.models import parameters as declared
from beamwood.models.encoder import Encoder, NumBlocks, NumHeads
from beamwood.models.ops import Array, Parameters, attention, dropped, layer_norm, linear, namespace, relu
from beamwood.models.parameters import Parameter, layer_norm_parameters, linear_parameters

__all__ = ["ENCODER", "Sizes", "block_parameters", "transformer_block"]


class Sizes(declared.Sizes):
    """Those of SASRec."""

    num_blocks: NumBlocks = 2
    num_heads: NumHeads = 2


def parameters(width: int, length: int, sizes: Sizes) -> Iterator[Parameter]:
    """Positions N(0, 0.02), linear maps by Xavier."""
    if width % sizes.num_heads:
        raise InputError(f"width={width} is not a multiple of num_heads={sizes.num_heads}")
    yield Parameter("positions", (length, width), "normal", 0.02)
    for block in range(sizes.num_blocks):
        yield from block_parameters(f"blocks.{block}", width)
    yield from layer_norm_parameters("final_norm", width)


def forward(p: Parameters, x_BLD: Array, real_BL: Array, sizes: Sizes, dropout: float, last: bool) -> Array:
    """Position l counts from the window's end."""
    xp, length = namespace(x_BLD), x_BLD.shape[1]
    x = dropped(x_BLD + p["positions"][-length:, :], dropout) * real_BL[:, :, None]
    ones = xp.ones((length, length), dtype=xp.bool, device=x_BLD.device)
    # A padding position attends to itself, as a softmax over nothing is NaN.
    visible_BLL = (xp.tril(ones) & real_BL[:, None, :]) | xp.eye(length, dtype=xp.bool, device=x_BLD.device)
    for block in range(sizes.num_blocks):
        only = last and block == sizes.num_blocks - 1
        x = transformer_block(
            p, f"blocks.{block}", x, visible_BLL, num_heads=sizes.num_heads, dropout=dropout, last=only
        )
    return layer_norm(x, p, "final_norm")


def block_parameters(name: str, width: int) -> Iterator[Parameter]:
    """The parameters of `transformer_block`."""
    yield from layer_norm_parameters(f"{name}.attention_norm", width)
    yield from layer_norm_parameters(f"{name}.feed_norm", width)
    for part in ("query", "key", "value", "output"):
        yield from linear_parameters(f"{name}.{part}", width, width)
    yield from linear_parameters(f"{name}.inner", width, 4 * width)
    yield from linear_parameters(f"{name}.outer", 4 * width, width)


def transformer_block(
    p: Parameters, name: str, x_BLD: Array, visible_BLL: Array, *, num_heads: int, dropout: float, last: bool = False
) -> Array:
    """A pre-norm transformer block: attention, then two linear maps, each with layer norm and a residual connection.

    The linear maps are D to 4 D and back. [B, L, D], [B, 1, D] with `last`; `visible_BLL`: whether the row's position
    may attend to the column's.
    """
    normed = layer_norm(x_BLD, p, f"{name}.attention_norm")
    looking = normed
    if last:
        x_BLD, looking, visible_BLL = x_BLD[:, -1:, :], normed[:, -1:, :], visible_BLL[:, -1:, :]
    mixed = attention(
        linear(looking, p, f"{name}.query"),
        linear(normed, p, f"{name}.key"),
        linear(normed, p, f"{name}.value"),
        visible_BLL,
        num_heads=num_heads,
        dropout=dropout,
    )
    x = x_BLD + dropped(linear(mixed, p, f"{name}.output"), dropout)
    hidden = relu(linear(layer_norm(x, p, f"{name}.feed_norm"), p, f"{name}.inner"))
    return x + dropped(linear(dropped(hidden, dropout), p, f"{name}.outer"), dropout)


ENCODER = Encoder("sasrec", causal=True, sizes=Sizes, parameters=parameters, forward=forward)
