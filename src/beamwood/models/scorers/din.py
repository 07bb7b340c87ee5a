"""DIN's score as a ranker: attention of the candidate over the history, then an MLP.

Shape legend: B rows, L history length, M items a row, D width, A first attention width.

Source: Zhou et al. 2018.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from pydantic import Field

from beamwood.models import parameters as declared
from beamwood.models.ops import Array, Parameters, affine, linear, namespace, prelu
from beamwood.models.parameters import LayerWidth, Parameter, linear_parameters
from beamwood.models.scorer import PairScore, Rows

__all__ = ["SCORE", "Sizes", "attention_weights", "mlp_scores", "parameters"]

_SLOPE = 0.25


class Sizes(declared.Sizes):
    """Those of DIN; the defaults are the two-stage study's."""

    attention: tuple[LayerWidth, ...] = Field((64, 16), min_length=1, description="widths of the attention layers")
    mlp: tuple[LayerWidth, ...] = Field((200, 80), description="widths of the layers above the attention")


def tables(width: int, sizes: Sizes) -> dict[str, int]:
    """Users have vectors only where they have columns."""
    return {"items": width, "users": width}


def parameters(width: int, sizes: Sizes, about: bool) -> Iterator[Parameter]:
    """All by Kaiming, for PReLU layers."""
    yield from _layers("attention", (3 * width, *sizes.attention))
    yield from linear_parameters("attention_out", sizes.attention[-1], 1, "kaiming", _SLOPE)
    widths = ((4 if about else 3) * width, *sizes.mlp)
    yield from _layers("hidden", widths)
    yield from linear_parameters("output", widths[-1], 1, "kaiming", _SLOPE)


def _layers(name: str, widths: Sequence[int]) -> Iterator[Parameter]:
    for place, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        yield from linear_parameters(f"{name}.{place}", inputs, outputs, "kaiming", _SLOPE)
        yield Parameter(f"{name}.{place}.slope", (outputs,), scale=_SLOPE)


def forward(p: Parameters, rows: Rows, sizes: Sizes) -> Array:
    """`s = MLP([z ; w ; z * w ; u])`, `z = sum_l weight(a_l, w) a_l`."""
    a_BLD, w_BMD = rows.history_BLD, rows.items["items"]
    weights_BML = attention_weights(p, a_BLD, w_BMD, rows.real_BL, sizes)
    return mlp_scores(p, weights_BML @ a_BLD, w_BMD, rows.users.get("users"), sizes)


def attention_weights(p: Parameters, a_BLD: Array, w_BMD: Array, real_BL: Array, sizes: Sizes) -> Array:
    """`weight = MLP'([a ; a * w ; w])` [B, M, L], not normalised, 0 where the history entry is absent.

    `W [a ; a * w ; w] = (W_p diag(w) + W_a) a + W_w w`: one matrix a candidate, a pair costs D A, not 3 D A.
    """
    xp = namespace(w_BMD)
    (rows, num_items, width), hidden = w_BMD.shape, sizes.attention[0]
    by_a, by_product, by_w = xp.unstack(xp.reshape(p["attention.0.weight"], (hidden, 3, width)), axis=1)
    folded = by_product * w_BMD[:, :, None, :] + by_a
    # [B, L, M A], in the layout of the product: the factors that follow are large and read once.
    x = a_BLD @ xp.matrix_transpose(xp.reshape(folded, (rows, num_items * hidden, width)))
    x = x + xp.reshape(affine(w_BMD, by_w, p["attention.0.bias"]), (rows, 1, -1))
    x = prelu(xp.reshape(x, (rows, -1, num_items, hidden)), p["attention.0.slope"])
    for place in range(1, len(sizes.attention)):
        x = prelu(linear(x, p, f"attention.{place}"), p[f"attention.{place}.slope"])
    return xp.matrix_transpose(linear(x, p, "attention_out")[:, :, :, 0]) * real_BL[:, None, :]


def mlp_scores(p: Parameters, z_BMD: Array, w_BMD: Array, about_BD: Array | None, sizes: Sizes) -> Array:
    """Scores [B, M] from the pooled history, the items, and the user and context."""
    xp, parts = namespace(w_BMD), [z_BMD, w_BMD, z_BMD * w_BMD]
    if about_BD is not None:
        parts.append(xp.broadcast_to(about_BD[:, None, :], w_BMD.shape))
    x = xp.concat(parts, axis=2)
    for place in range(len(sizes.mlp)):
        x = prelu(linear(x, p, f"hidden.{place}"), p[f"hidden.{place}.slope"])
    return linear(x, p, "output")[:, :, 0]


def held(width: int, sizes: Sizes, length: int) -> int:
    """A candidate's own matrix of the first attention layer, and that layer at each history item."""
    return sizes.attention[0] * (width + length)


SCORE = PairScore("din", Sizes, tables, parameters, forward, held, needs_users=False, reads_history=True)
