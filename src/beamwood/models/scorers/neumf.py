"""NeuMF's score: a product of embeddings beside an MLP of two others, joined by one linear layer.

Shape legend: B rows, M items a row, F factors of the product, D first MLP width.
Source: He et al. 2017, equation 12.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from pydantic import Field

from beamwood.models import parameters as declared
from beamwood.models.ops import Array, Parameters, linear, namespace, relu
from beamwood.models.parameters import LayerWidth, Parameter, linear_parameters
from beamwood.models.scorer import PairScore, Rows

__all__ = ["SCORE", "Sizes"]


class Sizes(declared.Sizes):
    """Those of NeuMF; its MLP reads 2 D values."""

    factors: LayerWidth = Field(8, description="width of the embeddings of the product")
    layers: tuple[LayerWidth, ...] = Field((16, 8, 8), description="widths of the MLP layers")


def tables(width: int, sizes: Sizes) -> dict[str, int]:
    """Those of the product and of the MLP."""
    return {"product_users": sizes.factors, "product_items": sizes.factors, "users": width, "items": width}


def parameters(width: int, sizes: Sizes, about: bool) -> Iterator[Parameter]:
    """All by Xavier."""
    widths = (2 * width, *sizes.layers)
    for place, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        yield from linear_parameters(f"hidden.{place}", inputs, outputs)
    yield from linear_parameters("output", sizes.factors + widths[-1], 1)


def forward(p: Parameters, rows: Rows, sizes: Sizes) -> Array:
    """`s = h . [p_u * q_i ; MLP([p'_u ; q'_i])] + c`."""
    product = rows.users["product_users"][:, None, :] * rows.items["product_items"]
    items = rows.items["items"]
    xp = namespace(items)
    x = xp.concat([xp.broadcast_to(rows.users["users"][:, None, :], items.shape), items], axis=2)
    for place in range(len(sizes.layers)):
        x = relu(linear(x, p, f"hidden.{place}"))
    return linear(xp.concat([product, x], axis=2), p, "output")[:, :, 0]


def held(width: int, sizes: Sizes, length: int) -> int:
    """The widest layer's inputs."""
    widths = (2 * width, *sizes.layers)
    return max(*widths, sizes.factors + widths[-1])


SCORE = PairScore("neumf", Sizes, tables, parameters, forward, held, needs_users=True, reads_history=False)
